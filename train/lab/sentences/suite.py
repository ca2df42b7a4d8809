"""The tasks of SentEval (Conneau and Kiela 2018) and its probing tasks (Conneau et al. 2018), one row a task."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tfm.options.errors import suggest
from train import UserError
from train.lab.sentences import captions, pairs, single
from train.lab.sentences.rows import Dataset, Files, check_sentences

# How a task is measured: the function of `train.lab.sentences.protocol` with this name.
INNER, KFOLD, SPLIT, SNLI = "inner_folds", "folds", "split", "split_without_penalty"
RELATEDNESS, SIMILARITY, RETRIEVAL = "relatedness", "similarity", "retrieval"


class FileLayout(NamedTuple):
    """Files that hold a task, and the function that reads them.

    files: ends of their paths, with * for anything; one that begins with ? may be missing
    read: paths, None for a missing one -> rows; raises UserError for bad files
    """

    files: tuple[str, ...]
    read: Callable[..., Dataset]


class SentEvalTask(NamedTuple):
    """A task: how it is measured, and the layouts of its files, of which the first that is there is read.

    features: of pairs u, v: difference (|u-v|, u*v) or all (u, v, u*v, |u-v|)
    """

    name: str
    protocol: str
    layouts: tuple[FileLayout, ...]
    features: str = "difference"

    def paths(self, files: Files) -> tuple[FileLayout, list[Path | None]] | None:
        """The layout that is there, and its files; None where there is none."""
        for layout in self.layouts:
            paths = [files.find(name.removeprefix("?")) for name in layout.files]
            if all(path or name.startswith("?") for name, path in zip(layout.files, paths, strict=True)):
                return layout, paths
        return None

    def load(self, files: Files) -> Dataset:
        """The rows of the task. Raises UserError where files are missing or bad."""
        located = self.paths(files)
        if located is None:
            names = " or ".join(", ".join(layout.files) for layout in self.layouts).replace("?", "")
            raise UserError(f"--data={files.data} has no files of {self.name} ({names}); fetch them, or leave it out")
        layout, paths = located
        return check_sentences(layout.read(*paths), str(paths[0]))


def _binary(name: str, positive: str, negative: str, labelled: str) -> SentEvalTask:
    """Two files, one a class; or one whose lines begin with the class, 0 or 1."""
    layouts = (
        FileLayout((f"{name}/{positive}", f"{name}/{negative}"), single.read_classes),
        FileLayout((labelled,), single.read_labelled),
    )
    return SentEvalTask(name, INNER, layouts)


def _probing(name: str, file: str) -> SentEvalTask:
    return SentEvalTask(name, SPLIT, (FileLayout((f"{file}.txt",), single.read_probing),))


def _sts(year: int, *names: str) -> SentEvalTask:
    """A year of semantic textual similarity: a file of pairs and a file of scores for each of its sources."""
    files = tuple(f"STS{year}-en-test/STS.{kind}.{name}.txt" for name in names for kind in ("input", "gs"))
    return SentEvalTask(f"STS{year}", SIMILARITY, (FileLayout(files, partial(pairs.read_sts, names)),))


def _sick(name: str, protocol: str, read: Callable[..., Dataset]) -> SentEvalTask:
    return SentEvalTask(
        name, protocol, (FileLayout(("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"), read),)
    )


_SPLITS = ("train", "dev", "test")
_STSB = tuple(
    FileLayout((f"sts-train.{kind}", f"sts-dev.{kind}", f"?sts-test.{kind}"), pairs.read_sts_benchmark)
    for kind in ("csv", "tsv")
)

TASKS = (
    _binary("MR", "rt-polarity.pos", "rt-polarity.neg", "rt-polarity.all"),
    _binary("CR", "custrev.pos", "custrev.neg", "custrev.all"),
    _binary("SUBJ", "subj.objective", "subj.subjective", "subj.all"),
    _binary("MPQA", "mpqa.pos", "mpqa.neg", "mpqa.all"),
    SentEvalTask(
        "SST2",
        SPLIT,
        (
            FileLayout(tuple(f"binary/sentiment-{part}" for part in _SPLITS), single.read_sst2),
            FileLayout(("*sst2*/train.tsv", "*sst2*/dev.tsv", "?*sst2*/test.tsv"), single.read_sst2),
        ),
    ),
    SentEvalTask("SST5", SPLIT, (FileLayout(tuple(f"fine/sentiment-{part}" for part in _SPLITS), single.read_sst5),)),
    SentEvalTask(
        "TREC",
        KFOLD,
        (
            FileLayout(("train_5500.label", "TREC_10.label"), single.read_trec),
            FileLayout(("TREC.train.all", "TREC.test.all"), single.read_labelled_splits),
        ),
    ),
    SentEvalTask(
        "MRPC", KFOLD, (FileLayout(("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"), pairs.read_mrpc),)
    ),
    _sick("SICK-E", SPLIT, pairs.read_sick_entailment),
    _sick("SICK-R", RELATEDNESS, pairs.read_sick_relatedness),
    SentEvalTask("STS-B", RELATEDNESS, _STSB),
    _sts(12, "MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    _sts(13, "FNWN", "headlines", "OnWN"),
    _sts(14, "deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    _sts(15, "answers-forums", "answers-students", "belief", "headlines", "images"),
    _sts(16, "answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    SentEvalTask(
        "SNLI",
        SNLI,
        (
            FileLayout(
                tuple(f"SNLI/{kind}.{part}" for part in _SPLITS for kind in ("s1", "s2", "labels")), pairs.read_snli
            ),
        ),
        "all",
    ),
    SentEvalTask(
        "captions",
        RETRIEVAL,
        (
            FileLayout(tuple(f"COCO/{part}.pkl" for part in ("train", "valid", "test")), captions.read_coco),
            FileLayout(
                tuple(f"captions/{part}.{kind}" for part in _SPLITS for kind in ("txt", "npy")), captions.read_captions
            ),
        ),
    ),
    _probing("Length", "sentence_length"),
    _probing("WordContent", "word_content"),
    _probing("Depth", "tree_depth"),
    _probing("TopConstituents", "top_constituents"),
    _probing("BigramShift", "bigram_shift"),
    _probing("Tense", "past_present"),
    _probing("SubjNumber", "subj_number"),
    _probing("ObjNumber", "obj_number"),
    _probing("OddManOut", "odd_man_out"),
    _probing("CoordinationInversion", "coordination_inversion"),
)

# SentEval's own names, where they differ.
ALIASES: Mapping[str, str] = {
    "sickentailment": "SICK-E",
    "sickrelatedness": "SICK-R",
    "stsbenchmark": "STS-B",
    "imagecaptionretrieval": "captions",
}


def choose(names: str, files: Files) -> list[SentEvalTask]:
    """The tasks that `--tasks=NAME,NAME` names, in the order above, by default all that are there.

    Case and hyphens do not matter, and SentEval's names are taken too. Raises UserError for an unknown name, for files
    that are missing, and where no task is there.
    """
    by_name = {_plain(task.name): task for task in TASKS}
    by_name |= {alias: by_name[_plain(name)] for alias, name in ALIASES.items()}
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if _plain(name) not in by_name:
            raise UserError(f"--tasks={name} is unknown{suggest(name, [task.name for task in TASKS])}")
        if by_name[_plain(name)].paths(files) is None:
            by_name[_plain(name)].load(files)
    if chosen:
        return [task for task in TASKS if task in [by_name[_plain(name)] for name in chosen]]
    present = [task for task in TASKS if task.paths(files) is not None]
    if not present:
        raise UserError(
            f"--data={files.data} holds no task of SentEval; give the folder that its get_transfer_data.bash fills, or "
            "that of its probing tasks"
        )
    return present


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")

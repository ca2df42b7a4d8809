"""The tasks of GLUE (Wang et al. 2018) and SuperGLUE (Wang et al. 2019), one row a task.

A task has a training set, and parts on which its model is measured: MNLI has two, and its model also answers AX.
"""

from typing import NamedTuple

from tfm.options.errors import suggest
from train import UserError


class GluePart(NamedTuple):
    """A validation set and a test set of a task.

    name: what tables call it, and the file for the server
    dev: file with labels in the folder of the suite, alternatives joined by |; empty for none
    test: file without labels
    metrics: their names in `train.lab.glue.metrics.METRICS`
    tfds: the set that holds both
    splits: the names of both there; an empty name for none
    counts: whether the score of the task has it
    """

    name: str
    dev: str
    test: str
    metrics: tuple[str, ...]
    tfds: str
    splits: tuple[str, str] = ("validation", "test")
    counts: bool = True


class GlueTask(NamedTuple):
    """A task of a suite.

    kind: single | regression: a label or a value of a row. The others are pairs of yes or no: choice: the best of some
        continuations; answers: each answer of a question; entity: the best entity for the gap in a query
    train: the file of its training set
    labels: its classes as files and servers write them; the last of two is the positive class of F1
    texts: columns of its texts, by the names of the files; of SuperGLUE only where it is one text
    label: the column of its label
    tfds_texts: the same columns in the TensorFlow data set, where they have other names
    tfds_labels: its classes there, in the order of `labels`
    headless: the columns of labelled files that have no header
    length: the most tokens of a row
    """

    name: str
    kind: str
    train: str
    parts: tuple[GluePart, ...]
    labels: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    label: str = "label"
    tfds_texts: tuple[str, ...] = ()
    tfds_labels: tuple[str, ...] = ()
    headless: tuple[str, ...] = ()
    length: int = 128

    @property
    def has_pairs(self) -> bool:
        """Whether a row is a pair of texts."""
        return len(self.texts) != 1


_ENTAILMENT = ("not_entailment", "entailment")
_NLI = ("entailment", "neutral", "contradiction")
_BINARY = ("0", "1")
_TRUTH = ("false", "true")


def _glue(name: str, metrics: tuple[str, ...], labels: tuple[str, ...], tfds: str, **columns) -> GlueTask:
    """A task of GLUE with a training, a validation and a test file."""
    part = GluePart(name, f"{name}/dev.tsv", f"{name}/test.tsv", metrics, f"glue/{tfds}")
    return GlueTask(name, "single" if labels else "regression", f"{name}/train.tsv", (part,), labels, **columns)


def _superglue(name: str, kind: str, metrics: tuple[str, ...], labels: tuple[str, ...], length: int = 128) -> GlueTask:
    """A task of SuperGLUE with a training, a validation and a test file."""
    tfds = "super_glue/wsc.fixed" if name == "WSC" else f"super_glue/{name.lower()}"
    part = GluePart(name, f"{name}/val.jsonl", f"{name}/test.jsonl", metrics, tfds)
    return GlueTask(name, kind, f"{name}/train.jsonl", (part,), labels, length=length)


def _diagnostic(name: str, metric: str) -> GluePart:
    """A test set of SuperGLUE that the model of RTE answers; its one file has labels in some releases."""
    file = f"{name}/{name}.jsonl"
    return GluePart(name, file, file, (metric,), f"super_glue/{name.lower().replace('-', '')}", ("test", "test"), False)


_PAIR = ("sentence1", "sentence2")

_MNLI = GlueTask(
    "MNLI",
    "single",
    "MNLI/train.tsv",
    (
        GluePart(
            "MNLI-m",
            "MNLI/dev_matched.tsv",
            "MNLI/test_matched.tsv",
            ("accuracy",),
            "glue/mnli",
            ("validation_matched", "test_matched"),
        ),
        GluePart(
            "MNLI-mm",
            "MNLI/dev_mismatched.tsv",
            "MNLI/test_mismatched.tsv",
            ("accuracy",),
            "glue/mnli",
            ("validation_mismatched", "test_mismatched"),
        ),
        GluePart(
            "AX",
            "diagnostic/diagnostic-full.tsv|AX/diagnostic-full.tsv",
            "diagnostic/diagnostic.tsv|AX/diagnostic.tsv|AX/AX.tsv",
            ("matthews",),
            "glue/ax",
            ("", "test"),
            False,
        ),
    ),
    _NLI,
    _PAIR,
    "gold_label",
    ("premise", "hypothesis"),
)

GLUE = (
    _glue(
        "CoLA",
        ("matthews",),
        _BINARY,
        "cola",
        texts=("sentence",),
        tfds_labels=("unacceptable", "acceptable"),
        headless=("source", "label", "star", "sentence"),
    ),
    _glue("SST-2", ("accuracy",), _BINARY, "sst2", texts=("sentence",), tfds_labels=("negative", "positive")),
    _glue(
        "MRPC",
        ("accuracy", "f1"),
        _BINARY,
        "mrpc",
        texts=("#1 String", "#2 String"),
        label="Quality",
        tfds_texts=_PAIR,
        tfds_labels=("not_equivalent", "equivalent"),
    ),
    _glue("STS-B", ("pearson", "spearman"), (), "stsb", texts=_PAIR, label="score"),
    _glue(
        "QQP",
        ("accuracy", "f1"),
        _BINARY,
        "qqp",
        texts=("question1", "question2"),
        label="is_duplicate",
        tfds_labels=("not_duplicate", "duplicate"),
    ),
    _MNLI,
    _glue("QNLI", ("accuracy",), _ENTAILMENT, "qnli", texts=("question", "sentence")),
    _glue("RTE", ("accuracy",), _ENTAILMENT, "rte", texts=_PAIR),
    _glue("WNLI", ("accuracy",), _BINARY, "wnli", texts=_PAIR, tfds_labels=_ENTAILMENT),
)

_RTE = _superglue("RTE", "single", ("accuracy",), _ENTAILMENT)

SUPERGLUE = (
    _superglue("BoolQ", "single", ("accuracy",), _TRUTH, length=256),
    _superglue("CB", "single", ("accuracy", "f1_macro"), _NLI),
    # With a task for multiple choice, "choice" in its kind is all that decides how it is trained.
    _superglue("COPA", "choice", ("accuracy",), _BINARY, length=64),
    _superglue("MultiRC", "answers", ("f1a", "exact_match"), _BINARY, length=512),
    _superglue("ReCoRD", "entity", ("f1_answer", "exact_match_answer"), _BINARY, length=512),
    _RTE._replace(parts=(*_RTE.parts, _diagnostic("AX-b", "matthews"), _diagnostic("AX-g", "accuracy"))),
    _superglue("WiC", "single", ("accuracy",), _TRUTH),
    _superglue("WSC", "single", ("accuracy",), _TRUTH)._replace(texts=("text",)),
)

SUITES = {"glue": GLUE, "superglue": SUPERGLUE}


def choose(suite: str, names: str) -> list[GlueTask]:
    """The tasks that `--tasks=NAME,NAME` names, in the order of the suite; case and hyphens do not matter.

    Raises UserError for an unknown name, and for a part, which has no model of its own.
    """
    tasks = SUITES[suite]
    by_name = {_plain(task.name): task for task in tasks}
    owners = {_plain(part.name): task for task in tasks for part in task.parts}
    chosen = set()
    for name in filter(None, (name.strip() for name in names.split(","))):
        if _plain(name) not in by_name and _plain(name) in owners:
            owner = owners[_plain(name)].name
            raise UserError(f"--tasks={name}: the model of {owner} answers it; say --tasks={owner}")
        if _plain(name) not in by_name:
            raise UserError(f"--tasks={name} is unknown in {suite}{suggest(name, [task.name for task in tasks])}")
        chosen.add(_plain(name))
    return [task for task in tasks if _plain(task.name) in chosen]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")

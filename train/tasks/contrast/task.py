"""Vectors of texts, by contrast with all other texts of a batch (Gao et al. 2021).

A row of a text, one that belongs to it, and one that does not, in 8 places each:

    tokens      [CLS] a man runs [SEP] [PAD] ...      [B,n,T], the texts of a row; the first is the one that looks
                [CLS] he moves [SEP] [PAD] ...        the second is the right one
                [CLS] he sleeps [SEP] [PAD] ...       others are wrong, as are those of other rows
    valid           1 1  1   1     1     0            [B,n,T], 0 is padding; a text of padding alone is absent
    weights         1                                 0 for an empty row
    temperature     0.05                              of the softmax over cosines, and
    contents        7 3 9                             [B,n], equal numbers for equal texts, which are not apart; or
    scores          0.8                               of both texts, with --task.kind=scores and cosent
    teacher         4.1 -2.0                          [B,n-1], scores of all candidates, with --task.kind=margin and kl
    both_ways       1                                 with the option of this name
    int8, binary    1                                 with --task.quantize of this value
    sizes           64 32                             [B,s], the same for all rows, with the option of this name
    withheld        0                                 1 for a built-in row whose words never meet in training

A row of one text is its own right one: dropout makes two vectors of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tfm
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.metrics import scores
from train.metrics.retrieval import alignment, bags, both_retrievals, retrieval, uniformity, usual_and_withheld
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.contrast.loss import loss
from train.tasks.contrast.options import PAIR_SCORES, TAUGHT, TEMPERED, Contrast
from train.tasks.contrast.predict import PREDICTOR
from train.tasks.contrast.rows import RowFields, SideRows
from train.tasks.contrast.scores import check_scores, scores_of
from train.tasks.contrast.sides import SideSource, SideTexts, read_sides, withheld_of
from train.tasks.contrast.source import Sides
from train.tasks.record import Folder, HfSource, Saved, Task
from train.text import sentence_transformers
from train.text.sentence_transformers import Modules


def specs(run: Run[Contrast]) -> tfm.Classifier:
    """The parameters of the run's model: an encoder, and the pooler that transformers has, which nothing trains."""
    classifier = tfm.classifier_specs(run.model)
    unread = jax.tree.map(lambda spec: replace(spec, trained=False), (classifier.pooler, classifier.norm))
    return replace(classifier, pooler=unread[0], norm=unread[1], output=None)


def batch_spec(run: Run[Contrast]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    count = {"n": len(run.data.field.split(","))}
    kind, sizes = run.task.kind, run.task.first_numbers
    of_kind: dict[str, Field] = {}
    if kind in PAIR_SCORES:
        of_kind["scores"] = Field("B", np.float32)
    else:
        of_kind["contents"] = Field("Bn", np.int32, count)
    if kind in TAUGHT:
        of_kind["teacher"] = Field("Bm", np.float32, {"m": count["n"] - 1})
    if kind in TEMPERED:
        of_kind["temperature"] = Field("B", np.float32)
    if run.task.both_ways:
        of_kind["both_ways"] = Field("B", np.float32)
    if run.task.quantize != "none":
        of_kind[run.task.quantize] = Field("B", np.float32)
    if sizes:
        of_kind["sizes"] = Field("Bs", np.int32, {"s": len(sizes)})
    return {
        "tokens": Field("BnT", np.int32, count, counts_tokens=True),
        "valid": Field("BnT", np.int32, count),
        "weights": Field("B", np.float32, weighs=True),
        "withheld": Field("B", np.float32),
        **of_kind,
    }


def metrics(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means from sums; with the `vectors` of all rows also how evenly they lie, correlations with scores."""
    weight = max(sums["weight"], 1)
    names = {"loss": "loss", "right": "accuracy", "padding": "padding"}
    means = {name: sums[total] / weight for total, name in names.items() if total in sums}
    if "vectors" not in sums:
        return means
    vectors = sums["vectors"][sums["weights"] > 0]
    means["uniformity"] = uniformity(vectors[:, 0])
    if "scores" in sums:
        cosines = (vectors[:, 0] * vectors[:, 1]).sum(-1)
        means |= scores.classification_metrics(cosines[:, None], sums["scores"][sums["weights"] > 0])
    return means


def corpus_metrics(outputs: Mapping[str, Any], corpus: Corpus[SideRows], during_training: bool) -> dict[str, float]:
    """How often the right text of a pair is the nearest, and the other way round; those of withheld words apart."""
    if outputs["vectors"].shape[1] < 2 or "scores" in outputs:
        return {}
    results: dict[str, float] = {}
    for name, rows in usual_and_withheld(outputs["weights"], outputs["withheld"]):
        first, second = (outputs["vectors"][rows, side] for side in (0, 1))
        contents = outputs["contents"][rows, :2]
        values = both_retrievals(first, second, corpus.run.task.candidates, contents)
        values["alignment"] = alignment(first, second)
        results |= {f"{metric}{name}": value for metric, value in values.items()}
    return results


def measured(corpus: Corpus[SideRows]) -> set[str]:
    """The names of the metrics of scores, of pairs, or of texts that meet themselves."""
    if corpus.run.task.kind in PAIR_SCORES:
        return {"loss", "pearson", "spearman"}
    of_pairs = {"retrieval_1", "retrieval_5"} if len(corpus.valid.texts) > 1 else set()
    return {"loss", "accuracy", *of_pairs}


def load(run: Run[Contrast], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[SideRows]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training texts if --eval-data names other texts for validation.
    """
    is_scored = run.task.kind in (*PAIR_SCORES, *TAUGHT)
    reader = Sides.of(run.data, is_scored, check_scores(run.task.kind, len(run.data.field.split(",")) - 1))

    def rows_of(side: SideTexts) -> SideRows:
        examples = side.examples
        values = scores_of(run.task, examples, reader.labels[0], len(reader.texts) - 1) if is_scored else None
        fields = RowFields(values, run.task, withheld_of(examples), side.contents)
        return SideRows(side.texts, fields, run.batch, side.tokenizer, run.batch.shapes)

    prompts = run.task.query_prompt, run.task.passage_prompt
    read = read_sides(run, SideSource(reader, prompts, valid_only), rows_of, log, saved)
    return Corpus(run, read.tokenizer, read.train, read.valid, {"vocab": read.tokenizer.get_vocab_size()}, read.facts)


def baselines(corpus: Corpus[SideRows]) -> dict[str, float]:
    """What bags of tokens reach, with the names of the metrics and `overlap_` before them; `chance` of the right text;
    `n`: the number of rows."""
    valid = corpus.valid
    count: dict[str, float] = {"n": len(valid)}
    if len(valid.texts) < 2:
        return count
    order = np.concatenate(valid.buckets.epoch())
    order = order[order >= 0]
    sides = [bags([text[row] for row in order], corpus.processor.get_vocab_size()) for text in valid.texts[:2]]
    if valid.fields.grades is not None:
        cosines = np.asarray(sides[0].multiply(sides[1]).sum(1))
        correlations = scores.classification_metrics(cosines, valid.fields.grades[order])
        return {f"overlap_{name}": value for name, value in correlations.items()} | count
    (_, rows), *_ = usual_and_withheld(np.ones(len(order)), valid.fields.withheld[order])
    size = min(corpus.run.task.candidates or len(rows), len(rows))
    values = retrieval(sides[0][rows], sides[1][rows], size, valid.fields.contents[order[rows], :2])
    return {f"overlap_{name}": value for name, value in values.items()} | {"chance": 1 / size} | count


def report(
    params: tfm.Classifier,
    run: Run[Contrast],
    corpus: Corpus[SideRows],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Prints ten validation texts, each with the text of the other side that is nearest, or with the cosine."""
    rows = np.concatenate(corpus.valid.buckets.epoch())
    vectors, decode = outcomes["vectors"], corpus.processor.decode
    kept = np.flatnonzero(rows >= 0)
    for place in kept[:: max(1, len(kept) // 10)][:10]:
        texts = corpus.valid.texts
        cosines = vectors[kept, -1 if len(texts) < 2 else 1] @ vectors[place, 0]
        if len(texts) < 2:
            cosines[kept == place] = -2  # a text is not its own neighbour
        nearest = place if "scores" in outcomes else kept[int(cosines.argmax())]
        cosine = float(cosines[kept == nearest][0])
        words = decode(texts[0][rows[place]].tolist()), decode(texts[min(1, len(texts) - 1)][rows[nearest]].tolist())
        log.info(f"{words[0]} | {words[1]} {cosine:.4f}")


def modules(run: Run[Contrast]) -> Modules:
    """How the vector of a text is made of states, and what stands before queries and passages."""
    return Modules((run.model.head.pool,), prompts=run.task.prompts)


def hf_run_values(head: str, folder: HfSource) -> dict[str, Any]:
    """Options of a run that could have trained a folder of sentence-transformers."""
    modules = folder.modules
    values: dict[str, Any] = {"data.field": "text,positive"}
    values |= {} if modules.length is None else {"batch.length": max(modules.length, 8)}
    return values if modules.trained_pool is None else values | {"model.head.pool": modules.trained_pool}


def hf_template(run: Run[Contrast], tokenizer: Any) -> tuple[str, ...]:
    """How the exported tokenizer marks a text."""
    return ("{cls} $A {sep}",)


def save_hf(folder: Folder, params: tfm.Classifier, to: Path):
    """Writes beside the model what sentence-transformers reads."""
    run = folder.config
    sentence_transformers.save(to, run.model.width, run.model.head.pool, run.batch.length, run.task.prompts)


CONTRAST = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min} | dict.fromkeys(("accuracy", "retrieval_1", "retrieval_5", "pearson", "spearman"), max),
    measured=measured,
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        "embed --run={folder} --file=YOUR.txt --to=vectors.npy --query='YOUR TEXT'",
        "predict --run={folder} --text='YOUR TEXT' --pair='ANOTHER'",
        "export --run={folder} --to=FOLDER",
    ),
    corpus_metrics=corpus_metrics,
    predictor=PREDICTOR,
    modules=modules,
    hf_run_values=hf_run_values,
    hf_template=hf_template,
    save_hf=save_hf,
)

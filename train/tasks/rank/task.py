"""Passages by how well they answer a query, by a model that reads both (Nogueira & Cho 2019).

A query with two passages, in a row of 14 places with room for other queries (`train.data.text_rows`):

    tokens     [CLS] who ran [SEP] a man [SEP] [CLS] who ran [SEP] a cat [SEP]
    types          0 0   0   0     1 1   1         0 0   0   0     1 1   1     the passage
    segments       1 1   1   1     1 1   1         2 2   2   2     2 2   2     which passage of the row
    positions      0 1   2   3     4 5   6         0 1   2   3     4 5   6     restart at each
    rows       17                              its number, int32 [B*n]; -1 for a place without a query
    present    1 1 0                           which of its passages are there, int32 [B*n,c]
    labels     1 0 0                           their grades, float32 [B*n,c]
    weights    1                               0 for a place without a query
    bce        1                               or softmax, listnet, lambda: the loss of --task.kind
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import tfm
from train import UserError
from train.data import text_rows
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import LossFields
from train.data.processors import TOKENIZER
from train.data.sources import files, sources
from train.data.tokens import PLAIN, Segmentation, contents_of, encode, segmentation_hash, segmentations
from train.files import cache
from train.metrics.ranking import lists_of, ranking_metrics
from train.metrics.scores import classification_metrics
from train.screens.console import Log
from train.settings.gate import user_errors
from train.settings.schema import Run
from train.tasks.choice.rows import Choices
from train.tasks.rank import source
from train.tasks.rank.loss import loss
from train.tasks.rank.options import Rank
from train.tasks.rank.predict import PREDICTOR
from train.tasks.record import Facts, HfSource, Outcomes, Saved, Task
from train.text import cross_encoders, tokenize


def specs(run: Run[Rank]) -> tfm.Classifier:
    """The parameters of the run's model: a classifier with one output."""
    return tfm.classifier_specs(run.model)


def batch_spec(run: Run[Rank]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    count = run.task.candidates(run.data.field)
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True, rows=count),
        "types": Field("BT", np.int32, rows=count),
        **text_rows.fields(count),
        "present": Field("Bn", np.int32, {"n": count}),
        "labels": Field("Bn", np.float32, {"n": count}),
        "weights": Field("B", np.float32, weighs=True),
        run.task.kind: Field("B", np.float32),
    }


def metrics(sums: Outcomes) -> dict[str, float]:
    """Means from sums; with the scores of all rows also how good their orders are, or correlations of pairs."""
    weight = max(sums["weight"], 1)
    names = {"loss": "loss", "right": "accuracy", "padding": "padding"}
    means = {name: sums[total] / weight for total, name in names.items()}
    if "scores" not in sums:
        return means
    scores, grades, present = _ranked(sums)
    if scores.shape[1] < 2:
        del means["accuracy"]
    return means | _of_order(scores, grades, present)


def _of_order(scores: np.ndarray, grades: np.ndarray, present: np.ndarray) -> dict[str, float]:
    """How good the orders of lists [N,C] are, or the correlations of pairs [N,1]."""
    if scores.shape[1] < 2:
        return classification_metrics(scores, grades[:, 0])
    return ranking_metrics(scores, grades, present)


def _ranked(outcomes: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, grades and which passages are there, of the rows with a weight."""
    counts = outcomes["weights"] > 0
    return outcomes["scores"][counts], outcomes["labels"][counts], outcomes["present"][counts] > 0


def corpus_metrics(outputs: Outcomes, corpus: Corpus[Choices], during_training: bool) -> dict[str, float]:
    """Of pairs, how good the order of those is that have the same query, where any have."""
    scores, grades, _ = _ranked(outputs)
    queries = contents_of([corpus.valid.text.contexts], corpus.run.batch.length)[:, 0]
    if scores.shape[1] > 1 or len(scores) != len(queries) or len(np.unique(queries)) == len(queries):
        return {}
    return ranking_metrics(*lists_of(queries, scores[:, 0], grades[:, 0]))


def measured(corpus: Corpus[Choices]) -> set[str]:
    """The names of the metrics of lists, or of pairs."""
    return {"loss", "pearson", "spearman"} if corpus.valid.count < 2 else {"loss", "accuracy", "ndcg_10", "mrr_10"}


def load(run: Run[Rank], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[Choices]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training rows if --eval-data names other rows for validation.
    """
    columns = source.columns_of(run)
    parts = sources.load(run.data, columns, partial(source.builtin, columns), log.info, valid_only)
    train, valid = (source.usable(part, columns) for part in parts)
    if blank := sum(map(len, parts)) - len(train) - len(valid):
        log.info(f"{blank:,} rows with a blank query or first passage are left out")
    if not valid:
        raise UserError(f"every row of {run.data.eval or run.data.source} has a blank text; correct the columns")
    if saved:
        tokenizer = saved.processor
    else:
        tokenizer = tokenize.load(run.tokenizer, [text for row in train for text in columns.texts_of(row)], log)

    def rows(examples: Sequence[files.Row], name: str, segmentation: Segmentation = PLAIN) -> Choices:
        texts = [
            encode(tokenizer, [row[column] for row in examples], log, name, segmentation) for column in columns.texts
        ]
        text, grades = source.read_candidates(examples, texts, columns, run)
        lists = Choices(text, grades, grades.shape[1], run.batch.length, tokenizer)
        lists.loss = LossFields(kind=run.task.kind)
        return lists

    train_rows = [rows(train, "training text", segmentation) for segmentation in segmentations(run)] if train else []
    names = (*columns.texts, *columns.labels)
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*([str(row[name]) for row in part for name in names] for part in (train, valid))),
        "segmentation_hash": segmentation_hash(
            run, (text for part in train_rows for text in (part.text.contexts, part.text.choices))
        ),
        "cut": train_rows[0].cut if train_rows else 0.0,
    }
    sizes = {"vocab": tokenizer.get_vocab_size(), "classes": 1}
    return Corpus(run, tokenizer, train_rows, rows(valid, "validation text"), sizes, facts)


def baselines(corpus: Corpus[Choices]) -> dict[str, float]:
    """What the share of a query's tokens that a passage has reaches, with `overlap_` before the names of metrics; `n`:
    the number of rows."""
    rows, text = corpus.valid, corpus.valid.text
    scores = np.zeros(rows.labels.shape)
    present = rows.sizes > 0
    for row, column in np.argwhere(present):
        query = set(text.contexts[row].tolist())
        passage = set(text.choices[text.firsts[row] + column].tolist())
        scores[row, column] = len(query & passage) / max(len(query), 1)
    values = _of_order(scores, rows.labels, present)
    return {f"overlap_{name}": value for name, value in values.items()} | {"n": len(rows)}


def report(
    params: tfm.Classifier,
    run: Run[Rank],
    corpus: Corpus[Choices],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Prints ten validation queries, each with its best passage by the model, its score and its grade."""
    scores, grades, _ = _ranked(outcomes)
    text, decode = corpus.valid.text, corpus.processor.decode
    for row in range(0, len(scores), max(1, len(scores) // 10))[:10]:
        best = int(scores[row].argmax())
        words = decode(text.contexts[row].tolist()), decode(text.choices[text.firsts[row] + best].tolist())
        log.info(f"{' | '.join(words)} {scores[row, best]:.4f}, its grade is {grades[row, best]:g}")


def hf_run_values(head: str, folder: HfSource) -> dict[str, object]:
    """Options of a run that could have trained a folder of a cross-encoder."""
    with user_errors():
        activation = cross_encoders.activation(folder.root, folder.fields)
        length = cross_encoders.length(folder.root, folder.path, folder.hf_model)
    values: dict[str, object] = {"data.field": "query,passage", "task.activation": activation}
    return values if length is None else values | {"batch.length": length}


def hf_fields(run: Run[Rank], tokenizer: object, facts: Facts) -> dict[str, object]:
    """Fields of config.json that depend on the task: one score, and what sentence-transformers makes of it."""
    labels: dict[str, object] = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return labels | cross_encoders.fields(run.task.activation)


def hf_tokenizer_fields(run: Run[Rank], tokenizer: object) -> dict[str, object]:
    """The tokens that are read of a pair."""
    return {"model_max_length": run.batch.length}


RANK = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min} | dict.fromkeys(("accuracy", "ndcg_10", "mrr_10", "pearson", "spearman"), max),
    measured=measured,
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        "predict --run={folder} --text='A QUERY' --pair='A PASSAGE'",
        "retrieve --run=VECTORS --rerank={folder}",
        "export --run={folder} --to=FOLDER",
    ),
    corpus_metrics=corpus_metrics,
    predictor=PREDICTOR,
    hf_heads=("classify",),
    hf_run_values=hf_run_values,
    hf_fields=hf_fields,
    hf_tokenizer_fields=hf_tokenizer_fields,
)

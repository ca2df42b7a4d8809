"""Vectors of tokens: a passage is scored by the token of it that is nearest to each token of a query (Khattab &
Zaharia 2020, ColBERT).

A query with a passage that answers it and one that does not, in 8 places each:

    tokens      [CLS] who ran [SEP] [MASK] [MASK] [PAD] ...     [B,n,T]; the first text is the query, of 6 tokens here
                [CLS] a man ran . [SEP] [PAD] ...               the second is the right one
                [CLS] a man sat . [SEP] [PAD] ...               others are wrong, as are those of other rows
    valid           1   1   1     1      0      0     0         [B,n,T], 0 is not read; [MASK] reads and is not read
    scored          1   1   1     1      1      1     0         [B,n,T], whose vectors score; punctuation of passages
                    1 1   1   1 0     1     0                   does not
    weights         1                                           0 for an empty row
    temperature     1                                           of the softmax over scores
    contents        7 3 9                                       [B,n], equal numbers for equal texts
    withheld        0                                           1 for a built-in row whose words never meet in training
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

import tfm
from tfm.ops import Linear
from tfm.params import shardings
from train import UserError
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.contrast.scores import check_scores
from train.tasks.contrast.sides import SideSource, read_sides
from train.tasks.contrast.source import Sides
from train.tasks.late.folder import hf_run_values, projection, save_hf
from train.tasks.late.loss import loss
from train.tasks.late.options import Late
from train.tasks.late.predict import PREDICTOR
from train.tasks.late.rows import LateRows
from train.tasks.record import HfSource, Outcomes, Saved, Task
from train.text.sentence_transformers import Modules


def specs(run: Run[Late]) -> tfm.Classifier:
    """The parameters of the run's model: an encoder, a projection [D,C], and a pooler, which nothing trains."""
    classifier = tfm.classifier_specs(run.model)
    unread = jax.tree.map(lambda spec: replace(spec, trained=False), (classifier.pooler, classifier.norm))
    return replace(
        classifier, pooler=unread[0], norm=unread[1], output=replace(classifier.output, bias=None), distilled=None
    )


def batch_spec(run: Run[Late]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    count = {"n": len(run.data.field.split(","))}
    return {
        "tokens": Field("BnT", np.int32, count, counts_tokens=True),
        "valid": Field("BnT", np.int32, count),
        "scored": Field("BnT", np.int32, count),
        "weights": Field("B", np.float32, weighs=True),
        "withheld": Field("B", np.float32),
        "contents": Field("Bn", np.int32, count),
        "temperature": Field("B", np.float32),
    }


def metrics(sums: Outcomes) -> dict[str, float]:
    """Means from sums; of built-in questions also the accuracy of withheld ones: how often the right passage is the
    nearest of a batch."""
    weight = max(sums["weight"], 1)
    names = {"loss": "loss", "right": "accuracy", "padding": "padding"}
    means = {name: sums[total] / weight for total, name in names.items()}
    if "nearest" in sums and (rows := (sums["weights"] > 0) & (sums["withheld"] > 0)).any():
        means["accuracy_withheld"] = float(sums["nearest"][rows].mean())
    return means


def measured(corpus: Corpus[LateRows]) -> set[str]:
    """The names of the metrics that every run has."""
    return {"loss", "accuracy"}


def load(run: Run[Late], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[LateRows]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training rows if --eval-data names other rows for validation. Raises UserError for a
    tokenizer without [MASK] where queries are filled up.
    """
    reader = Sides.of(run.data, False, check_scores("pairs", len(run.data.field.split(",")) - 1))
    prompts = run.task.query_prompt, run.task.passage_prompt
    read = read_sides(run, SideSource(reader, prompts, valid_only), partial(LateRows, run=run), log, saved)
    if run.task.query_length and read.valid.specials.mask < 0:
        raise UserError("the tokenizer has no [MASK], which fills queries up; add --task.query-length=0")
    sizes = {"vocab": read.tokenizer.get_vocab_size(), "classes": run.task.size}
    return Corpus(run, read.tokenizer, read.train, read.valid, sizes, read.facts)


def baselines(corpus: Corpus[LateRows]) -> dict[str, float]:
    """`chance`: accuracy of guessing among the passages of a full batch; `n`: the number of rows."""
    return {"chance": 1 / (corpus.run.batch.size * (len(corpus.valid.texts) - 1)), "n": len(corpus.valid)}


def report(
    params: tfm.Classifier,
    run: Run[Late],
    corpus: Corpus[LateRows],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Prints nothing beside the result."""


def modules(run: Run[Late]) -> Modules:
    """What stands before queries and passages."""
    prompts = {"query": run.task.query_prompt, "document": run.task.passage_prompt}
    return Modules(prompts=prompts if any(prompts.values()) else {})


def final_model(run: Run[Late], params: tfm.Classifier) -> tfm.Classifier:
    """The encoder: no folder of transformers has a projection of tokens."""
    return replace(params, output=None)


def load_hf(folder: HfSource, params: tfm.Classifier, mesh: Mesh) -> tfm.Classifier:
    """The parameters of a folder of sentence-transformers, with its projection."""
    kernel = shardings(specs(folder.config), mesh).output.kernel
    return replace(params, output=Linear(jax.device_put(projection(folder), kernel), None))


def hf_template(run: Run[Late], tokenizer: object) -> tuple[str, ...]:
    """How the exported tokenizer marks a text."""
    return ("{cls} $A {sep}",)


def hf_tokenizer_fields(run: Run[Late], tokenizer: object) -> dict[str, object]:
    """The tokens that are read of a text."""
    return {"model_max_length": run.batch.length}


LATE = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "accuracy": max, "accuracy_withheld": max},
    measured=measured,
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        "retrieve --run={folder}",
        "predict --run={folder} --text='A QUERY' --pair='A PASSAGE'",
        "embed --run={folder} --file=YOUR.txt --index=FOLDER",
        "export --run={folder} --to=FOLDER",
    ),
    predictor=PREDICTOR,
    modules=modules,
    hf_tokens={"mask_token": "mask"},
    final_model=final_model,
    hf_run_values=hf_run_values,
    hf_template=hf_template,
    hf_tokenizer_fields=hf_tokenizer_fields,
    save_hf=save_hf,
    load_hf=load_hf,
)

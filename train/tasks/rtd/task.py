"""Replaced-token detection: a generator fills masks, and the model says which tokens it replaced (ELECTRA: Clark et al.
2020, section 2).

A row of 8 places, of which the masker chose two:

    tokens     [CLS] the [MASK] sat here [SEP] [PAD] [PAD]     what the generator reads
    segments       1   1      1   1    1     1     0     0     piece of text; 0 is padding; attention stays in a piece
    positions      0   1      2   3    4     5     0     0     restart at every piece
    where          2   4                                       predicted places; a place may stand twice
    targets      cat here                                      the tokens that stood there
    weights        1   1                                       0 for an unused place of `where`
    slots         -1  -1      0  -1    1    -1    -1    -1     which place of `where` it is; -1: none
    seeds        829                                           of the generator's samples, int32 [B]
    scale         50                                           of the discriminator's loss, [B]

    drawn        dog here                                      the generator's samples
    read       [CLS] the    dog sat here [SEP] [PAD] [PAD]     what the discriminator reads
    labels         0   0      1   0    0     0    -1    -1     1 where it differs from the text; -1 is padding
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tokenizers import Tokenizer

import tfm
from tfm.hf import FAMILIES
from tfm.ops import split
from tfm.params import PyTree
from train.data import documents, packing
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.tokens import DocumentTokens
from train.losses.loss import RatioLoss, source_sums
from train.metrics import scores
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.record import Facts, HfSource, Outcomes, Saved, Task
from train.tasks.rtd.masking import ReplacementMasker
from train.tasks.rtd.options import Rtd
from train.tasks.rtd.predict import PREDICTOR
from train.tasks.rtd.rows import HiddenRows

# Validation rows that the report shows, and the tokens of each.
_SHOWN, _SHOWN_TOKENS = 3, 24


def specs(run: Run[Rtd]) -> tfm.ReplacedDetector:
    """The parameters of the run's model: a discriminator, and a generator that training alone needs."""
    has_offset = run.task.embeddings == "offset"
    return tfm.replaced_detector_specs(run.model, run.task.generator(run), has_offset)


def batch_spec(run: Run[Rtd]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    predicted = {"M": math.ceil(run.task.rate * run.batch.length)}
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "segments": Field("BT", np.int32),
        "positions": Field("BT", np.int32),
        "slots": Field("BT", np.int32),
        "where": Field("BM", np.int32, predicted),
        "targets": Field("BM", np.int32, predicted, predicts="V"),
        "weights": Field("BM", np.float32, predicted, weighs=True),
        "seeds": Field("B", np.int32),
        "scale": Field("B", np.float32),
    }


def outputs(
    params: tfm.ReplacedDetector, model: tfm.Config, batch: Mapping[str, Array], key: Array | None
) -> tuple[tfm.Replacement, Array]:
    """What the generator replaces in a batch, and the discriminator's logits [B,T] that a token was replaced."""
    keys, mask = split(key, 2), packing.row_mask(model, batch["segments"])
    places = _places(batch)
    replacement = tfm.replace_tokens(params, model, batch["tokens"], places, mask, batch["positions"], keys[0])
    discriminator = tfm.discriminator_of(params)
    logits = tfm.replaced_logits(discriminator, model, replacement.tokens, mask, batch["positions"], keys[1])
    return replacement, logits


def _places(batch: Mapping[str, Array]) -> tfm.PredictedPlaces:
    """The places that the generator predicts."""
    return tfm.PredictedPlaces(batch["where"], batch["targets"], batch["slots"], batch["seeds"])


def compute(
    params: tfm.ReplacedDetector, model: tfm.Config, batch: Mapping[str, Array], key: Array | None
) -> dict[str, Array]:
    """Sums over a batch, float32; and arrays [B,T]: the logits `scores`, and `labels`, 1 for a replaced token, 0 for a
    token as it was, -1 for padding.

    `loss` is the mean loss of a predicted token plus `scale` times that of a token read, times `weight`; of a part of a
    batch, its share of that.
    """
    replacement, logits = outputs(params, model, batch, key)
    generator, small = tfm.generator_of(params), tfm.generator_config(model, params.generator.shape)
    of_generator, losses, hits = tfm.vocabulary_loss(
        small, generator.output, replacement.features, batch["targets"], batch["weights"], bias=generator.head.bias
    )
    is_token = (batch["segments"] > 0).astype(jnp.float32)
    replaced, weight, scale = replacement.is_replaced.astype(jnp.float32), batch["weights"].sum(), batch["scale"].mean()
    losses_read = (jnp.logaddexp(0, logits) - replaced * logits) * is_token
    of_tokens = losses_read.sum()
    ratio = batch["total_predicted"] / jnp.maximum(batch["total_tokens"], 1)
    return {
        "loss": of_generator + scale * ratio * of_tokens,
        "weight": weight,
        "scale": scale * weight,
        "loss_generator": of_generator,
        "loss_discriminator": of_tokens,
        "right_generator": (hits.astype(jnp.float32) * batch["weights"]).sum(),
        "right": (((logits > 0) == replacement.is_replaced).astype(jnp.float32) * is_token).sum(),
        "read": is_token.sum(),
        "replaced": (replaced * is_token).sum(),
        "padding": (1 - is_token).mean() * weight,
        "scores": logits,
        "labels": jnp.where(is_token > 0, replaced, -1),
        **source_sums(batch, batch["weights"], losses * batch["weights"], scale * ratio * losses_read),
    }


def totals(batch: Mapping[str, Array]) -> dict[str, Array]:
    """The predicted tokens and the tokens of a batch, of which the loss is a ratio."""
    tokens = (batch["segments"] > 0).astype(jnp.float32).sum()
    return {"total_predicted": batch["weights"].sum(), "total_tokens": tokens}


loss = RatioLoss(compute, totals)


def metrics(sums: Outcomes) -> dict[str, float]:
    """Means from sums: losses in nats, accuracies of the discriminator and the generator, `majority`, the accuracy of
    calling no token replaced. With the scores of all rows also `auc`, how probably a replaced token has a higher one
    than a token as it was."""
    weight, read = max(sums["weight"], 1), max(sums["read"], 1)
    loss_generator, loss_discriminator = sums["loss_generator"] / weight, sums["loss_discriminator"] / read
    means = {
        "loss": loss_generator + sums["scale"] / weight * loss_discriminator,
        "loss_generator": loss_generator,
        "loss_discriminator": loss_discriminator,
        "accuracy_generator": sums["right_generator"] / weight,
        "accuracy": sums["right"] / read,
        "majority": 1 - sums["replaced"] / read,
        "padding": sums["padding"] / weight,
    }
    if "scores" not in sums:
        return means
    is_read = sums["labels"] >= 0
    return means | {"auc": scores.auc(sums["scores"][is_read], sums["labels"][is_read] > 0)}


def load(run: Run[Rtd], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[HiddenRows]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training text if --eval-data names another text for validation.
    """
    train, valid = documents.load(run.data, log.info, valid_only)
    tokenizer = saved.processor if saved else documents.tokenizer_of(run, train, log)
    masker = ReplacementMasker.of(run.task, tokenizer)

    def rows(text: DocumentTokens) -> HiddenRows:
        return HiddenRows(text, run.batch.length, run.packs_rows, masker, run.task.weight)

    train_rows = [rows(tokens) for tokens in documents.train_tokens(run, tokenizer, train, log)]
    valid_rows = rows(documents.valid_tokens(tokenizer, valid, log))
    facts = documents.facts(run, tokenizer, (train, valid), train_rows, saved.facts if saved else None)
    facts |= documents.rows_by_source(tokenizer, valid, rows)
    return Corpus(run, tokenizer, train_rows, valid_rows, {"vocab": tokenizer.get_vocab_size(), "classes": 1}, facts)


def baselines(corpus: Corpus[HiddenRows]) -> dict[str, float]:
    """`majority_generator`: accuracy of always filling in the most frequent validation target; `n`: the tokens that
    the generator predicts."""
    counts = np.zeros(corpus.processor.get_vocab_size())
    for batch in corpus.valid_batches():
        np.add.at(counts, batch["targets"].ravel(), batch["weights"].ravel())
    return {"majority_generator": float(counts.max() / max(counts.sum(), 1)), "n": int(counts.sum())}


def report(
    params: tfm.ReplacedDetector | tfm.Tagger,
    run: Run[Rtd],
    corpus: Corpus[HiddenRows],
    log: Log,
    outcomes: Outcomes,
    folder: Path,
) -> None:
    """Prints validation texts with the tokens that replace others in brackets behind them, and how probable that is to
    the discriminator; then the most doubted token of those that stayed."""
    assert isinstance(params, tfm.ReplacedDetector), "training has a generator"
    rows = np.arange(len(corpus.valid))[:: max(1, len(corpus.valid) // _SHOWN)][:_SHOWN]
    batch = corpus.valid.batch(rows, np.random.default_rng(run.seed))
    for fields in zip(*map(np.asarray, (batch["segments"], *_read(params, run.model, batch))), strict=True):
        segments, true, drawn, is_replaced, logits = (field[:_SHOWN_TOKENS] for field in fields)
        true_words, words = ([corpus.processor.id_to_token(int(token)) for token in ids] for ids in (true, drawn))
        probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
        places = np.flatnonzero(segments > 0)
        shown = (f"{true_words[n]} [{words[n]}]" if is_replaced[n] else true_words[n] for n in places)
        log.info("\n" + " ".join(shown))
        for place in np.flatnonzero(is_replaced):
            log.info(f"{words[place]:>16} : replaced with probability {probabilities[place]:.2f}")
        doubted = int(np.where((segments > 0) & ~is_replaced, probabilities, -1).argmax())
        log.info(f"{words[doubted]:>16} : {probabilities[doubted]:.2f}, the highest of those that stayed")


@partial(jax.jit, static_argnums=1)
def _read(params: tfm.ReplacedDetector, model: tfm.Config, batch: Mapping[str, Array]) -> tuple[Array, ...]:
    """[B,T] each: the tokens of the text, those that the discriminator reads, which are replaced, and its logits."""
    replacement, logits = outputs(params, model, batch, None)
    true = _places(batch).filled(batch["targets"], batch["tokens"])
    return true, replacement.tokens, replacement.is_replaced, logits


def final_model(run: Run[Rtd], params: PyTree) -> PyTree:
    """The discriminator. After training with an offset of embeddings the encoder alone: transformers has no DeBERTa
    with this head."""
    if not isinstance(params, tfm.ReplacedDetector):
        return params
    discriminator = tfm.discriminator_of(params)
    if run.task.embeddings == "shared":
        return discriminator
    return tfm.Classifier(encoder=discriminator.encoder, pooler=None, output=None)


def hf_fields(run: Run[Rtd], tokenizer: Tokenizer, facts: Facts) -> dict[str, object]:
    """Fields of config.json that depend on the task: without the head, the architecture is that of a bare model."""
    if run.task.embeddings == "shared":
        return {}
    heads = [item for family in FAMILIES.values() for item in family.heads.items()]
    return {"architectures": [name for name, head in heads if head.kind == "model"]}


def hf_run_values(head: str, folder: HfSource) -> dict[str, object]:
    """Options of a run that could have trained a Hugging Face model."""
    return {"batch.length": 128}


RTD = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "auc": max, "accuracy": max, "accuracy_generator": max},
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        "predict --run={folder} --text=TEXT",
        "main --task=classify --init={folder} --data=YOUR.tsv",
        "export --run={folder} --to=FOLDER",
    ),
    predictor=PREDICTOR,
    final_model=final_model,
    hf_heads=("detect",),
    hf_tokens={"mask_token": "mask"},
    hf_run_values=hf_run_values,
    hf_fields=hf_fields,
)

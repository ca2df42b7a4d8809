"""Masked diffusion: any number of the tokens of a row is masked, and the model predicts all of them at once (Sahoo et
al. 2024; Nie et al. 2025, section 2).

A row of 8 places, two of whose 6 tokens are masked (| ends a document):

    tokens     the [MASK] sat | a [MASK] [PAD] [PAD]     what the model reads; no field says how many are masked
    valid        1      1   1 1 1      1     0     0     0 is padding
    targets    the    cat sat | a    dog [PAD] [PAD]     the text
    weights      0      3   0 0 0      3     0     0     6 / 2 where a token is masked
    bytes       18                                       UTF-8 bytes of the text of the row, [B]

The weighted sum of losses is an upper bound of -log p of the row, in nats, for a model that uncovers tokens in any
order; its expectation over masks is the mean over all orders of the sum of -log p of each token after those before it.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train import UserError
from train.data import documents
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.tokens import DocumentTokens
from train.losses.loss import source_sums
from train.losses.teaching import OutputLoss, TokenOutputs
from train.metrics import scores
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.diffuse.options import Diffuse
from train.tasks.diffuse.rows import DiffusionRows
from train.tasks.record import Outcomes, Saved, Task
from train.text import tokenize
from train.text.special import document_marks


def specs(run: Run[Diffuse]) -> tfm.MaskedLM:
    """The parameters of the run's model."""
    return tfm.masked_lm_specs(run.model)


def batch_spec(run: Run[Diffuse]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "valid": Field("BT", np.int32),
        "targets": Field("BT", np.int32, predicts="V"),
        "weights": Field("BT", np.float32, weighs=True),
        "bytes": Field("B", np.float32),
    }


def outputs(params: tfm.MaskedLM, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> TokenOutputs:
    """What the model says of all tokens of a batch."""
    valid = batch["valid"] > 0
    hidden = tfm.encoder(params.encoder, model, batch["tokens"], tfm.padding(valid), key=key)
    features = tfm.mlm_features(params.head, model, hidden)
    return TokenOutputs(hidden, valid, features, model, params.output, params.head.bias)


def sums(
    params: tfm.MaskedLM, model: tfm.Config, batch: Mapping[str, Array], outputs: TokenOutputs
) -> dict[str, Array]:
    """Sums over the rows of a batch, float32: `loss`, the bound in nats, `weight`, their tokens, and the parts of the
    other metrics."""
    total, losses, hits = tfm.vocabulary_loss(
        model, outputs.table, outputs.features, batch["targets"], batch["weights"], bias=outputs.bias
    )
    is_masked = (batch["weights"] > 0).astype(jnp.float32)
    valid = (batch["valid"] > 0).astype(jnp.float32)
    return {
        "loss": total,
        "weight": valid.sum(),
        "masked": is_masked.sum(),
        "right": (hits.astype(jnp.float32) * is_masked).sum(),
        "bytes": batch["bytes"].sum(),
        "padding": (1 - valid).mean() * valid.sum(),
        **source_sums(batch, valid, losses * batch["weights"]),
    }


loss = OutputLoss(outputs, sums)


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: the bound in nats a token and in bits a byte, accuracy on masked tokens, their share."""
    weight = max(sums["weight"], 1)
    return {
        "loss": sums["loss"] / weight,
        "bits_per_byte": sums["loss"] / math.log(2) / max(sums["bytes"], 1),
        "perplexity_bound": scores.perplexity(sums["loss"] / weight),
        "accuracy": sums["right"] / max(sums["masked"], 1),
        "masked": sums["masked"] / weight,
        "padding": sums["padding"] / weight,
    }


def load(run: Run[Diffuse], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[DiffusionRows]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training text if --eval-data names another text for validation. Raises UserError for a
    tokenizer without a mask token.
    """
    train, valid = documents.load(run.data, log.info, valid_only)
    tokenizer = saved.processor if saved else documents.tokenizer_of(run, train, log)
    specials, marks = tokenize.special_tokens(tokenizer), document_marks(tokenizer)
    if specials.mask < 0:
        raise UserError("the tokenizer has no [MASK] or <mask> token; start from a masked language model")

    def rows(text: DocumentTokens, texts: Sequence[str], draws: int, jitter: bool) -> DiffusionRows:
        num_bytes = documents.num_bytes(texts, text)
        return DiffusionRows(text, run.batch.length, run.task.times, specials, num_bytes, draws, jitter)

    train_tokens = documents.train_tokens(run, tokenizer, train, log, marks)
    train_rows = [rows(text, train, 1, True) for text in train_tokens]
    valid_rows = rows(documents.valid_tokens(tokenizer, valid, log, marks), valid, run.task.draws, False)
    facts = documents.facts(run, tokenizer, (train, valid), train_rows, saved.facts if saved else None)
    facts |= documents.rows_by_source(tokenizer, valid, lambda text: rows(text, valid, 1, False), marks)
    facts |= documents.text_kept(tokenizer, valid, log)
    return Corpus(run, tokenizer, train_rows, valid_rows, {"vocab": tokenizer.get_vocab_size()}, facts)


def baselines(corpus: Corpus[DiffusionRows]) -> dict[str, float]:
    """What frequencies of the validation text alone say: `unigram_loss` in nats a token, `unigram_bits_per_byte`, and
    `majority`, the accuracy of its most frequent token; `n`: its tokens."""
    counts, num_bytes = np.zeros(corpus.processor.get_vocab_size()), 0.0
    for batch in corpus.valid_batches():
        counts += np.bincount(batch["targets"][batch["valid"] > 0], minlength=len(counts))
        num_bytes += batch["bytes"].sum()
    shares = counts[counts > 0] / max(counts.sum(), 1)
    entropy = -float((shares * np.log(shares)).sum())
    return {
        "unigram_loss": entropy,
        "unigram_bits_per_byte": entropy * counts.sum() / math.log(2) / max(num_bytes, 1),
        "majority": float(counts.max() / max(counts.sum(), 1)),
        "n": int(counts.sum()),
    } | documents.kept_of(corpus.facts())


def report(
    params: tfm.MaskedLM, run: Run[Diffuse], corpus: Corpus[DiffusionRows], log: Log, outcomes: Outcomes, folder: Path
):
    """Prints a text that the model makes of nothing, and what it writes into a gap of a validation text."""
    rows, tokenizer = corpus.valid, corpus.processor
    text = rows.batch(np.zeros(1, np.int64), np.random.default_rng(run.seed))
    gap = np.zeros(text["targets"].shape, bool)
    gap[:, rows.length // 3 : 2 * rows.length // 3] = True
    gap &= text["valid"] > 0
    for masked in (text["valid"] > 0, gap):
        tokens = np.where(masked, rows.specials.mask, text["targets"]).astype(np.int32)
        written = tfm.unmask(
            params,
            tokenize.writing_model(run.model, tokenizer),
            tfm.Canvas(tokens, masked, text["valid"] > 0),
            tfm.Unmasking(steps=int(masked.sum()), order="random", temperature=0.8, seed=run.seed),
            tuple(rows.specials),
        )
        parts = np.split(written[0], np.flatnonzero(np.diff(masked[0].astype(int))) + 1)
        words = [tokenizer.decode([int(token) for token in part]) for part in parts]
        log.info("\n" + (words[0] if masked.all() else " | ".join(words)))


DIFFUSE = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "bits_per_byte": min, "accuracy": max},
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        'generate --run={folder} --prompt="the [MASK*8] end"',
        "evaluate --run={folder} --data=YOUR.txt",
        "main --task=diffuse --init={folder} --data=YOUR.txt",
    ),
    generates="unmasking",
    hf_heads=("mlm",),
    hf_tokens={"mask_token": "mask"},
)

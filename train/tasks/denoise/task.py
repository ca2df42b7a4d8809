"""Denoising: an encoder reads a text without some spans, and a decoder writes these (Raffel et al. 2020, 3.1.4).

A row of 8 places of the encoder and 6 of the decoder (<0> is a sentinel, | ends a text, > begins a target):

    tokens     the cat <0> on the mat <1> |     what the encoder reads
    valid       1   1   1  1   1   1   1  1     0 is padding
    target      >  <0> sat <1> now .            what the decoder reads
    targets    <0> sat <1> now  .   |           the token that comes next
    weights     1   1   1   1   1   1           0 where there is none
    words       0   1   0   1   1   0           weights of tokens of the text

Pieces of the text are joined documents, without a mark between them. In a row of a prefix language model the decoder
goes on where the encoder's text ends, without sentinels. With infilling the targets are the whole text.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import Array
from tokenizers import Tokenizer

import tfm
from tfm.ops import split
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
from train.tasks.denoise import noise
from train.tasks.denoise.infilling import Infilling, InfillingRows
from train.tasks.denoise.options import Denoise
from train.tasks.denoise.rows import DenoisingRows, PieceRows, sizes_of
from train.tasks.record import Saved, Task
from train.text import sentinels, tokenize

# Validation rows that the report shows.
_SHOWN = 3

# Tokens that end a sentence, as tokenizers of several kinds write them.
_STOPS = (".", "Ġ.", "▁.", "##.")


def specs(run: Run[Denoise]) -> tfm.Seq2Seq:
    """The parameters of the run's model."""
    return tfm.seq2seq_specs(run.model)


def target_length(run: Run[Denoise]) -> int:
    """Places of the decoder: as many as any denoiser fills, or a whole text. A tokenizer that marks texts itself may
    put two marks."""
    if run.task.noise == "infilling":
        return run.batch.length
    specials = 2 if run.task.start else 1
    sizes = [noise.row_sizes(denoiser, run.batch.length, 1) for denoiser in run.task.denoisers]
    return max(size.targets for size in sizes) - 1 + specials


def batch_spec(run: Run[Denoise]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    places = {"T": target_length(run)}
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "valid": Field("BT", np.int32),
        "target": Field("BT", np.int32, places, counts_tokens=True),
        "targets": Field("BT", np.int32, places, predicts="V"),
        "weights": Field("BT", np.float32, places, weighs=True, order=("target", 1)),
        "words": Field("BT", np.float32, places),
    }


def outputs(params: tfm.Seq2Seq, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> TokenOutputs:
    """What the model says of the next target tokens of a batch."""
    encoder_key, decoder_key = split(key, 2)
    lm = tfm.encode_source(params, model, batch["tokens"], batch["valid"] > 0, encoder_key)
    hidden = tfm.decoder(lm.decoder, model, batch["target"], None, None, decoder_key, lm.memory)
    return TokenOutputs(hidden, batch["weights"] > 0, tfm.lm_features(model, hidden), model, lm.output, lm.bias)


def sums(params: tfm.Seq2Seq, model: tfm.Config, batch: Mapping[str, Array], outputs: TokenOutputs) -> dict[str, Array]:
    """Sums over the targets of a batch, float32: `loss` in nats, `weight`, and the parts of the other metrics."""
    weights, words = batch["weights"], batch["words"]
    total, losses, hits = tfm.vocabulary_loss(
        model, outputs.table, outputs.features, batch["targets"], weights, bias=outputs.bias
    )
    return {
        "loss": total,
        "weight": weights.sum(),
        "words": words.sum(),
        "right": (hits.astype(jnp.float32) * words).sum(),
        "used": weights.sum() + (batch["valid"] > 0).sum().astype(jnp.float32),
        "places": jnp.float32(weights.size + batch["valid"].size),
        **source_sums(batch, weights, losses * weights),
    }


loss = OutputLoss(outputs, sums, valid="weights")


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a target, perplexity, accuracy on targets of the text, share of padding."""
    weight = max(sums["weight"], 1)
    return {
        "loss": sums["loss"] / weight,
        "perplexity": scores.perplexity(sums["loss"] / weight),
        "accuracy": sums["right"] / max(sums["words"], 1),
        "padding": 1 - sums["used"] / max(sums["places"], 1),
    }


def _rows_of(run: Run[Denoise], tokenizer: Tokenizer) -> Callable[[DocumentTokens, bool], PieceRows]:
    """Rows of tokens, with jitter or without. Raises UserError for a tokenizer with too few sentinels, without a mask
    token for infilling, or without a full stop for permuted sentences."""
    template = tokenize.sequence_template(tokenizer, run.task.start)
    denoisers, length = run.task.denoisers, run.batch.length
    if run.task.noise == "infilling":
        infilling = infilling_of(run.task, tokenizer)
        return lambda text, jitter: InfillingRows(text, infilling, template, length, jitter)
    marks = sentinels.ids_of(tokenizer, max(size.spans for size in sizes_of(denoisers, length, template)))
    places = target_length(run)
    return lambda text, jitter: DenoisingRows(text, denoisers, template, marks, length, places, jitter)


def infilling_of(task: Denoise, tokenizer: Tokenizer) -> Infilling:
    """BART's noise by the options of the task."""
    mask = tokenize.special_tokens(tokenizer).mask
    if mask < 0:
        raise UserError("--task.noise=infilling needs a [MASK] or <mask> token, and the tokenizer has none")
    stops = [token for name in _STOPS if (token := tokenizer.token_to_id(name)) is not None] if task.permute else []
    if task.permute and not stops:
        raise UserError("--task.permute=true needs a token that is a full stop, and the tokenizer has none")
    return Infilling(task.rate, task.span, mask, stops)


def load(run: Run[Denoise], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[PieceRows]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training text if --eval-data names another text for validation. Raises UserError for a
    tokenizer that lacks tokens of the noise.
    """
    train, valid = documents.load(run.data, log.info, valid_only)
    tokenizer = saved.processor if saved else documents.tokenizer_of(run, train, log)
    rows = _rows_of(run, tokenizer)
    train_rows = [rows(text, True) for text in documents.train_tokens(run, tokenizer, train, log)]
    valid_rows = rows(documents.valid_tokens(tokenizer, valid, log), False)
    facts = documents.facts(run, tokenizer, (train, valid), train_rows, saved.facts if saved else None)
    facts |= documents.rows_by_source(tokenizer, valid, lambda text: rows(text, False))
    return Corpus(run, tokenizer, train_rows, valid_rows, {"vocab": tokenizer.get_vocab_size()}, facts)


def baselines(corpus: Corpus[PieceRows]) -> dict[str, float]:
    """Guesses that do not read: `majority`, the accuracy of the most frequent token of the text; `unigram_loss`, nats
    of saying how frequent all targets are, sentinels too; `n`: the number of targets."""
    counts, of_text = np.zeros((2, corpus.processor.get_vocab_size()))
    for batch in corpus.valid_batches():
        np.add.at(counts, batch["targets"].ravel(), batch["weights"].ravel())
        np.add.at(of_text, batch["targets"].ravel(), batch["words"].ravel())
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return {
        "majority": float(of_text.max() / max(of_text.sum(), 1)),
        "unigram_loss": -float((shares * np.log(shares)).sum()),
        "n": int(counts.sum()),
    }


def report(
    params: tfm.Seq2Seq, run: Run[Denoise], corpus: Corpus[PieceRows], log: Log, outcomes: Mapping, folder: Path
):
    """Prints some validation rows: what the encoder reads, what the model writes for it, and what stood there."""
    rows = np.arange(len(corpus.valid))[:: max(1, len(corpus.valid) // _SHOWN)][:_SHOWN]
    batch = corpus.valid.batch(rows, np.random.default_rng(run.seed))
    template = corpus.valid.template
    params = tfm.separate_layers(params, run.model)
    lm = tfm.encode_source(params, run.model, jnp.asarray(batch["tokens"]), jnp.asarray(batch["valid"] > 0))
    starts, end = [[template.decoder_start]] * len(rows), template.target[1][-1:]
    model = tokenize.writing_model(run.model, corpus.processor)
    written = tfm.generate(lm, model, starts, corpus.valid.target_length, stop=end).tokens

    def text(tokens: Iterable[int]) -> str:
        return corpus.processor.decode(
            [int(token) for token in tokens if token != template.pad], skip_special_tokens=False
        )

    for read, wrote, stood in zip(batch["tokens"], written, batch["targets"], strict=True):
        log.info(f"\n{text(read)}\n  {text(wrote)}\n  in the text: {text(stood)}")


def hf_fields(run: Run[Denoise], tokenizer: Tokenizer, facts: Mapping) -> dict[str, int]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    special, template = tokenize.special_tokens(tokenizer), tokenize.sequence_template(tokenizer, run.task.start)
    return {
        "bos_token_id": special.cls,
        "eos_token_id": special.sep,
        "decoder_start_token_id": template.decoder_start,
    }


def hf_template(run: Run[Denoise], tokenizer: Tokenizer) -> tuple[str, ...]:
    """How the exported tokenizer marks a text; empty where the tokenizer marks texts itself."""
    return () if run.task.start else ("$A {sep}",)


DENOISE = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "perplexity": min, "accuracy": max},
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        "evaluate --run={folder} --data=YOUR.txt",
        "main --task=translate --init={folder} --data=YOUR.tsv --data.field=SOURCE,TARGET",
        "export --run={folder} --to=FOLDER",
    ),
    hf_heads=("seq2seq",),
    hf_tokens={"eos_token": "last"},
    hf_fields=hf_fields,
    hf_template=hf_template,
)

"""Language modelling in both directions: every token from those before it, and from those after it (ELMo: Peters et al.
2018, section 3.1).

Two short documents in a row of 9 places:

    tokens             [CLS] the cat [SEP] [CLS] it  sat [SEP] [PAD]   what the model reads
    segments             1    1   1    1     2   2    2    2     0     piece of text; 0 is padding; states start anew
    positions            0    1   2    3     0   1    2    3     0     restart at every piece
    targets             the  cat [SEP] -    it  sat [SEP]  -     -     the next token
    weights              1    1   1    0     1   1    1    0     0     0 where there is none
    previous_targets     -  [CLS] the cat    - [CLS] it   sat    -     the token before
    previous_weights     0    1   1    1     0   1    1    1     0     0 where there is none
    samples              3    9                                        in training with --task.sampled, int32 [B,n]:
                                                                       tokens that all targets are compared with
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train.data import documents, packing
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.tokens import DocumentTokens
from train.losses.loss import source_sums
from train.metrics import scores
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.bilm.options import Bilm
from train.tasks.bilm.rows import BothDirections, Samples
from train.tasks.record import Saved, Task
from train.text import tokenize


def specs(run: Run[Bilm]) -> tfm.BidirectionalLM:
    """The parameters of the run's model."""
    return tfm.bidirectional_lm_specs(run.model)


def batch_spec(run: Run[Bilm]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    spec = {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "segments": Field("BT", np.int32),
        "positions": Field("BT", np.int32),
        "targets": Field("BT", np.int32, predicts="V"),
        "weights": Field("BT", np.float32, weighs=True, order=("tokens", 1)),
        "previous_targets": Field("BT", np.int32, predicts="V"),
        "previous_weights": Field("BT", np.float32, weighs=True, order=("tokens", -1)),
    }
    per_row = _samples_per_row(run)
    return spec | ({"samples": Field("Bn", np.int32, {"n": per_row})} if per_row else {})


def _samples_per_row(run: Run[Bilm]) -> int:
    """Sampled tokens of a row, which all rows of a batch share."""
    return -(-run.task.sampled // run.batch.unit) if run.task.sampled else 0


def loss(
    params: tfm.BidirectionalLM, model: tfm.Config, batch: Mapping[str, Array], key: Array | None
) -> dict[str, Array]:
    """Sums over the targets of both directions, float32: `loss` in nats, `weight`, and the parts of the other metrics.

    A batch with `samples` has the loss of `tfm.sampled_loss`, and no accuracy.
    """
    mask = packing.row_mask(model, batch["segments"])
    hidden = tfm.encoder(params.encoder, model, batch["tokens"], mask, batch["positions"], key=key)
    totals, hits, losses = [], [], []
    for states, prefix in zip(tfm.directions(hidden), ("", "previous_"), strict=True):
        targets, weights = batch[f"{prefix}targets"], batch[f"{prefix}weights"]
        if "samples" in batch:
            samples, bias = batch["samples"], params.bias
            totals.append(tfm.sampled_loss(params.output, bias, states, targets, weights, samples, model.vocab))
            continue
        total, of_targets, hit = tfm.vocabulary_loss(model, params.output, states, targets, weights, bias=params.bias)
        totals.append(total)
        losses.append(of_targets * weights)
        hits.append((hit.astype(jnp.float32) * weights).sum())
    weight = batch["weights"].sum() + batch["previous_weights"].sum()
    return {
        "loss": totals[0] + totals[1],
        "loss_backward": totals[1],
        "weight": weight,
        "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * weight,
        **({"right": hits[0] + hits[1]} if hits else {}),
        **(source_sums(batch, batch["weights"] + batch["previous_weights"], *losses) if losses else {}),
    }


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums over both directions: loss in nats a token, that of the backward one, perplexity, accuracy.

    Both directions have as many targets.
    """
    weight = max(sums["weight"], 1)
    accuracy = {"accuracy": sums["right"] / weight} if "right" in sums else {}
    return {
        "loss": sums["loss"] / weight,
        "loss_backward": 2 * sums["loss_backward"] / weight,
        "perplexity": scores.perplexity(sums["loss"] / weight),
        "padding": sums["padding"] / weight,
        **accuracy,
    }


def load(run: Run[Bilm], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[BothDirections]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training text if --eval-data names another text for validation.
    """
    train, valid = documents.load(run.data, log.info, valid_only)
    tokenizer = saved.processor if saved else documents.tokenizer_of(run, train, log)
    specials, vocab, per_row = tokenize.special_tokens(tokenizer), tokenizer.get_vocab_size(), _samples_per_row(run)

    def rows(text: DocumentTokens, samples: Samples | None = None) -> BothDirections:
        return BothDirections(text, run.batch.length, run.packs_rows, specials, samples)

    samples = Samples(per_row, vocab) if per_row else None
    train_rows = [rows(text, samples) for text in documents.train_tokens(run, tokenizer, train, log)]
    facts = documents.facts(run, tokenizer, (train, valid), train_rows, saved.facts if saved else None)
    facts |= documents.rows_by_source(tokenizer, valid, rows)
    valid_rows = rows(documents.valid_tokens(tokenizer, valid, log))
    return Corpus(run, tokenizer, train_rows, valid_rows, {"vocab": vocab}, facts)


def baselines(corpus: Corpus[BothDirections]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent target; `unigram_loss`: nats of always saying how
    frequent tokens are; `n`: the number of targets. All of the validation text."""
    counts = np.zeros(corpus.processor.get_vocab_size())
    for batch in corpus.valid_batches():
        for prefix in ("", "previous_"):
            np.add.at(counts, batch[f"{prefix}targets"].ravel(), batch[f"{prefix}weights"].ravel())
    shares = counts[counts > 0] / max(counts.sum(), 1)
    entropy = -float((shares * np.log(shares)).sum())
    return {"majority": float(shares.max(initial=0)), "unigram_loss": entropy, "n": int(counts.sum())}


def report(
    params: tfm.BidirectionalLM,
    run: Run[Bilm],
    corpus: Corpus[BothDirections],
    log: Log,
    outcomes: Mapping,
    folder: Path,
):
    """Prints three validation texts, and what each direction expects in the middle of them."""
    rows = np.linspace(0, len(corpus.valid) - 1, 3).astype(int)
    batch = corpus.valid.batch(rows, np.random.default_rng(0))
    places = (batch["segments"] == 1).sum(1) // 2
    for row, place in enumerate(places.tolist()):
        tokens = batch["tokens"][row, : 2 * place]
        if place < 2:
            continue
        expected = np.asarray(_expected(params, run.model, tokens[None], place))
        before, after = (corpus.processor.decode(part.tolist()) for part in (tokens[:place], tokens[place + 1 :]))
        log.info(f"\n{before} [{_spelled(corpus, tokens[place])}] {after}")
        for name, logprobs in zip(("from the left", "from the right"), expected, strict=True):
            best = np.argsort(-logprobs)[:4]
            guesses = (f"{_spelled(corpus, token)} {math.exp(logprobs[token]):.2f}" for token in best)
            log.info(f"{name:>16} : {'  '.join(guesses)}")


def _spelled(corpus: Corpus[BothDirections], token: Any) -> str:
    return corpus.processor.decode([int(token)], skip_special_tokens=False).strip() or "\u00b7"


@partial(jax.jit, static_argnums=1)
def _expected(params: tfm.BidirectionalLM, model: tfm.Config, tokens: Array, place: Array) -> Array:
    """tokens [1,T] -> log-probabilities [2,V] of the token at a place, by what is before it and by what is after it."""
    before, after = tfm.directions(tfm.encoder(params.encoder, model, tokens))
    states = jnp.stack([before[:, place - 1], after[:, place + 1]], axis=1)
    return jax.nn.log_softmax(tfm.unembed(model, params.output, states) + params.bias[None, None], axis=-1)[0]


BILM = Task(
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
        "main --task=tag --init={folder} --features=mix --tune=head --data=YOUR.conll",
        "embed --run={folder} --file=YOUR.txt --query='A SENTENCE'",
        "evaluate --run={folder} --data=YOUR.txt",
    ),
)

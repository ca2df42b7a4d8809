"""Masked language modelling: hide 15 % of the tokens and predict them from the rest (Devlin et al. 2018, section 3.1).

A row of 8 places, of which `mask_tokens` chose one, travels as

    tokens     [CLS] the [MASK] sat [SEP] [PAD] [PAD] [PAD]     what the model reads
    segments       1   1      1   1     1     0     0     0     piece of text in this row, 0 is padding: attention stays inside a piece
    positions      0   1      2   3     4     0     0     0     restarted at every piece
    where          2   0                                        predicted positions, as many as the rate asks of a full row
    targets      cat [CLS]                                      the tokens that stood there
    weights        1   0                                        0 for places in `where` that are not used
    words          1   0                                        weights of the targets that are alphabetic pieces
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train import UserError, cache, tokenize
from train.config import Run
from train.data import feed, packing, sources
from train.data.tokens import Tokens, encode

specs = tfm.masked_lm_specs


def loss(params, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> dict[str, Array]:
    """Sums over the predicted tokens of a batch, float32: `loss` in nats, `weight`, and what accuracy is made of."""
    mask = tfm.segments(batch["segments"])
    logits = tfm.masked_lm(params, model, batch["tokens"], batch["where"], mask, batch["positions"], key)
    right = (logits.argmax(-1) == batch["targets"]).astype(jnp.float32)
    return {
        "loss": (tfm.cross_entropy(logits, batch["targets"]) * batch["weights"]).sum(),
        "weight": batch["weights"].sum(),
        "right": (right * batch["weights"]).sum(),
        "words": batch["words"].sum(),
        "right_words": (right * batch["words"]).sum(),
        "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * batch["weights"].sum(),
    }


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a token, perplexity over the predicted tokens, accuracy on all of them and on alphabetic pieces."""
    mean = sums["loss"] / max(sums["weight"], 1)
    return {
        "loss": mean,
        "perplexity": float(np.exp(min(mean, 700.0))),
        "accuracy": sums["right"] / max(sums["weight"], 1),
        "accuracy_words": sums["right_words"] / max(sums["words"], 1),
        "padding": sums["padding"] / max(sums["weight"], 1),
    }


@dataclasses.dataclass(frozen=True)
class Rows:
    """Text laid out in rows."""

    tokens: Tokens
    plan: packing.Plan


class Corpus:
    """Training and validation text, and the batches made of it. `batch(n)` is a pure function of the seed and n."""

    def __init__(self, run: Run, tokenizer, train: list[str], held: list[str], log):
        self.run, self.tokenizer, self.hash = run, tokenizer, cache.digest(train, held)
        self.specials = tokenize.specials(tokenizer)
        self.regular = np.setdiff1d(np.arange(tokenizer.get_vocab_size()), self.specials)
        self.alphabetic = tokenize.alphabetic(tokenizer)
        self.train, self.held = self._rows(train, log, "training text"), self._rows(held, log, "validation text")
        if not len(self.held.tokens.ids):
            raise UserError("the validation text has no tokens; give more text with --data or --eval-data")
        rows, size = self.train.plan.rows, run.batch.size
        if train and rows < size:
            raise UserError(f"--data={run.data.source} fills {rows} rows of {run.batch.length} tokens, too few for --batch.size={size}")

    @cached_property
    def _order(self):
        return feed.order(self.train.plan.rows, self.run.seed)

    def rows(self, n: int) -> np.ndarray:
        """The training rows in batch n."""
        size = self.run.batch.size
        return self._order(np.arange(n * size, (n + 1) * size))

    def batch(self, n: int) -> dict[str, np.ndarray]:
        """Training batch n, freshly masked."""
        return self._mask(self.train, self.rows(n), stream=0, n=n)

    def held_batches(self, most: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """The validation text, always in the same order and with the same masks; `most` batches of it, 0 for all."""
        size, rows = self.run.batch.size, self.held.plan.rows
        for n, start in enumerate(range(0, rows, size)):
            if most and n == most:
                return
            numbers = np.arange(start, start + size)
            batch = self._mask(self.held, numbers % rows, stream=1, n=n)
            for name in ("weights", "words"):  # the last batch is filled up with rows that do not count
                batch[name] = batch[name] * (numbers < rows)[:, None].astype(np.float32)
            yield batch

    def facts(self) -> dict[str, Any]:
        """What run.json records about the data."""
        return {
            "source": self.run.data.source,
            "hash": self.hash,
            "tokenizer": tokenize.fingerprint(self.tokenizer),
            "train_tokens": len(self.train.tokens.ids),
            "eval_tokens": len(self.held.tokens.ids),
            "padding": round(self.train.plan.padding, 4),
        }

    def overview(self) -> dict[str, str]:
        """Lines of the start-up table."""
        facts = self.facts()
        return {
            "text": f"{facts['source']}, hash {self.hash}",
            "tokens": f"{facts['train_tokens']:,} to train on, {facts['eval_tokens']:,} to validate on",
            "vocabulary": f"{self.tokenizer.get_vocab_size():,}",
            "rows": f"{self.train.plan.rows:,} of {self.run.batch.length}, {facts['padding']:.1%} padding",
        }

    def _rows(self, documents: list[str], log, what: str) -> Rows:
        tokens = encode(self.tokenizer, documents, log, what)
        return Rows(tokens, packing.plan(tokens, self.run.batch.length, self.run.data.pack))

    def _mask(self, rows: Rows, numbers: np.ndarray, stream: int, n: int) -> dict[str, np.ndarray]:
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.run.seed, stream, n])))
        fields = packing.fill(rows.tokens, rows.plan, numbers, self.specials)
        fields |= mask_tokens(rng, fields["tokens"], self.run.task.rate, self.specials, self.regular)
        return fields | {"words": fields["weights"] * self.alphabetic[fields["targets"]].astype(np.float32)}


def mask_tokens(
    rng: np.random.Generator, tokens: np.ndarray, rate: float, specials: tokenize.Specials, regular: np.ndarray
) -> dict[str, np.ndarray]:
    """tokens [B,T] -> tokens with some hidden, and where, targets, weights [B,M], M = ceil(rate * T).

    Of each row's tokens that are not special, `rate` are chosen, at least one: 80 % become [MASK], 10 % a random token of `regular`,
    10 % stay as they are.
    """
    most = int(np.ceil(rate * tokens.shape[1]))
    candidates = ~np.isin(tokens, specials)
    number = np.clip(np.rint(rate * candidates.sum(1)), 1, most)
    priority = np.where(candidates, rng.random(tokens.shape), 2)
    where = np.argsort(priority, axis=1)[:, :most].astype(np.int32)
    targets = np.take_along_axis(tokens, where, axis=1)
    chosen = (np.arange(most) < number[:, None]) & np.take_along_axis(candidates, where, axis=1)
    fate = rng.random(where.shape)
    hidden = np.where(fate < 0.8, specials.mask, np.where(fate < 0.9, rng.choice(regular, where.shape), targets))
    hidden_tokens = tokens.copy()
    np.put_along_axis(hidden_tokens, where, np.where(chosen, hidden, targets).astype(np.int32), axis=1)
    return {"tokens": hidden_tokens, "where": where, "targets": targets, "weights": chosen.astype(np.float32)}


def load(run: Run, log, tokenizer=None, held_only: bool = False) -> Corpus:
    """Text, tokenizer and rows as the run describes them; `tokenizer` is given where a saved run has one.

    `held_only` leaves out the training text where there is a validation text of its own.
    """
    train, held = ([], sources.read(run.data.eval, run.data)) if held_only and run.data.eval else sources.load(run.data)
    if tokenizer is None:
        tokenizer = tokenize.load(run.tokenizer, train, log.say)
    return Corpus(run, tokenizer, train, held, log)


def baselines(corpus: Corpus) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent target of the validation text; `n`: its number of targets."""
    counts = np.zeros(corpus.tokenizer.get_vocab_size())
    for batch in corpus.held_batches():
        np.add.at(counts, batch["targets"].ravel(), batch["weights"].ravel())
    return {"majority": float(counts.max() / max(counts.sum(), 1)), "n": int(counts.sum())}


def show(params, model: tfm.Config, corpus: Corpus, log, number: int = 5):
    """Prints validation sentences with hidden words, and what the model makes of them; it reads the text around them too."""
    text = corpus.held.tokens.ids
    name = lambda token: corpus.tokenizer.decode([int(token)], skip_special_tokens=False).strip() or "\u00b7"
    length, rng = corpus.run.batch.length - 2, np.random.default_rng(corpus.run.seed)
    for start, end in _sentences(corpus, number):
        before = int(np.clip(start - (length - (end - start)) // 2, 0, max(0, len(text) - length)))
        tokens = np.concatenate([[corpus.specials.cls], text[before : before + length], [corpus.specials.sep]]).astype(np.int32)
        words = start + np.flatnonzero(_whole_words(corpus, text[start:end]))
        hidden = np.sort(rng.choice(words, max(2, len(words) // 5), replace=False))
        where = (hidden - before + 1).astype(np.int32)
        tokens[where] = corpus.specials.mask
        shown = (f"[{name(text[n])}]" if n in hidden else name(text[n]) for n in range(start, end))
        log.say("\n" + " ".join(shown).replace(" ##", ""))
        for place, row in zip(hidden, np.asarray(_probabilities(params, model, tokens[None], where[None])), strict=True):
            guesses = (f"{name(token)} {row[token]:.2f}" for token in np.argsort(-row)[:4])
            log.say(f"{name(text[place]):>16} : {'  '.join(guesses)}")


def _sentences(corpus: Corpus, number: int) -> list[tuple[int, int]]:
    """Start and end of validation sentences of 8 to 24 tokens with at least 6 whole words, spread over the text."""
    text = np.asarray(corpus.held.tokens.ids)
    stops = np.flatnonzero(text == corpus.tokenizer.token_to_id("."))
    most = min(24, corpus.run.batch.length - 2)
    spans = ((int(start) + 1, int(end) + 1) for start, end in itertools.pairwise(stops) if 8 <= end - start <= most)
    found = [(start, end) for start, end in spans if _whole_words(corpus, text[start:end]).sum() >= 6]
    return found[:: max(1, len(found) // number)][:number]


def _whole_words(corpus: Corpus, tokens: np.ndarray) -> np.ndarray:
    """Which tokens are alphabetic and neither continue a word nor are continued by the next token."""
    inner = np.array([corpus.tokenizer.id_to_token(int(token)).startswith("##") for token in tokens])
    return corpus.alphabetic[tokens] & ~inner & ~np.append(inner[1:], False)


@partial(jax.jit, static_argnums=1)
def _probabilities(params, model: tfm.Config, tokens, where):
    return jax.nn.softmax(tfm.masked_lm(params, model, tokens, where), axis=-1)[0]

"""Masked language modelling: hide 15 % of the tokens and predict them from the rest (Devlin et al. 2018, section 3.1).

A row of 8 places, of which the masker chose one, travels as

    tokens     [CLS] the [MASK] sat [SEP] [PAD] [PAD] [PAD]     what the model reads
    segments       1   1      1   1     1     0     0     0     piece of text in this row, 0 is padding: attention stays inside a piece
    positions      0   1      2   3     4     0     0     0     restarted at every piece
    where          2   0                                        predicted positions, as many as the rate asks of a full row
    targets      cat [CLS]                                      the tokens that stood there
    weights        1   0                                        0 for places in `where` that are not used
    words          1   0                                        weights of the targets that are alphabetic pieces

With `--task.nsp` a row is a pair of sentences (`train.data.pairs`) and has three fields more: types [B,T], next [B] (0: the second one
follows the first, 1: it is a random one) and pairs [B], 0 for a row that does not count.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train.data import packing, pairs
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.masking import Masker
from train.data.processors import TOKENIZER
from train.data.sources import documents
from train.data.tokens import Tokens, encode, segmentation_hash, segmentations
from train.files import cache
from train.settings.schema import Run
from train.text import tokenizer as tokenize

# Metrics by which a best checkpoint may be chosen, and whether less of them is better.
METRICS = {"loss": min, "perplexity": min, "accuracy": max, "accuracy_words": max}


# What a run folder keeps beside the weights: how texts become tokens.
PROCESSOR = TOKENIZER

# Commands that make sense after a run.
NEXT_COMMANDS = (
    "evaluate --run={folder} --data=YOUR.txt",
    "main --task=classify --init={folder} --data=YOUR.tsv",
    "main --task=mlm --init={folder} --data=YOUR.txt",
)


def specs(run: Run) -> tfm.MaskedLM:
    """The parameters of the run's model."""
    return tfm.masked_lm_specs(run.model, run.task.nsp)


def loss(params: tfm.MaskedLM, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> dict[str, Array]:
    """Sums over the predicted tokens of a batch, float32: `loss` in nats, `weight`, and what accuracy is made of.

    Where there are pairs, the mean loss of a pair is added to the mean loss of a token.
    """
    mask = tfm.segments(batch["segments"])
    hidden = tfm.encoder(params.encoder, model, batch["tokens"], mask, batch["positions"], batch.get("types"), key)
    states = tfm.mlm_features(params.head, model, tfm.states_at(hidden, batch["where"]))
    total, _, hits = tfm.vocabulary_loss(
        model, params.output, states, batch["targets"], batch["weights"], bias=params.head.bias
    )
    right, weight = hits.astype(jnp.float32), batch["weights"].sum()
    sums = {
        "loss": total,
        "weight": weight,
        "right": (right * batch["weights"]).sum(),
        "words": batch["words"].sum(),
        "right_words": (right * batch["words"]).sum(),
        "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * weight,
    }
    if params.next is None:
        return sums
    logits = tfm.next_sentence(params, model, hidden)
    right = (logits.argmax(-1) == batch["next"]).astype(jnp.float32)
    found = {
        "pairs": batch["pairs"].sum(),
        "loss_tokens": sums["loss"],
        "loss_next": (tfm.cross_entropy(logits, batch["next"]) * batch["pairs"]).sum(),
        "right_next": (right * batch["pairs"]).sum(),
    }
    return sums | found | {"loss": sums["loss"] + found["loss_next"] * weight / jnp.maximum(found["pairs"], 1)}


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a token, perplexity over the predicted tokens, accuracy on all of them and on alphabetic pieces.

    With pairs, `loss` is the sum of `loss_tokens` and `loss_next`.
    """
    weight = max(sums["weight"], 1)
    found = {
        "loss": sums["loss"] / weight,
        "perplexity": float(np.exp(min(sums.get("loss_tokens", sums["loss"]) / weight, 700.0))),
        "accuracy": sums["right"] / weight,
        "accuracy_words": sums["right_words"] / max(sums["words"], 1),
        "padding": sums["padding"] / weight,
    }
    if "pairs" not in sums:
        return found
    pairs = max(sums["pairs"], 1)
    of_next = {"loss_next": sums["loss_next"] / pairs, "accuracy_next": sums["right_next"] / pairs}
    return found | {"loss_tokens": sums["loss_tokens"] / weight} | of_next


def batch_spec(run: Run) -> dict[str, Field]:
    """The fields of a batch, as the top of this file shows them."""
    predicted = {"M": math.ceil(run.task.rate * run.batch.length)}
    spec = {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "segments": Field("BT", np.int32),
        "positions": Field("BT", np.int32),
        "where": Field("BM", np.int32, predicted),
        "targets": Field("BM", np.int32, predicted),
        "weights": Field("BM", np.float32, predicted),
        "words": Field("BM", np.float32, predicted),
    }
    if run.task.nsp:
        spec |= {"types": Field("BT", np.int32), "next": Field("B", np.int32), "pairs": Field("B", np.float32)}
    return spec


class Packed:
    """Rows of packed text, masked afresh each time."""

    buckets, independent_rows = None, True

    def __init__(self, text: Tokens, length: int, pack: bool, masker: Masker):
        self.text, self.masker, self.plan = text, masker, packing.plan(text, length, pack)
        self.tokens, self.padding = len(text.ids), self.plan.padding

    def __len__(self):
        return self.plan.rows

    def batch(self, numbers: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields that stand at the top of this file."""
        return self.masker(rng, packing.fill(self.text, self.plan, numbers, self.masker.specials))


Text = Packed | pairs.SentencePairs


def load(run: Run, log, saved=None, valid_only: bool = False) -> Corpus[Text]:
    """Text, tokenizer and rows as the run describes them; `saved` is what a run that was there before brings (`train.run.Saved`).

    `valid_only` leaves out the training text where there is a validation text of its own.
    """
    train, valid = documents.load(run.data, run.task.name, valid_only)
    tokenizer = saved.processor if saved else tokenize.load(run.tokenizer, train, log)
    return corpus(run, tokenizer, train, valid, log)


def corpus(run: Run, tokenizer, train: Sequence[str], valid: Sequence[str], log) -> Corpus[Text]:
    """Documents as rows: packed, or sentence pairs."""
    masker, length = Masker.of(run.task, tokenizer), run.batch.length

    def rows(documents: Sequence[str], what: str, dropout: float = 0.0, draw: int = 0) -> Text:
        if not run.task.nsp:
            return Packed(encode(tokenizer, documents, log, what, dropout, draw), length, run.data.pack, masker)
        texts, document = pairs.sentences(documents)
        return pairs.SentencePairs(encode(tokenizer, texts, log, what, dropout, draw), document, length, masker)

    training = [rows(train, "training text", *draw) for draw in segmentations(run)] if train else []
    sizes = {"vocab": tokenizer.get_vocab_size()}
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(train, valid),
        "segmentation_hash": segmentation_hash(run, (layout.text for layout in training)),
    }
    return Corpus(run, tokenizer, training, rows(valid, "validation text"), sizes, facts)


def baselines(corpus: Corpus[Text]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent target of the validation text; `n`: its number of targets."""
    counts = np.zeros(corpus.processor.get_vocab_size())
    for batch in corpus.valid_batches():
        np.add.at(counts, batch["targets"].ravel(), batch["weights"].ravel())
    return {"majority": float(counts.max() / max(counts.sum(), 1)), "n": int(counts.sum())}


def report(params, run: Run, corpus: Corpus[Text], log, outcomes: Mapping, folder: Path):
    """Prints validation sentences with hidden words, and what the model makes of them; it reads the text around them too."""
    text, masker, continues = corpus.valid.text.ids, corpus.valid.masker, tokenize.continues(corpus.processor)
    name = lambda token: corpus.processor.decode([int(token)], skip_special_tokens=False).strip() or "\u00b7"
    length, rng = run.batch.length - 2, np.random.default_rng(run.seed)
    for start, end in _sentences(corpus, continues, 5):
        before = int(np.clip(start - (length - (end - start)) // 2, 0, max(0, len(text) - length)))
        tokens, _ = pairs.join([text[before : before + length]], length + 2, masker.specials)
        words = start + np.flatnonzero(_whole_words(masker, continues, text[start:end]))
        hidden = np.sort(rng.choice(words, max(2, len(words) // 5), replace=False))
        where = (hidden - before + 1).astype(np.int32)
        tokens[where] = masker.specials.mask
        spelled = (f"[{name(text[n])}]" if n in hidden else name(text[n]).removeprefix("##") for n in range(start, end))
        joined = (
            piece if inner else f" {piece}" for inner, piece in zip(continues[text[start:end]], spelled, strict=True)
        )
        log.info("\n" + "".join(joined).strip())
        for place, row in zip(
            hidden, np.asarray(_probabilities(params, run.model, tokens[None], where[None])), strict=True
        ):
            guesses = (f"{name(token)} {row[token]:.2f}" for token in np.argsort(-row)[:4])
            log.info(f"{name(text[place]):>16} : {'  '.join(guesses)}")


def _sentences(corpus: Corpus[Text], continues: np.ndarray, number: int) -> list[tuple[int, int]]:
    """Start and end of validation sentences of 8 to 24 tokens with at least 6 whole words, spread over the text."""
    text = np.asarray(corpus.valid.text.ids)
    stops = np.flatnonzero(text == corpus.processor.token_to_id("."))
    most = min(24, corpus.run.batch.length - 2)
    spans = ((int(start) + 1, int(end) + 1) for start, end in itertools.pairwise(stops) if 8 <= end - start <= most)
    found = [
        (start, end) for start, end in spans if _whole_words(corpus.valid.masker, continues, text[start:end]).sum() >= 6
    ]
    return found[:: max(1, len(found) // number)][:number]


def _whole_words(masker: Masker, continues: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Which tokens are alphabetic and neither continue a word nor are continued by the next token."""
    inner = continues[tokens]
    return masker.alphabetic[tokens] & ~inner & ~np.append(inner[1:], False)


@partial(jax.jit, static_argnums=1)
def _probabilities(params, model: tfm.Config, tokens, where):
    return jax.nn.softmax(tfm.masked_lm(params, model, tokens, where), axis=-1)[0]


# What train.generate, train.predict and Hugging Face folders ask of this task.
GENERATES = ""
CAN_PREDICT = False
HF_HEADS = ("mlm", "pretrain")
HF_TOKENS = {"mask_token": "mask"}


def hf_run_values(head: str, folder) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    return {"mlm": {"batch.length": 128}, "pretrain": {"task.nsp": True}}.get(head, {})


def hf_fields(run: Run, tokenizer, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    return {}


def hf_template(run: Run) -> tuple[str, ...]:
    """How the exported tokenizer marks a text and a pair of texts."""
    return "{cls} $A {sep}", "{cls} $A {sep} $B:1 {sep}:1"

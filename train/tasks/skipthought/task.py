"""Skip-Thought: the vector of a sentence predicts the sentences before and after it (Kiros et al. 2015, section 2.1).

A row of 5 places, of the sentence in the middle of three:

    tokens              it   rained [SEP] [PAD] [PAD]     the sentence, which the encoder reads
    valid                1     1      1     0     0       0 is padding
    previous_tokens   [SEP]   we    left   ...            what the decoder of the sentence before reads
    previous_targets    we   left  [SEP]   ...            the token that comes next
    previous_weights     1     1      1     0     0       0 where there is none
    following_tokens, following_targets, following_weights    the same of the sentence after it
    shuffled_tokens, shuffled_valid     in evaluation: a random sentence, whose vector decoders read for comparison
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from tfm.ops import split
from train.data import documents, pairs
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.tokens import PLAIN, Segmentation, encode, segmentation_hash, segmentations
from train.files import cache
from train.metrics import scores
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.schema import Run
from train.tasks.record import Saved, Task
from train.tasks.skipthought.options import SkipThought
from train.tasks.skipthought.rows import SentenceTriples, check_triples
from train.text import tokenize
from train.text.sentence_transformers import Modules
from train.text.special import AnyTokenizer

_SIDES = ("previous", "following")

# Validation sentences that the report compares.
_COMPARED = 400


def specs(run: Run[SkipThought]) -> tfm.SkipThought:
    """The parameters of the run's model."""
    return tfm.skip_thought_specs(run.model)


def batch_spec(run: Run[SkipThought]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    spec = {"tokens": Field("BT", np.int32, counts_tokens=True), "valid": Field("BT", np.int32)}
    for side in _SIDES:
        spec |= {
            f"{side}_tokens": Field("BT", np.int32, counts_tokens=True),
            f"{side}_targets": Field("BT", np.int32, predicts="V"),
            f"{side}_weights": Field("BT", np.float32, weighs=True, order=(f"{side}_tokens", 1)),
        }
    shuffled = {f"shuffled_{name}": Field("BT", np.int32) for name in ("tokens", "valid")}
    return spec | (shuffled if run.task.shuffled else {})


def loss(params: tfm.SkipThought, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> dict[str, Array]:
    """Sums over the tokens of both neighbours, float32: `loss` in nats, `weight` and `right`; with the vector of a
    random sentence `loss_shuffled`."""
    total, right, weight = _neighbours(params, model, batch, "", key)
    sums = {
        "loss": total,
        "right": right,
        "weight": weight,
        "padding": (batch["valid"] == 0).astype(jnp.float32).mean() * weight,
    }
    if "shuffled_tokens" in batch:
        sums["loss_shuffled"] = _neighbours(params, model, batch, "shuffled_", None)[0]
    return sums


def _neighbours(
    params: tfm.SkipThought, model: tfm.Config, batch: Mapping[str, Array], sentence: str, key: Array | None
) -> tuple[Array, Array, Array]:
    """Loss, hits and weight of both neighbours, from the vector of the sentence in the fields whose names begin so."""
    keys = split(key, 3)
    vector = tfm.sentence_vector(params, model, batch[f"{sentence}tokens"], batch[f"{sentence}valid"] > 0, keys[0])
    losses, hits, weights = [], [], []
    for side, side_key in zip(_SIDES, keys[1:], strict=True):
        states = tfm.write_sentence(params, getattr(params, side), model, batch[f"{side}_tokens"], vector, side_key)
        side_weights = batch[f"{side}_weights"]
        total, _, hit = tfm.vocabulary_loss(
            model, params.encoder.embed.tokens, states, batch[f"{side}_targets"], side_weights, bias=params.bias
        )
        losses.append(total)
        hits.append((hit.astype(jnp.float32) * side_weights).sum())
        weights.append(side_weights.sum())
    return losses[0] + losses[1], hits[0] + hits[1], weights[0] + weights[1]


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a token, perplexity, accuracy; in evaluation `loss_shuffled`, the loss with the
    vector of a random sentence, and `vector_nats`, how much less the loss is with the right one."""
    weight = max(sums["weight"], 1)
    means = {
        "loss": sums["loss"] / weight,
        "perplexity": scores.perplexity(sums["loss"] / weight),
        "accuracy": sums["right"] / weight,
        "padding": sums["padding"] / weight,
    }
    if "loss_shuffled" in sums:
        shuffled = sums["loss_shuffled"] / weight
        means |= {"loss_shuffled": shuffled, "vector_nats": shuffled - means["loss"]}
    return means


def load(
    run: Run[SkipThought], log: Log, saved: Saved | None = None, valid_only: bool = False
) -> Corpus[SentenceTriples]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training text if --eval-data names another text for validation.
    """
    train, valid = documents.load(run.data, log.info, valid_only)
    tokenizer = saved.processor if saved else tokenize.load(run.tokenizer, train, log)
    specials = tokenize.special_tokens(tokenizer)

    def rows(texts: Sequence[str], name: str, segmentation: Segmentation = PLAIN, shuffled: bool = False):
        sentences, document = pairs.split(texts)
        text = encode(tokenizer, sentences, log, name, segmentation)
        return check_triples(SentenceTriples(text, document, run.batch.length, specials, shuffled), texts)

    train_rows = [rows(train, "training text", segmentation) for segmentation in segmentations(run)] if train else []
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(train, valid),
        "segmentation_hash": segmentation_hash(run, (rows.text for rows in train_rows)),
    }
    valid_rows = rows(valid, "validation text", shuffled=run.task.shuffled)
    return Corpus(run, tokenizer, train_rows, valid_rows, {"vocab": tokenizer.get_vocab_size()}, facts)


def baselines(corpus: Corpus[SentenceTriples]) -> dict[str, float]:
    """`majority`: accuracy of always guessing the most frequent target; `unigram_loss`: nats of always saying how
    frequent tokens are; `n`: the number of targets. All of the validation text."""
    counts = np.zeros(corpus.processor.get_vocab_size())
    for batch in corpus.valid_batches():
        for side in _SIDES:
            np.add.at(counts, batch[f"{side}_targets"].ravel(), batch[f"{side}_weights"].ravel())
    shares = counts[counts > 0] / max(counts.sum(), 1)
    entropy = -float((shares * np.log(shares)).sum())
    return {"majority": float(shares.max(initial=0)), "unigram_loss": entropy, "n": int(counts.sum())}


def report(
    params: tfm.SkipThought,
    run: Run[SkipThought],
    corpus: Corpus[SentenceTriples],
    log: Log,
    outcomes: Mapping,
    folder: Path,
):
    """Prints five validation sentences, each with the nearest of some hundreds, by the cosine of their vectors."""
    middles = corpus.valid.middles[: max(_COMPARED, 1)]
    tokens, valid = corpus.valid.sentences(middles)
    vectors = np.asarray(checked(_vectors, params, run.model, tokens, valid), np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = vectors @ vectors.T - 2 * np.eye(len(vectors))
    for row in np.linspace(0, len(middles) - 1, min(5, len(middles))).astype(int):
        texts = [corpus.processor.decode(corpus.valid.text[middles[n]].tolist()) for n in (row, cosines[row].argmax())]
        log.info(f"\n{texts[0]}\n{cosines[row].max():.2f} : {texts[1]}")


def _vectors(params: tfm.SkipThought, model: tfm.Config, tokens: Array, valid: Array) -> Array:
    return tfm.sentence_vector(params, model, tokens, valid > 0)


def hf_template(run: Run[SkipThought], tokenizer: AnyTokenizer) -> tuple[str, ...]:
    """How a sentence is marked."""
    return ("$A {sep}",)


def modules(run: Run[SkipThought]) -> Modules:
    """How the vector of a sentence is made of states."""
    return Modules((run.model.head.pool,))


SKIPTHOUGHT = Task(
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
        "embed --run={folder} --file=YOUR.txt --query='A SENTENCE'",
        "sentences --run={folder} --data=SENTEVAL",
        "main --task=classify --init={folder} --data=YOUR.tsv",
    ),
    modules=modules,
    hf_template=hf_template,
)

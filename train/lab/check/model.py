"""Probes of the model: what its losses depend on, on a few rows of the training data."""

import dataclasses
import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import tfm
from tfm.sharding import shard_like
from train.lab.check.result import Result, not_applicable, relative
from train.lab.check.subject import HostBatch, Influence, Subject
from train.tasks.translate.speech.transcription import encode_sounds
from train.training import step

# The largest derivative for a token that must not be seen, over that for one that may: 0 but for rounding.
_UNSEEN = 1e-6

# Places of padding that rows get more.
_EXTRA = 8


def causality(subject: Subject) -> Result:
    """No target depends on the tokens after it: by gradient, for the input of every layer.

    Nor on the other texts that the model writes. After it are those before it where a text is written backwards.
    """
    orders = {name: subject.spec[name].order for name in subject.weights}
    written = {order[0] for order in orders.values() if order}
    if not written:
        return not_applicable("the model reads whole rows, and writes none token by token")

    def later(target: Influence, tokens: str, shape: tuple[int, int]) -> np.ndarray:
        own, step = orders[target.weights] or ("", 1)
        after = step * np.arange(shape[1]) > step * target.place
        return np.broadcast_to(after if tokens == own else np.array(tokens in written), shape)

    return _unseen(subject, subject.batch, later, "a later token")


def isolation(subject: Subject) -> Result:
    """No target depends on another text, of its own row or of another one: by gradient, for the input of every layer.

    The two halves of each row are declared to be two texts, where rows may hold several, unless targets are of texts
    that share rows.
    """
    batch = subject.batch
    packs = "segments" in batch and subject.job.model.reads_packed
    fields = {tokens: subject.segments_field(tokens) for tokens in subject.token_fields} if packs else {}
    examples = subject.examples(batch)
    if examples is None:
        batch = batch | {field: _halves(batch[field]) for field in fields.values()}

    def foreign(target: Influence, tokens: str, shape: tuple[int, int]) -> np.ndarray:
        if examples is not None:
            return _filled((examples >= 0) & (examples != target.row), shape)
        rows = np.arange(shape[0]) // (shape[0] // subject.rows) != target.row
        is_foreign = np.broadcast_to(rows[:, None], shape)
        if not packs or target.place < 0:
            return is_foreign
        own = batch[fields[subject.tokens_of(target.weights)]][target.row, target.place]
        return is_foreign | _filled(batch[fields[tokens]] != own, shape)

    return _unseen(subject, batch, foreign, "another text of the row, or of another row" if packs else "another row")


def _halves(segments: np.ndarray) -> np.ndarray:
    """Segments [B,T] -> 1 in the first half of the tokens of a row, 2 in the second, 0 in padding."""
    filled = segments > 0
    is_second = 2 * filled.cumsum(1) > filled.sum(1, keepdims=True)
    return np.where(filled, 1 + is_second, 0).astype(np.int32)


def padding_is_unseen(subject: Subject) -> Result:
    """No target depends on padding: by gradient, for the input of every layer, with random tokens in padding."""
    batch = _padded(subject)
    masks = {name: subject.padding(batch, name) for name in subject.token_fields}
    if not any(mask.any() for mask in masks.values()):
        return not_applicable(_NO_PADDING)

    def is_padding(target: Influence, tokens: str, shape: tuple[int, int]) -> np.ndarray:
        if tokens not in masks:
            return np.zeros(shape, bool)
        mask = masks[tokens].reshape(shape[0], -1)
        return _filled(np.pad(mask, ((0, 0), (0, subject.job.model.input.suffix))), shape)

    return _unseen(subject, batch, is_padding, "padding")


def _filled(mask: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """bool [B,T] as devices have it: a length that the mesh does not divide is filled up."""
    return np.pad(mask, ((0, 0), (0, shape[1] - mask.shape[1])), constant_values=True)


def _unseen(
    subject: Subject,
    batch: HostBatch,
    forbidden: Callable[[Influence, str, tuple[int, int]], np.ndarray],
    source: str,
) -> Result:
    """The largest derivative where `forbidden(target, field of tokens, shape)` is True, over the largest elsewhere."""
    seen = unseen = 0.0
    for target in subject.influence(batch):
        for tokens, blocks in target.blocks.items():
            for block in blocks:
                mask = forbidden(target, tokens, block.shape)
                unseen = np.maximum(unseen, block[mask].max(initial=0.0))  # keeps NaN
                seen = np.maximum(seen, block[~mask].max(initial=0.0))
    return Result(relative(unseen, seen), _UNSEEN, f"derivative for {source}, over that for what may be seen")


def padding_changes_nothing(subject: Subject) -> Result:
    """Random tokens in padding, and more padding, change no loss."""
    batch, changed = subject.batch, _padded(subject)
    places = sum(int(subject.padding(changed, name).sum()) for name in subject.token_fields)
    if not places:
        return not_applicable(_NO_PADDING)
    losses, changed_losses = subject.losses(batch)[0], subject.losses(changed)[0]
    differences = []
    for name, before in losses.items():
        after = changed_losses[name][tuple(slice(size) for size in before.shape)]
        counts = batch[name] > 0
        differences.append(relative(np.abs(before - after)[counts].max(), np.abs(before[counts]).mean()))
    detail = f"change of a loss by random tokens in {places:,} places of padding, over the mean loss"
    return Result(float(np.max(differences)), subject.precision, detail)


_NO_PADDING = "no row has padding, and there is no room for more"


def _padded(subject: Subject) -> dict[str, np.ndarray]:
    """The batch with more places of padding in every row, if the model allows it, and random tokens in all padding."""
    rng, model = np.random.default_rng(0), subject.job.model
    extra = _EXTRA * subject.job.mesh.shape["context"]
    length = max((subject.batch[name].shape[-1] for name in subject.token_fields), default=0) + model.input.suffix
    fits = model.max_length is None or length + extra <= model.max_length
    extra = extra if fits or ("positions" in subject.batch and model.reads_packed) else 0
    batch: dict[str, np.ndarray] = {}
    for name, array in subject.batch.items():
        axes = subject.spec[name].axes
        batch[name] = np.pad(array, [(0, extra if letter == "T" else 0) for letter in axes])
    for name in subject.token_fields:
        random = rng.integers(0, model.vocab, batch[name].shape).astype(np.int32)
        batch[name] = np.where(subject.padding(batch, name), random, batch[name])
    return batch


def weighted_sum(subject: Subject) -> Result:
    """The loss is the weighted sum of the losses of targets, and counts their weights: nothing else adds to it."""
    losses, sums = subject.losses(subject.batch)
    weights = {name: subject.batch[name].astype(np.float64) for name in subject.weights}
    total, count = sum(float((losses[name] * array).sum()) for name, array in weights.items()), _targets(subject)
    weight = sum(float(array.sum()) for array in weights.values())
    losses_match = relative(abs(total - sums["loss"]), abs(float(sums["loss"])))
    weights_match = relative(abs(weight - sums["weight"]), weight)
    detail = f"loss and weight, against sums over {count} targets"
    return Result(max(losses_match, weights_match), subject.precision, detail)


def _targets(subject: Subject) -> int:
    """The number of targets of the batch."""
    return sum(int((subject.batch[name] > 0).sum()) for name in subject.weights)


def targets_are_tokens(subject: Subject) -> Result:
    """No target stands in padding, and every token that is hidden is a target."""
    if not subject.token_fields:
        return not_applicable("rows are pictures, which have no padding")
    if subject.places(subject.batch) is None:
        counts, examples = subject.batch[subject.weights[0]] > 0, subject.examples(subject.batch)
        is_padding = subject.padding(subject.batch, subject.token_fields[0])
        is_empty: np.ndarray = np.all(is_padding.reshape(len(counts), -1), axis=-1)
        if examples is not None:
            is_empty = ~np.isin(np.arange(len(counts)), examples)
        wrong = counts & is_empty
        return Result(float(wrong.mean()), 0.0, "share of rows that are empty and count")
    labels = [name for name, field in subject.spec.items() if field.predicts == "V"]
    misplaced = sum(_misplaced(subject, *names) for names in itertools.zip_longest(subject.weights, labels))
    share = misplaced / max(1, _targets(subject))
    return Result(share, 0.0, f"share of {_targets(subject)} targets in padding; plus hidden tokens without one")


def _misplaced(subject: Subject, weights: str, labels: str | None) -> int:
    """The number of targets that are padding, or stand in it, and of hidden tokens that are no targets."""
    batch, tokens, places = subject.batch, subject.tokens_of(weights), subject.places(subject.batch)
    assert places is not None, "the caller has looked"
    is_target, is_padding = batch[weights] > 0, subject.padding(batch, tokens)
    wrong = is_target & np.take_along_axis(is_padding, places, axis=1)
    if labels and subject.tokenizer and subject.specials.pad != subject.specials.sep:
        wrong |= is_target & (batch[labels] == subject.specials.pad)
    missed = 0
    if "where" in batch:
        predicted = np.zeros(is_padding.shape, bool)
        np.logical_or.at(predicted, (np.arange(len(places))[:, None], places), is_target)
        missed = int(((batch[tokens] == subject.specials.mask) & ~predicted).sum())
    return int(wrong.sum()) + missed


def cached_is_full(subject: Subject) -> Result:
    """Token by token with the cache, a text has the losses of the training's pass over all of it."""
    if not subject.writes:
        return not_applicable("the model writes no text")
    batch, weights = subject.batch, subject.weights[0]
    full = subject.losses(batch)[0][weights]
    with jax.set_mesh(subject.job.mesh):
        fields = {name: array[0] for name, array in subject.on_mesh(batch).items()}
        cached = jax.device_get(_cached_losses(subject, fields))
    counts = batch[weights] > 0
    segments = batch.get(subject.segments_field(subject.token_fields[-1]))
    if segments is not None:
        counts &= segments == 1  # the cache reads a row as one text, which the first one is
    difference = np.abs(cached[:, : full.shape[1]] - full)[counts].max()
    detail = f"difference of a loss, of {int(counts.sum())} targets, over the mean loss"
    return Result(relative(difference, full[counts].mean()), subject.precision, detail)


def _cached_losses(subject: Subject, batch: dict[str, jax.Array]) -> jax.Array:
    """The losses of targets, float32 [B,T], of a pass that reads a short prompt, a few single tokens, and the rest.

    Rows are padded on the left, as prompts are.
    """
    config, left = subject.job.model, 2
    model = jax.jit(_language_model, static_argnums=0)(config, subject.params, batch)
    tokens = jnp.pad(batch[subject.token_fields[-1]], ((0, 0), (left, 0)))
    starts = shard_like(jnp.full(len(tokens), left, jnp.int32), tokens)
    length = tokens.shape[1]
    prompt = left + max(1, min(3, (length - left) // 3))
    cuts = [*range(prompt, min(prompt + 5, length)), length]

    @jax.jit
    def prefill(model, tokens, starts):
        return tfm.prefill(model.decoder, config, tokens, starts, length, model.memory)

    @jax.jit
    def extend(model, tokens, cache):
        return tfm.extend(model.decoder, config, tokens, cache)

    @jax.jit
    def losses(model, parts, targets):
        return tfm.cross_entropy(tfm.next_logits(model, config, jnp.concatenate(parts, axis=1)[:, left:]), targets)

    states, cache = prefill(model, tokens[:, :prompt], starts)
    parts = [states]
    for start, end in itertools.pairwise(cuts):
        states, cache = extend(model, tokens[:, start:end], cache)
        parts.append(states)
    return losses(model, parts, batch[subject.targets])


def _language_model(config: tfm.Config, params, batch: dict[str, jax.Array]) -> tfm.CausalLM:
    """The language model of a batch: of the translations of its sources, of what is said in its sounds, or of texts."""
    if "frames" in batch:
        return encode_sounds(config, params, batch["frames"], batch["lengths"])
    if isinstance(params, tfm.Seq2Seq):
        return tfm.encode_source(params, config, batch["tokens"], batch["segments"] == 1)
    return params


def evaluation_without_dropout(subject: Subject) -> Result:
    """Evaluation draws no more random numbers for a model with dropout."""

    def draws(rate: float) -> int:
        model = dataclasses.replace(subject.job.model, dropout=rate, attn_dropout=rate, ffn_dropout=rate)
        evaluate = step.make_eval_step(subject.job.task.loss, model)
        with jax.set_mesh(subject.job.mesh):
            return str(jax.make_jaxpr(evaluate)(subject.params, subject.on_mesh(subject.batch))).count("random_bits")

    return Result(draws(0.5) - draws(0.0), 0, "random draws of the evaluation step, with dropout=0.5")


def start(subject: Subject) -> Result:
    """A fresh model thinks about as much of every class: its loss is near the logarithm of their count."""
    if not subject.is_fresh:
        return not_applicable("the weights are trained")
    if not subject.targets:
        return not_applicable("targets are no classes")
    field, run = subject.spec[subject.targets], subject.job.run
    sizes = {"V": run.model.vocab, "C": run.model.classes, "T": run.batch.length, **field.sizes}
    chance = math.log(sizes[field.predicts])
    _, sums = subject.losses(subject.batch)
    loss = float(sums["loss"] / sums["weight"])
    detail = f"distance of the loss, {loss:.3f}, from ln {sizes[field.predicts]:,} = {chance:.3f}, over the latter"
    return Result(relative(abs(loss - chance), chance), 0.3, detail)


PROBES = (
    causality,
    isolation,
    padding_is_unseen,
    padding_changes_nothing,
    cached_is_full,
    weighted_sum,
    targets_are_tokens,
    evaluation_without_dropout,
    start,
)

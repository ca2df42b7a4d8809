"""Many small classifiers trained at once: torch's path of SentEval, all folds and all strengths of regularization.

Slots work side by side, one fit each. A slot takes the next fit as soon as its fit has stopped: one program serves all,
and no part of it waits. The strengths of a fit share its batches, so that one matrix product serves all of them.

    w, b          a linear layer of all slots: kernel [F,D,R,C], bias [F,R,C]; F slots, R strengths, C classes
    rows [S,F,B]  the rows of the S batches of a round; counts [S,F] how many of them are there, 0 for no step
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from train.lab.sentences.randomness import Orders, linear_starts
from train.lab.sentences.settings import Settings

# Fits that are trained side by side: on a CPU, whose caches hold their batches, and elsewhere.
_SLOTS_CPU, _SLOTS = 16, 128

# Steps that the gradient takes as torch's optimizers take it by default, with their rates.
OPTIMIZERS: dict[str, tuple[Callable[[], optax.GradientTransformation], float]] = {
    "adam": (partial(optax.scale_by_adam, eps=1e-8), 1e-3),
    "rmsprop": (partial(optax.scale_by_rms, decay=0.99, eps=1e-8, eps_in_sqrt=False), 1e-2),
    "sgd": (optax.identity, 0.1),
}


# Kernels and biases of linear layers, the lowest first.
Layers = list[tuple[Array, Array]]

Tree = TypeVar("Tree")


class Fit(NamedTuple):
    """Rows of a classifier: to train on, to stop by, to predict. `skipped` rows were permuted before the training."""

    train: np.ndarray
    dev: np.ndarray
    test: np.ndarray
    skipped: int = 0


class Fitted(NamedTuple):
    """For every strength: the best share of right development rows [R], and the classes of the test rows [R,N]."""

    dev: np.ndarray
    predictions: np.ndarray


class LabelledVectors(NamedTuple):
    """All rows of a task: vectors float32 [N,D] and classes int32 [N]."""

    x: Array
    y: Array


class FitState(NamedTuple):
    """Parameters, the state of the optimizer, and the best parameters so far; all begin with the slot axis."""

    params: Layers
    optimizer: optax.OptState
    best: Layers


class _Slot:
    """A fit at work: the epochs that it has behind it, and for every strength how often it did not rise."""

    def __init__(self, index: int, strengths: int):
        self.index, self.epoch = index, 0
        self.misses = np.zeros(strengths, np.int64)
        self.right = np.full(strengths, -1, np.int64)
        self.stopped = np.zeros(strengths, bool)

    def note(self, right: np.ndarray, settings: Settings):
        """Counts a look at the development rows: `right` [R] of them were right. The count of misses never restarts."""
        rises = right > self.right
        self.right = np.where(rises & ~self.stopped, right, self.right)
        self.stopped |= ~rises & (self.misses >= settings.tenacity)
        self.misses += ~rises
        self.epoch += settings.epoch_size
        if self.epoch > settings.max_epoch:
            self.stopped[:] = True


# What every slot works on; None: nothing.
Slots = list[_Slot | None]


class MinibatchTrainer:
    """Trains classifiers of `classes` on vectors x [N,D] with labels y [N], each with all `strengths` of an L2 penalty.

    The penalty is added to the gradient of kernels and biases, as torch's weight_decay is; the loss is the mean over
    the rows of a batch.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, classes: int, strengths: Sequence[float], settings: Settings):
        self.data = LabelledVectors(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))
        self.strengths, self.settings = jnp.asarray(strengths, jnp.float32), settings
        hidden = (settings.nhid,) if settings.nhid else ()
        starts = linear_starts(settings.seed, (x.shape[1], *hidden, classes))
        count = len(strengths)
        self.start = [
            (jnp.repeat(jnp.asarray(w)[:, None], count, 1), jnp.repeat(jnp.asarray(b)[None], count, 0))
            for w, b in starts
        ]
        self.orders = Orders(settings.seed)

    def run(self, fits: Sequence[Fit], advance: Callable[[int], None] = lambda fits: None) -> list[Fitted]:
        """The outcome of every fit."""
        width = min(len(fits), _SLOTS_CPU if jax.default_backend() == "cpu" else _SLOTS)
        state = _fresh(self.start, width, self.settings)
        waiting: Iterator[int] = iter(range(len(fits)))
        slots: Slots = [None] * width
        outcomes: dict[int, Fitted] = {}
        key = jax.random.key(self.settings.seed)
        while len(outcomes) < len(fits):
            slots, is_new = self._refill(slots, waiting)
            work = self._work(fits, slots, is_new)
            state, right = _round(self.settings, self.start, state, self.data, work, self.strengths, key)
            key = jax.random.fold_in(key, 1)
            for place, (slot, slot_right) in enumerate(zip(slots, np.asarray(right), strict=True)):
                if slot is None:
                    continue
                slot.note(slot_right, self.settings)
                if slot.stopped.all():
                    outcomes[slot.index] = self._outcome(fits, slot, state, place)
                    slots[place] = None
                    advance(1)
        return [outcomes[index] for index in range(len(fits))]

    def _refill(self, slots: Slots, waiting: Iterator[int]) -> tuple[Slots, np.ndarray]:
        """Slots whose fit has stopped take the next one; and which of them are new."""
        is_new = np.array([slot is None for slot in slots])
        filled: Slots = []
        for slot in slots:
            index = next(waiting, None) if slot is None else None
            filled.append(slot if index is None else _Slot(index, len(self.strengths)))
        return filled, is_new

    def _work(self, fits: Sequence[Fit], slots: Slots, is_new: np.ndarray) -> "Round":
        """What the next round of all slots does."""
        nothing = np.zeros(len(self.strengths), np.int32)
        rows, counts = self._batches(fits, slots)
        dev = _padded([fits[slot.index].dev if slot else () for slot in slots], max(len(fit.dev) for fit in fits))
        active = np.stack([~slot.stopped if slot else nothing > 0 for slot in slots])
        return Round(is_new, rows, counts, *dev, active, np.stack([slot.right if slot else nothing for slot in slots]))

    def _batches(self, fits: Sequence[Fit], slots: Slots) -> tuple[np.ndarray, np.ndarray]:
        """The rows int32 [S,F,B] of the batches of a round, and how many each has, [S,F]."""
        size, epochs = self.settings.batch, self.settings.epoch_size
        steps = max(-(-len(fit.train) // size) for fit in fits)
        rows = np.zeros((epochs, steps, len(slots), size), np.int32)
        counts = np.zeros((epochs, steps, len(slots)), np.int32)
        for place, slot in enumerate(slots):
            if slot is None:
                continue
            fit = fits[slot.index]
            total = len(fit.train)
            sizes = np.clip(total - size * np.arange(steps), 0, size)
            for epoch in range(epochs):
                order = fit.train[self.orders.order(total, slot.epoch + epoch, fit.skipped)]
                padded = np.zeros(steps * size, np.int32)
                padded[:total] = order
                rows[epoch, :, place] = padded.reshape(-1, size)
                counts[epoch, :, place] = sizes
        return rows.reshape(-1, len(slots), size), counts.reshape(-1, len(slots))

    def _outcome(self, fits: Sequence[Fit], slot: _Slot, state: FitState, place: int) -> Fitted:
        fit, test_size = fits[slot.index], max(len(fit.test) for fit in fits)
        predictions = np.zeros((len(self.strengths), 0), np.int64)
        if len(fit.test):
            rows, _ = _padded([fit.test], test_size)
            params = jax.tree.map(lambda leaf: leaf[place], state.best)
            predictions = np.asarray(_predict(params, self.data.x, rows[0])).T[:, : len(fit.test)]
        return Fitted(slot.right / max(1, len(fit.dev)), predictions)


class Round(NamedTuple):
    """What a round of all slots takes from the host: see the top of this file.

    is_new [F]: slots that begin a fit
    dev [F,M], dev_counts [F]: development rows
    active, right [F,R]: strengths that have not stopped, and their best counts of right development rows
    """

    is_new: np.ndarray
    rows: np.ndarray
    counts: np.ndarray
    dev: np.ndarray
    dev_counts: np.ndarray
    active: np.ndarray
    right: np.ndarray


def _padded(members: Sequence[np.ndarray | tuple[()]], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists of rows -> int32 [F,size] with zeros behind them, and their lengths [F]."""
    rows = np.zeros((len(members), size), np.int32)
    for place, member in enumerate(members):
        rows[place, : len(member)] = member
    return rows, np.array([len(member) for member in members], np.int32)


def _fresh(start: Layers, slots: int, settings: Settings) -> FitState:
    """The state of all slots before their first step."""
    params = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), start)
    return FitState(params, jax.vmap(OPTIMIZERS[settings.optim][0]().init)(params), params)


@partial(jax.jit, static_argnums=0)
def _round(
    settings: Settings, start: Layers, state: FitState, data: LabelledVectors, work: Round, strengths: Array, key: Array
) -> tuple[FitState, Array]:
    """A round of steps in all slots, and their counts of right development rows [F,R]."""
    slots = len(work.is_new)
    state = _where(jnp.asarray(work.is_new), _fresh(start, slots, settings), state)

    def step(carry, batch):
        params, optimizer, index = carry
        rows, counts = batch
        keys = jax.random.split(jax.random.fold_in(key, index), slots) if settings.dropout else None
        update = partial(_update, settings, strengths)
        axes = (0, 0, 0, None if keys is None else 0)
        members = data.x[rows], data.y[rows], counts
        new = jax.vmap(update, axes)(params, optimizer, members, keys)
        return (*_where(counts > 0, new, (params, optimizer)), index + 1), None

    (params, optimizer, _), _ = jax.lax.scan(
        step, (state.params, state.optimizer, jnp.int32(0)), (work.rows, work.counts)
    )
    is_dev = jnp.arange(work.dev.shape[1])[None] < work.dev_counts[:, None]
    guesses = jax.vmap(_classes)(params, data.x[work.dev])
    right = ((guesses == data.y[work.dev][..., None]) & is_dev[..., None]).sum(1)
    improved = (right > work.right) & work.active
    return FitState(params, optimizer, _where_strengths(improved, params, state.best)), right


def _update(settings: Settings, strengths: Array, params, optimizer, batch: tuple[Array, Array, Array], key):
    """One step of one slot; a batch is x [B,D], y [B], and how many rows of it are there."""
    x, y, count = batch

    def loss(params) -> Array:
        log_probabilities = jax.nn.log_softmax(_logits(params, x, settings.dropout, key))
        chosen = jnp.take_along_axis(log_probabilities, y[:, None, None], axis=2)[..., 0]
        is_row = (jnp.arange(len(y)) < count)[:, None]
        return -jnp.where(is_row, chosen, 0.0).sum() / jnp.maximum(count, 1)

    transform, rate = OPTIMIZERS[settings.optim]
    gradient = jax.tree.map(lambda g, leaf: g + _of_strengths(strengths, leaf) * leaf, jax.grad(loss)(params), params)
    updates, optimizer = transform().update(gradient, optimizer)
    return jax.tree.map(lambda leaf, update: leaf - rate * update, params, updates), optimizer


def _logits(params, x: Array, dropout: float = 0.0, key: Array | None = None) -> Array:
    """x [B,D] -> [B,R,C]: one linear layer, or two with dropout and a sigmoid between, as SentEval's MLP."""
    (kernel, bias), *upper = params
    y = jnp.einsum("bd,drc->brc", x, kernel) + bias[None]
    for kernel, bias in upper:
        if dropout and key is not None:
            y = jnp.where(jax.random.bernoulli(key, 1 - dropout, y.shape), y / (1 - dropout), 0.0)
        y = jnp.einsum("brh,hrc->brc", jax.nn.sigmoid(y), kernel) + bias[None]
    return y


def _classes(params, x: Array) -> Array:
    """x [B,D] -> the most probable classes [B,R]."""
    return _logits(params, x).argmax(-1)


@jax.jit
def _predict(params, x: Array, rows: Array) -> Array:
    return _classes(params, x[rows])


def _of_strengths(values: Array, leaf: Array) -> Array:
    """values [R] as a kernel [D,R,C] or a bias [R,C] of a slot broadcasts them."""
    return values[:, None] if leaf.ndim == 2 else values[None, :, None]


def _where(condition: Array, new: Tree, old: Tree) -> Tree:
    """Leaves of `new` in the slots [F] where the condition holds, of `old` in the others."""
    return jax.tree.map(lambda a, b: jnp.where(jnp.reshape(condition, (-1, *[1] * (a.ndim - 1))), a, b), new, old)


def _where_strengths(condition: Array, new: Layers, old: Layers) -> Layers:
    """Leaves of `new` for the slots and strengths [F,R] where the condition holds, of `old` for the others."""

    def choose(a: Array, b: Array) -> Array:
        shape = condition[..., None] if a.ndim == 3 else condition[:, None, :, None]
        return jnp.where(shape, a, b)

    return jax.tree.map(choose, new, old)

"""How the next token is chosen: the most probable one, or a draw from the model's distribution."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.decoding.constraints import Constraints
from tfm.masks.mask import MASK_VALUE

# The options of `Sample` that may exclude tokens, in the order in which they apply; that of transformers, too.
FILTERS = ("top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")


@struct.dataclass
class Greedy:
    """The most probable token.

    repetition_penalty: number or [B]; above 1, tokens that the text already has get less probable (Keskar et al. 2019,
        section 4.1)
    constraints: applied before the choice
    """

    repetition_penalty: Array | float | None = None
    constraints: Constraints | None = None

    def choose(self, logits: Array, step: Array | int) -> Array:
        """Logits [B,V] -> the next token [B] int32."""
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)

    def check(self):
        """Raises ValueError for values outside their range."""
        check_min("repetition_penalty", self.repetition_penalty, 1)
        if self.constraints is not None:
            self.constraints.check()


@struct.dataclass
class Sample:
    """A draw from the model's distribution. Options are numbers, or arrays [B]; None turns one off.

    repetition_penalty: as in `Greedy`
    temperature: divides the logits; below 1, probable tokens get more probable
    top_k: only the k most probable tokens, and those as probable as the last of them
    top_p: only the smallest set of most probable tokens with this total probability (Holtzman et al. 2020, section 3.1)
    min_p: only tokens with at least this fraction of the highest probability (Nguyen et al. 2024, section 3)
    typical_p: only the tokens whose information is nearest to the entropy, with this total probability (Meister et al.
        2022, section 3)
    epsilon_cutoff: only tokens with at least this probability (Hewitt et al. 2022, section 3.2)
    eta_cutoff: only tokens with at least this probability, or its root times exp(-entropy) (section 3.3)
    seed: int32; a row's draws depend on its seed and its own text alone
    constraints: applied before the draw

    Penalty and temperature apply first, then `FILTERS` in their order, each to the result of the previous one. `check`
    raises ValueError for a value outside its range.
    """

    repetition_penalty: Array | float | None = None
    temperature: Array | float | None = None
    top_k: Array | int | None = None
    top_p: Array | float | None = None
    min_p: Array | float | None = None
    seed: Array | np.ndarray | int = 0
    constraints: Constraints | None = None
    typical_p: Array | float | None = None
    epsilon_cutoff: Array | float | None = None
    eta_cutoff: Array | float | None = None

    def choose(self, logits: Array, step: Array | int) -> Array:
        """Logits [B,V] -> the next token [B] int32, drawn with a key for each row and step."""
        rows = len(logits)
        seeds = jnp.broadcast_to(jnp.asarray(self.seed), rows)
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), step))(seeds)
        logits = self.with_temperature(logits)
        if not self.filters:
            return jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)
        order = jnp.argsort(logits, axis=-1, descending=True)
        sorted_logits = filter_logits(self, jnp.take_along_axis(logits, order, axis=-1))
        rank = jax.vmap(jax.random.categorical)(keys, sorted_logits)
        return jnp.take_along_axis(order, rank[:, None], axis=-1)[:, 0].astype(jnp.int32)

    @property
    def filters(self) -> bool:
        """Whether an option may exclude tokens."""
        return any(getattr(self, name) is not None for name in FILTERS)

    def with_temperature(self, logits: Array) -> Array:
        """Logits [B,V] divided by the temperature."""
        return logits if self.temperature is None else logits / _column(self.temperature, len(logits))

    def check(self):
        """Raises ValueError for values outside their range."""
        check_min("repetition_penalty", self.repetition_penalty, 1)
        if self.temperature is not None and not np.all(np.asarray(self.temperature) > 0):
            raise ValueError(f"temperature={self.temperature} must be above 0; use Greedy for the most probable token")
        seeds = np.asarray(self.seed)
        if seeds.dtype.kind not in "iu" or not np.all((seeds >= -(2**31)) & (seeds < 2**31)):
            raise ValueError(f"seed={self.seed} must be an integer from {-(2**31)} to {2**31 - 1}")
        check_min("top_k", self.top_k, 1)
        for name in FILTERS[1:]:
            _check_probability(name, getattr(self, name))
        if self.constraints is not None:
            self.constraints.check()


def check_min(name: str, value: Array | float | None, minimum: float):
    """Raises ValueError if a number, or an element of an array, is below the minimum."""
    if value is not None and not np.all(np.asarray(value) >= minimum):
        raise ValueError(f"{name}={value} must be at least {minimum}")


def _check_probability(name: str, value: Array | float | None):
    if value is not None and not np.all((np.asarray(value) > 0) & (np.asarray(value) <= 1)):
        raise ValueError(f"{name}={value} must be above 0 and at most 1")


def is_in(stop: Array, vocab: int) -> Array:
    """bool [V], where the tokens [n] are."""
    return (jnp.arange(vocab)[:, None] == stop[None]).any(1)


def choose_token(strategy: Greedy | Sample, logits: Array, seen: Array | None, step: Array | int) -> Array:
    """Logits [B,V] float32 -> the next token [B] int32.

    seen [B,V] are the tokens that each text has; step is the number of tokens drawn so far, which varies the draws.
    """
    if strategy.repetition_penalty is not None and seen is not None:
        logits = penalize_repeats(logits, seen, strategy.repetition_penalty)
    return strategy.choose(logits, step)


def distribution(strategy: Greedy | Sample, logits: Array, seen: Array | None) -> Array:
    """Logits [B,V] float32 -> the probabilities [B,V] with which `choose_token` chooses, float32."""
    if strategy.repetition_penalty is not None and seen is not None:
        logits = penalize_repeats(logits, seen, strategy.repetition_penalty)
    if isinstance(strategy, Greedy):
        return jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=jnp.float32)
    if strategy.temperature is not None:
        logits = logits / _column(strategy.temperature, len(logits))
    if strategy.filters:
        order = jnp.argsort(logits, axis=-1, descending=True)
        filtered = filter_logits(strategy, jnp.take_along_axis(logits, order, axis=-1))
        logits = jnp.take_along_axis(filtered, jnp.argsort(order, axis=-1), axis=-1)
    return jax.nn.softmax(logits, axis=-1)


def penalize_repeats(logits: Array, seen: Array, penalty: Array | float) -> Array:
    """Logits [B,V] -> [B,V]; those of seen [B,V] tokens are divided by the penalty, or multiplied if negative."""
    penalty = _column(penalty, len(logits))
    penalized = jnp.where(logits > 0, logits / penalty, logits * penalty)
    return jnp.where(seen & (logits > MASK_VALUE), penalized, logits)


def filter_logits(strategy: Sample, sorted_logits: Array) -> Array:
    """Logits [B,V] in descending order -> [B,V], -inf where options exclude a token; one stays in each row."""
    rows, vocab = sorted_logits.shape
    rank = jnp.arange(vocab)[None]
    if strategy.top_k is not None:
        last = jnp.clip(_column(strategy.top_k, rows), 1, vocab) - 1
        is_kept = sorted_logits >= jnp.take_along_axis(sorted_logits, last, axis=-1)  # ties of the last one, too
        sorted_logits = jnp.where(is_kept, sorted_logits, -jnp.inf)
    if strategy.top_p is not None:
        top_p = _column(strategy.top_p, rows)
        probabilities = jax.nn.softmax(sorted_logits, axis=-1)
        preceding = jnp.cumsum(probabilities, axis=-1) - probabilities
        # top_p=1 keeps all: a float32 sum can reach 1 before the last token.
        is_kept = (rank == 0) | (preceding < top_p) | (top_p >= 1)
        sorted_logits = jnp.where(is_kept, sorted_logits, -jnp.inf)
    if strategy.min_p is not None:
        minimum = sorted_logits[:, :1] + jnp.log(_column(strategy.min_p, rows))
        sorted_logits = jnp.where(sorted_logits >= minimum, sorted_logits, -jnp.inf)
    if strategy.typical_p is not None:
        sorted_logits = _typical(sorted_logits, _column(strategy.typical_p, rows))
    if strategy.epsilon_cutoff is not None:
        sorted_logits = _above(sorted_logits, _column(strategy.epsilon_cutoff, rows))
    if strategy.eta_cutoff is not None:
        eta, (_, entropy) = _column(strategy.eta_cutoff, rows), _information(sorted_logits)
        sorted_logits = _above(sorted_logits, jnp.minimum(eta, jnp.sqrt(eta) * jnp.exp(-entropy)))
    return sorted_logits


def _typical(logits: Array, total: Array) -> Array:
    """Logits [B,V] -> [B,V], -inf but for the tokens nearest to the entropy that reach a probability; total [B,1]."""
    information, entropy = _information(logits)
    distance = jnp.abs(information - entropy)
    order = jnp.argsort(distance, axis=-1)
    reached = jnp.cumsum(jnp.take_along_axis(jax.nn.softmax(logits, axis=-1), order, axis=-1), axis=-1)
    last = jnp.minimum((reached < total).sum(-1, keepdims=True), logits.shape[-1] - 1)
    farthest = jnp.take_along_axis(distance, jnp.take_along_axis(order, last, axis=-1), axis=-1)
    return jnp.where((distance <= farthest) | (total >= 1), logits, -jnp.inf)


def _above(logits: Array, minimum: Array) -> Array:
    """Logits [B,V] -> [B,V], -inf where the probability is below minimum [B,1], but for the most probable token."""
    is_kept = (jax.nn.softmax(logits, axis=-1) >= minimum) | (logits == logits.max(-1, keepdims=True))
    return jnp.where(is_kept, logits, -jnp.inf)


def _information(logits: Array) -> tuple[Array, Array]:
    """Logits [B,V] -> those of tokens in nats [B,V], inf where one is excluded, and their mean, the entropy [B,1]."""
    information = -jax.nn.log_softmax(logits, axis=-1)
    expected = jnp.where(jnp.isinf(information), 0.0, jnp.exp(-information) * information)
    return information, expected.sum(-1, keepdims=True)


def _column(value: Array | float, rows: int) -> Array:
    """A number, or an array [B] -> [B,1]."""
    return jnp.broadcast_to(jnp.asarray(value), rows)[:, None]

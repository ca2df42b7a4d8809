"""Writing by unmasking: masked tokens are drawn all at once, and in each of several steps some of them stay (Nie et al.
2025, algorithms 4 and 5; Sahoo et al. 2024, section 4)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.config.model import Config
from tfm.masks.by_example import padding
from tfm.masks.mask import MASK_VALUE
from tfm.models.encoder import encoder
from tfm.models.heads import MaskedLM, mlm_logits
from tfm.options.choices import check_fields, check_minimum


@dataclass(frozen=True)
class Unmasking:
    """How masked tokens are uncovered. Raises ValueError for values outside their range.

    steps: passes of the model, in which equally many tokens are uncovered; no more than there are
    order: confidence | random: those whose drawn token is the most probable come first, or any
    block: masked tokens of a part of the text, which is written before those behind it; none: all are a part
    temperature: of the distribution that tokens are drawn from; 0 takes the most probable
    seed: of the draws; later rows use the next integers
    """

    steps: int = 64
    order: Literal["confidence", "random"] = "confidence"
    block: int | None = None
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, steps=1, block=1, temperature=0, seed=0)

    def counts(self, masked: int) -> list[tuple[int, int]]:
        """Of `masked` tokens of a row, in order: before which of them, and how many, each step uncovers."""
        if not masked:
            return []
        block = min(self.block or masked, masked)
        ends = [*range(block, masked, block), masked]
        starts = [0, *ends[:-1]]
        steps = np.diff(np.round(np.array([0, *ends]) / masked * min(self.steps, masked)).astype(int))
        plan = []
        for start, end, passes in zip(starts, ends, np.maximum(steps, 1).tolist(), strict=True):
            cuts = np.round(np.linspace(start, end, passes + 1)).astype(int)
            plan += [(end, count) for count in np.diff(cuts).tolist() if count]
        return plan


class Canvas(NamedTuple):
    """Texts of which some tokens are masked.

    tokens: int32 [B,T]
    masked: bool [B,T], True for tokens that are written
    valid: bool [B,T], False for padding
    """

    tokens: np.ndarray | Array
    masked: np.ndarray | Array
    valid: np.ndarray | Array


def unmask(
    model: MaskedLM, config: Config, canvas: Canvas, unmasking: Unmasking, excluded: tuple[int, ...] = ()
) -> np.ndarray:
    """Texts with masked tokens -> int32 [B,T], all tokens written.

    Rows with unequal numbers of masked tokens have steps of their own.

    excluded: tokens that are not written

    Raises ValueError for arrays of unequal shapes.
    """
    masked, shapes = np.asarray(canvas.masked), [list(array.shape) for array in canvas]
    if shapes != shapes[:1] * 3:
        raise ValueError(f"tokens, masked and valid must have one shape [B,T]; theirs are {shapes}")
    plans = [unmasking.counts(int(row.sum())) for row in masked]
    place = np.where(masked, np.cumsum(masked, axis=1), 0)
    state, of_step = Canvas(*map(jnp.asarray, canvas)), replace(unmasking, steps=1, block=None, seed=0)
    keys = jax.vmap(jax.random.key)(jnp.arange(len(masked)) + unmasking.seed)
    for n in range(max(map(len, plans), default=0)):
        ends, counts = np.array([plan[n] if n < len(plan) else (0, 0) for plan in plans]).T
        is_open = jnp.asarray(masked & (place <= ends[:, None]))
        step_keys = jax.vmap(partial(jax.random.fold_in, data=n))(keys)
        state = _step(model, config, of_step, excluded, state, is_open, jnp.asarray(counts), step_keys)
    return np.asarray(state.tokens)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _step(
    model: MaskedLM,
    config: Config,
    unmasking: Unmasking,
    excluded: tuple[int, ...],
    canvas: Canvas,
    is_open: Array,
    counts: Array,
    keys: Array,
) -> Canvas:
    """Writes counts [B] of the masked tokens that are open, bool [B,T]."""
    states = encoder(model.encoder, config, canvas.tokens, padding(jnp.asarray(canvas.valid)))
    logits = mlm_logits(model.head, config, states, model.encoder.embed.tokens)
    is_never = jnp.zeros(logits.shape[-1], bool).at[jnp.array(excluded, int)].set(True) if excluded else None
    logits = logits if is_never is None else jnp.where(is_never[None, None], MASK_VALUE, logits)
    draw_keys, order_keys = jax.vmap(partial(jax.random.split, num=2), out_axes=1)(keys)
    if unmasking.temperature:
        draw = partial(jax.random.categorical, mode="high")
        drawn = jax.vmap(draw)(draw_keys, logits / unmasking.temperature)
    else:
        drawn = logits.argmax(-1)
    if unmasking.order == "random":
        score = jax.vmap(lambda key, row: jax.random.uniform(key, row.shape))(order_keys, logits[..., 0])
    else:
        logprobs = jax.nn.log_softmax(logits, axis=-1)
        score = jnp.exp(jnp.take_along_axis(logprobs, drawn[..., None], axis=-1)[..., 0])
    candidates = canvas.masked & is_open
    ranks = jnp.argsort(jnp.argsort(jnp.where(candidates, -score, jnp.inf), axis=1), axis=1)
    written = candidates & (ranks < counts[:, None])
    tokens = jnp.where(written, drawn.astype(canvas.tokens.dtype), canvas.tokens)
    return Canvas(tokens, canvas.masked & ~written, canvas.valid)

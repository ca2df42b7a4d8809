"""Hard constraints on generated text: tokens that must come and tokens that must not, whatever their probability."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array


@struct.dataclass
class Constraints:
    """Which tokens may follow a prompt. Lengths count generated tokens only; None turns a constraint off.
    `check` raises ValueError for values outside their range.

    forced_bos: the first token
    forced_eos: the last token of a text that reaches `max_length`
    max_length: length at which `forced_eos` comes
    min_length: length below which no stop token comes
    bad_tokens: bool [V], tokens that never come
    no_repeat_ngram: n-grams of this size occur at most once (Paulus et al. 2018, section 2.5)
    prompt: int32 [B,P], whose n-grams count for `no_repeat_ngram` too
    """

    forced_bos: Array | int | None = None
    forced_eos: Array | int | None = None
    max_length: Array | int | None = None
    min_length: Array | int | None = None
    bad_tokens: Array | None = None
    no_repeat_ngram: int | None = struct.field(pytree_node=False, default=None)
    prompt: Array | None = None

    def check(self):
        """Raises ValueError for values outside their range."""
        if self.forced_eos is not None and self.max_length is None:
            raise ValueError(f"forced_eos={self.forced_eos} needs max_length; set it to the number of new tokens")
        if self.no_repeat_ngram is not None and self.no_repeat_ngram < 1:
            raise ValueError(f"no_repeat_ngram={self.no_repeat_ngram} must be at least 1; None allows all repetitions")

    def __call__(self, scores: Array, tokens: Array, length: Array, is_stop: Array) -> Array:
        """Scores [R,V] of the next token -> the same; -inf for tokens that must not come, 0 for the one that must.

        tokens [R,N] are the texts so far, of which the first `length` columns (a scalar) are filled; is_stop [V].
        """
        vocab = scores.shape[-1]
        if self.no_repeat_ngram is not None:
            prompt_length = 0
            if self.prompt is not None:
                prompt_length = self.prompt.shape[1]
                prompts = jnp.repeat(self.prompt, len(tokens) // len(self.prompt), axis=0)
                tokens = jnp.concatenate([prompts, tokens], axis=1)
            repeats = _repeats_ngram(tokens, prompt_length + length, self.no_repeat_ngram, vocab)
            scores = jnp.where(repeats, -jnp.inf, scores)
        if self.bad_tokens is not None:
            scores = jnp.where(self.bad_tokens[None], -jnp.inf, scores)
        if self.min_length is not None:
            scores = jnp.where(is_stop[None] & (length < self.min_length), -jnp.inf, scores)
        if self.forced_bos is not None:
            scores = jnp.where(length == 0, _only(self.forced_bos, vocab), scores)
        if self.forced_eos is not None and self.max_length is not None:
            scores = jnp.where(length == self.max_length - 1, _only(self.forced_eos, vocab), scores)
        return scores


def _repeats_ngram(tokens: Array, length: Array, size: int, vocab: int) -> Array:
    """tokens [R,N], `length` columns filled -> bool [R,V]: next tokens that complete an n-gram that the row has."""
    rows, slots = tokens.shape
    if slots < size:
        return jnp.zeros((rows, vocab), bool)
    starts = jnp.arange(slots - size + 1)
    context = jax.lax.dynamic_slice_in_dim(tokens, jnp.maximum(length - size + 1, 0), size - 1, axis=1)
    matches = (starts + size <= length)[None] & (length >= size)
    for offset in range(size - 1):
        matches &= tokens[:, offset : offset + len(starts)] == context[:, offset, None]
    return jnp.zeros((rows, vocab), bool).at[jnp.arange(rows)[:, None], tokens[:, size - 1 :]].max(matches)


def _only(token: Array | int, vocab: int) -> Array:
    """[1,V]: 0 for one token, -inf for the rest."""
    return jnp.where(jnp.arange(vocab) == token, 0, -jnp.inf)[None]

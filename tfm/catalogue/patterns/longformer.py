"""A sliding window and global tokens (Longformer: Beltagy et al. 2020, section 3.1)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import apply_weights, biased_scores, masked_weights
from tfm.attention.project import SoftmaxCall, keys_values, merge_heads, project, queries, with_positions
from tfm.catalogue.options.patterns import Global
from tfm.config.model import Config
from tfm.interfaces import LayerCall, MixerOutput, Score, refuse
from tfm.masks.distance import causal, decompose, window
from tfm.masks.mask import Mask
from tfm.masks.place import global_places, spans_of
from tfm.ops import Linear, dropout, linear_specs
from tfm.patterns import Pattern
from tfm.sharding import replicate_length, shard_axis, spec_of

# Places of neighbouring tokens: from a start up to, but not with, a stop.
Spans = Sequence[tuple[int, int]]


@struct.dataclass
class GlobalProjections:
    """Projections for the queries of global tokens: of these queries, and of the keys and values that they see."""

    query: Linear
    key: Linear
    value: Linear
    query_norm: None = None
    key_norm: None = None


def mask(options: Global, config: Config, is_causal: bool) -> Mask:
    """The window, and both directions between the global tokens and the others."""
    half = options.window // 2
    local = window(options.window - 1, 0) if is_causal else window(half, half)
    if not options.global_places:
        return local
    pattern = local | global_places(options.global_places)
    return causal() & pattern if is_causal else pattern


def specs(options: Global, config: Config) -> GlobalProjections | None:
    """The projections, where there are any."""
    if not options.projections:
        return None
    return GlobalProjections(
        query=linear_specs(config, "D", "KGH"),
        key=linear_specs(config, "D", "KH"),
        value=linear_specs(config, "D", "KH", branch=True),
    )


def forward(call: SoftmaxCall, x: Array, score: Score) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    context = call.prepared.context
    pattern_call = LayerCall(call.options.pattern, call.config, call.params.pattern, context, call.key)
    y, output = call.prepared.path(call, with_positions(call, *project(call, x), score))
    return merge_heads(call.params, attend_globally(pattern_call, x, y, score)), output


def attend_globally(call: LayerCall, x: Array, heads: Array, score: Score) -> Array:
    """The heads [B,T,K,G,H] with those of the global tokens by their own projections.

    Raises VariantError for a decoder, several texts in a row, and a bias of positions that is computed for all queries
    at once.
    """
    layer, config, context, length = call.params, call.config, call.prepared, x.shape[1]
    spans = [(start, min(stop, length)) for start, stop in spans_of(call.options.global_places) if start < length]
    if layer is None or not spans:
        return heads
    if context.causal or decompose(context.mask).segments is not None:
        remedy = "try mixer.pattern.projections=false"
        refuse(call.options, "with projections reads texts from both sides, each in a row of its own", remedy)
    k, v = keys_values(layer, config, x)
    of_global = queries(layer, config, _rows_of(replicate_length(x), spans))
    everywhere = _with_rows(jnp.zeros_like(replicate_length(heads)), of_global, spans)  # positions are those of all
    q, k, bias = score(shard_axis(everywhere, spec_of(heads)[1]), k, layer)
    if bias is not None and not bias.blockwise:
        refuse(call.options, "with projections cannot use these positions", "try position=learned or position=rotary")
    q, rate, parts = replicate_length(q), config.attn_rate_with(call.key), []
    for index, (start, stop) in enumerate(spans):  # biases compare positions that are consecutive
        i, j = jnp.arange(start, stop)[None], jnp.arange(length)[None]
        weights = masked_weights(biased_scores(q[:, start:stop], k, bias, i, j), context.mask, i, j)
        key = None if call.key is None else jax.random.fold_in(call.key, index)
        parts.append(apply_weights(dropout(weights, rate, key), v, bias, i, j))
    y = _with_rows(replicate_length(heads), jnp.concatenate(parts, axis=1), spans)
    return shard_axis(y, spec_of(heads)[1])


def _rows_of(x: Array, spans: Spans) -> Array:
    """x [B,T,...] -> [B,t,...] of the places in spans."""
    return jnp.concatenate([x[:, start:stop] for start, stop in spans], axis=1)


def _with_rows(x: Array, rows: Array, spans: Spans) -> Array:
    """x [B,T,...] with rows [B,t,...] at the places in spans."""
    parts, end, count = [], 0, 0
    for start, stop in spans:
        parts += [x[:, end:start], rows[:, count : count + stop - start]]
        end, count = stop, count + stop - start
    return jnp.concatenate([*parts, x[:, end:]], axis=1)


PATTERN = Pattern(mask, specs=specs, forward=forward)

"""Patterns as rules for a query i and a key j, pair by pair, and softmax attention under them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import tfm
from oracles import heads, output, softmax
from tfm.catalogue.patterns.bigbird import random_blocks

Rule = Callable[[int, int], bool]


def rule_of(options: Any, config: tfm.Config, causal: bool) -> Rule:
    """What a pattern allows; i and j count from the start of a text."""
    rule = RULES[options.name](options, config, causal)
    return lambda i, j: bool(rule(i, j)) and (j <= i or not causal)


def table(rule: Rule, queries: int, keys: int | None = None) -> np.ndarray:
    """bool [T,S]."""
    return np.array([[rule(i, j) for j in range(queries if keys is None else keys)] for i in range(queries)])


def pattern(row: dict[str, Any]) -> Callable[[Any, np.ndarray], np.ndarray]:
    """The oracle of a row of variants: attention to the keys that its pattern allows."""

    def oracle(params: Any, x: np.ndarray) -> np.ndarray:
        from variants import BASE

        config = tfm.override(BASE, row)
        options = config.mixer.pattern
        allowed = table(rule_of(options, config, False), x.shape[1])
        q, k, v = heads(params, x)
        bias = label_scores(params.pattern, options, q) if options.name == "etc" else 0.0
        if options.name == "transient":
            k, v, allowed = _with_blocks(params, options, x, k, v, allowed)
        if getattr(options, "dilated_heads", None):
            window = table(rule_of(replace(options, dilation=1, dilated_heads=None), config, False), x.shape[1])
            count = config.heads - options.dilated_heads
            allowed = np.stack([window] * count + [allowed] * options.dilated_heads)
            allowed = allowed.reshape(config.sizes["K"], config.sizes["G"], *window.shape)
        y = _attend(q, k, v, allowed, bias)
        if getattr(options, "projections", False):
            of_global = _attend(*heads(params.pattern, x), np.ones_like(allowed))
            places = [place for place in _global_places(options) if place < x.shape[1]]
            y[:, places] = of_global[:, places]
        return output(params, y)

    return oracle


def bigbird_of_folders(row: dict[str, Any]) -> Callable[[Any, np.ndarray], np.ndarray]:
    """The oracle of a row of variants: transformers in evaluation, which gathers blocks of keys, the first one again
    for each random block."""

    def oracle(params: Any, x: np.ndarray) -> np.ndarray:
        from variants import BASE

        options = tfm.override(BASE, row).mixer.pattern
        q, k, v = heads(params, x)
        y = np.zeros(q.shape)
        for i in range(x.shape[1]):
            keys = [j for block in _gathered_blocks(options, i // options.block, x.shape[1]) for j in block]
            weights = softmax(np.einsum("bkgh,bskgh->bkgs", q[:, i], k[:, keys]) * q.shape[-1] ** -0.5)
            y[:, i] = np.einsum("bkgs,bskgh->bkgh", weights, v[:, keys])
        return output(params, y)

    return oracle


def _gathered_blocks(o: Any, block: int, length: int) -> list[range]:
    """The keys of the blocks that a block sees, with repetitions."""
    blocks = [range(start, min(start + o.block, length)) for start in range(0, length, o.block)]
    count, ends = len(blocks), [*range(o.global_blocks), *range(len(blocks) - o.last_blocks, len(blocks))]
    if count <= o.dense_blocks or block in ends:
        return blocks
    window = [n for n in range(block - o.window // 2, block + o.window // 2 + 1) if n not in ends]
    return [blocks[n] for n in [*ends, *window, *[0] * o.random]]


def _attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray, bias: Any = 0.0) -> np.ndarray:
    scores = np.einsum("btkgh,bskgh->bkgts", q, k) * q.shape[-1] ** -0.5 + bias
    return np.einsum("bkgts,bskgh->btkgh", softmax(np.where(allowed, scores, -np.inf)), v)


def label_scores(table: Any, options: Any, q: np.ndarray) -> np.ndarray:
    """Ainslie et al. 2020, section 3.1: queries [B,T,K,G,H] times the vector of the label of each pair, looked up one
    by one -> [B,K,G,T,S]."""
    rows, reach = np.asarray(table, np.float64), 2 * options.labels + 1
    scores = np.zeros((len(q), *q.shape[2:4], q.shape[1], q.shape[1]))
    for i, j in np.ndindex(scores.shape[3:]):
        label = max(-options.labels, min(options.labels, j - i)) + options.labels
        if i < options.tokens:
            label = label + reach if j < options.tokens else 2 * reach
        elif j < options.tokens:
            label = 2 * reach + 1
        scores[..., i, j] = q[:, i] @ rows[label] * q.shape[-1] ** -0.5
    return scores


def _with_blocks(params: Any, options: Any, x: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray) -> tuple:
    """Guo et al. 2022, section 3.1: keys and values with those of normalized sums, which all queries see."""
    count, sums = x.shape[1] // options.block, []
    for block in range(count):
        first, last = block * options.block, x.shape[1] if block == count - 1 else (block + 1) * options.block
        total = sum(x[:, place] for place in range(first, last))
        centered = total - total.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
        sums.append(scaled * np.asarray(params.pattern.scale) + np.asarray(params.pattern.bias))
    _, block_k, block_v = heads(params, np.stack(sums, axis=1))
    allowed = np.concatenate([allowed, np.ones((len(allowed), count), bool)], axis=1)
    return np.concatenate([k, block_k], axis=1), np.concatenate([v, block_v], axis=1), allowed


def _full(o, config, causal) -> Rule:
    return lambda i, j: True


def _local(o, config, causal) -> Rule:
    return lambda i, j: abs(i // o.block - j // o.block) <= o.neighbours


def _sliding(o, config, causal) -> Rule:
    steps = o.window - 1 if causal else o.window // 2
    return lambda i, j: (j - i) % o.dilation == 0 and abs(j - i) // o.dilation <= steps


def _strided(o, config, causal) -> Rule:
    return lambda i, j: abs(i - j) <= o.stride or (i - j) % o.stride == 0


def _fixed(o, config, causal) -> Rule:
    size = o.block if o.own_block else 1
    return lambda i, j: i // size == j // size or j % o.block in range(o.block - o.summary, o.block)


def _global(o, config, causal) -> Rule:
    steps = o.window - 1 if causal else o.window // 2
    places = _global_places(o)
    return lambda i, j: abs(i - j) <= steps or i in places or j in places


def _global_places(o) -> list[int]:
    return [int(place) for place in o.places.split(",")] if o.places else [*range(o.tokens)]


def _etc(o, config, causal) -> Rule:
    return lambda i, j: abs(i - j) <= o.radius or min(i, j) < o.tokens


def _transient(o, config, causal) -> Rule:
    return lambda i, j: abs(i - j) <= o.radius


def _bigbird(o, config, causal) -> Rule:
    chosen = random_blocks(o, config.length, causal)
    steps = o.window - 1 if causal else o.window // 2

    def rule(i: int, j: int) -> bool:
        block_i, block_j = i // o.block, j // o.block
        return abs(block_i - block_j) <= steps or min(block_i, block_j) < o.global_blocks or block_j in chosen[block_i]

    return rule


RULES: dict[str, Callable[[Any, tfm.Config, bool], Rule]] = {
    "full": _full,
    "local": _local,
    "sliding": _sliding,
    "strided": _strided,
    "fixed": _fixed,
    "global": _global,
    "etc": _etc,
    "transient": _transient,
    "bigbird": _bigbird,
}

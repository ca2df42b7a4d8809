"""Tensors that hold one parameter: an absent one is read from its copy, and those that are there must be equal."""

from collections.abc import Iterator, Sequence

import numpy as np

from tfm.hf.family import Family, HfHead
from tfm.hf.parameters import Leaf
from tfm.hf.tensors import Weights

# What predicts tokens out of the table of tokens, if not out of a table of its own.
PREDICTORS = ("mlm", "pretrain", "lm", "seq2seq")
BLOCK = 1 << 22  # elements that are compared at a time


def renamed(model_leaves: Sequence[Leaf], family: Family, tensors: Weights) -> list[Leaf]:
    """The leaves with the names that a folder uses: the tensor of the family, or else a copy of it."""
    read_leaves = []
    for leaf in model_leaves:
        tensor, read_leaf, copies = leaf.tensor, leaf, copies_of(leaf, model_leaves, family)
        for name in (*_variants(tensor.name, family), *_variants(tensor.fallback_name, family), *copies):
            candidate = leaf._replace(tensor=tensor._replace(name=name))
            if candidate.names and candidate.names[0] in tensors:
                read_leaf = candidate
                break
        read_leaves.append(read_leaf)
    return read_leaves


def _variants(name: str, family: Family) -> Iterator[str]:
    """A name as folders have it: some lack the family's prefix, and older ones say gamma and beta in norms."""
    for candidate in dict.fromkeys((name, name.removeprefix(family.prefix))):
        module, _, last = candidate.rpartition(".")
        yield candidate
        if last in ("weight", "bias"):
            yield f"{module}.{'gamma' if last == 'weight' else 'beta'}"


def copies_of(leaf: Leaf, model_leaves: Sequence[Leaf], family: Family) -> list[str]:
    """The names of the copies of a parameter, but for tensors that hold another parameter of this model."""
    copies = family.copies.get(leaf.tensor.name, ())
    if not copies:
        return []
    own_names = {
        name
        for peer in model_leaves
        if peer.path != leaf.path
        for name in (peer.tensor.name, peer.tensor.fallback_name, *family.copies.get(peer.tensor.name, ()))
    }
    return [variant for name in copies if name not in own_names for variant in _variants(name, family)]


def differing(
    model_leaves: Sequence[Leaf], read_leaves: Sequence[Leaf], family: Family, head: HfHead, tensors: Weights
) -> list[tuple[str, str]]:
    """Pairs of tensors that hold one parameter and have different values; only pairs that are there are read.

    model_leaves: with the names of the family
    read_leaves: the same ones with the names of the folder
    """
    may_tie = head.kind in PREDICTORS and "tie_embeddings" not in head.overrides
    used: set[str] = set()
    for leaf in read_leaves:
        used.update(leaf.names)
    pairs = []
    for leaf, read_leaf in zip(model_leaves, read_leaves, strict=True):
        copies = copies_of(leaf, model_leaves, family) if may_tie else ()
        for copy in (*_variants(read_leaf.tensor.name, family), *copies):
            peer = leaf._replace(tensor=leaf.tensor._replace(name=copy))
            for name, second in zip(read_leaf.names, peer.names, strict=False):
                if second not in used and second in tensors and name in tensors and not _equal(tensors, name, second):
                    pairs.append((name, second))
    return pairs


def _equal(tensors: Weights, first: str, second: str) -> bool:
    """Whether two tensors have the same values; they are read in blocks."""
    if tensors.like(first).shape != tensors.like(second).shape:
        return False
    flat = [tensors[name].reshape(-1) for name in (first, second)]
    blocks = ([array[start : start + BLOCK] for array in flat] for start in range(0, flat[0].size, BLOCK))
    is_equal = all(_equal_blocks(*pair) for pair in blocks)
    for name in (first, second):
        tensors.release(name)
    return is_equal


def _equal_blocks(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays have the same bytes, or the same values in another dtype."""
    if first.dtype == second.dtype and np.array_equal(first.view(np.uint8), second.view(np.uint8)):
        return True
    return np.array_equal(first.astype(np.float32), second.astype(np.float32))

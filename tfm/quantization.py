"""A trained model with kernels and tables in eight bits, to write and predict with a quarter of the memory."""

import jax
from jax.tree_util import KeyPath

from tfm.int8 import quantize
from tfm.ops import Linear
from tfm.params import ArraySpec, PyTree, Spec

# The tables of tokens, by the last word of their path.
_TABLES = ("tokens", "table")


def quantize_weights(specs: PyTree, params: PyTree) -> PyTree:
    """Parameters [as `specs` declares them] -> the same tree with `Int8` in place of kernels and tables of tokens.

    A kernel has a scale for each output, a table one for each row; products round what they multiply to eight bits too
    (`tfm.einsum`). Biases, norms and parameters of variants that are no
    linear maps stay. It cannot be trained. Raises ValueError for parameters with low-rank updates, which
    `merge_low_rank` adds first.
    """

    def quantized(path, spec: PyTree, leaf: PyTree) -> PyTree:
        if isinstance(spec, Linear):
            kernel: ArraySpec = spec.kernel
            first = int(kernel.axes.startswith("L"))
            inputs = tuple(range(first, first + kernel.inputs))
            return Linear(quantize(leaf.kernel, inputs), leaf.bias) if inputs else leaf
        return quantize(leaf, (1,)) if _is_table(path, spec) else leaf

    structure: object = jax.tree.structure(specs)
    if structure != jax.tree.structure(params):
        raise ValueError("params must have the leaves of specs; merge low-rank updates with tfm.merge_low_rank first")
    return jax.tree_util.tree_map_with_path(quantized, specs, params, is_leaf=lambda node: isinstance(node, Linear))


def _is_table(path: KeyPath, spec: Spec) -> bool:
    """Whether a parameter is a table of tokens."""
    name = jax.tree_util.keystr(path[-1:], simple=True)
    return name in _TABLES and len(spec.axes) == 2 and spec.axes[0] == "V" and spec.inputs == 1


def weight_bytes(params: PyTree) -> int:
    """The bytes of all parameters."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(params))

"""Quantized folders as float32 tensors, by the names that the models of transformers have.

What `quantization_config` names says how the tensors beside a module's codes are read:

    fp8, compressed-tensors   weight (float8) times weight_scale or weight_scale_inv, of the tensor, a row or a block
    bitsandbytes, 8 bits      weight (int8) times SCB of its row, over 127 (Dettmers et al. 2022)
    bitsandbytes, 4 bits      weight: two codes in a byte, of a table of 16 values, times absmax of the block
    gptq                      qweight [in / n, out] of n codes in 32 bits, minus qzeros + 1, times scales of the group
    awq                       qweight [in, out / 8], whose codes stand in another order, minus qzeros, times scales

Every other method is refused: codes are never read as if they were weights.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfm.hf.fields import Fields
from tfm.hf.tensors import Weights

AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # where the codes 0 to 7 stand in 32 bits
STATE = ".quant_state.bitsandbytes__"


class Quantized(NamedTuple):
    """A quantized weight.

    make: reads it as float32
    parts: the tensors that it is made of
    """

    name: str
    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]
    parts: set[str]


class Dequantized(Weights):
    """The weights of a folder, whose quantized tensors are made as they are read."""

    def __init__(self, stored: Weights, weights: Sequence[Quantized]):
        parts = {name for weight in weights for name in weight.parts}
        super().__init__({name: array for name, array in stored.items() if name not in parts})
        self.files, self.stored = stored.files, stored
        self.dequantized = {weight.name: weight for weight in weights}
        self.update({name: np.broadcast_to(np.float32(0), weight.shape) for name, weight in self.dequantized.items()})

    def __getitem__(self, name: str) -> np.ndarray:
        return self.dequantized[name].make() if name in self.dequantized else super().__getitem__(name)

    def like(self, name: str) -> np.ndarray:
        """An array of the shape and the dtype of a tensor, which is not read."""
        return super().__getitem__(name)

    def release(self, name: str) -> None:
        """Frees what is stored under the name."""
        if name in self.stored:
            self.stored.release(name)


def dequantized(stored: Weights, fields: Fields, folder: Path) -> Weights:
    """The weights of a folder whose config.json has a `quantization_config`, as float32. Raises ValueError for a method
    that is not read."""
    options = fields["quantization_config"]
    if not isinstance(options, Mapping):
        raise ValueError(f"{folder}/config.json has quantization_config={options!r}, which must be an object")
    method = str(options.get("quant_method", "of no name")).lower()
    if method not in _READERS:
        raise ValueError(
            f"{folder}/config.json has quantization_config of method {method}; read are {', '.join(_READERS)}: "
            "give the folder of the model before it was quantized"
        )
    weights = [_READERS[method](name, stored, options) for name in stored]
    return Dequantized(stored, [weight for weight in weights if weight is not None])


def _scaled(name: str, stored: Weights, options: Mapping[str, Any]) -> Quantized | None:
    """float8 with a scale of the tensor, of each row, or of each block."""
    module, _, last = name.rpartition(".")
    if last not in ("weight_scale", "weight_scale_inv"):
        return None
    weight = f"{module}.weight"
    if weight not in stored or not stored[weight].dtype.name.startswith("float8"):
        codes = "no tensor" if weight not in stored else stored[weight].dtype.name
        raise ValueError(f"{name} scales {codes}, and only float8 is read so; give the model before it was quantized")
    block = options.get("weight_block_size") or (0, 0)
    make = partial(_times_scale, stored, weight, name, block)
    return Quantized(weight, stored[weight].shape, make, {name, f"{module}.input_scale"})


def _times_scale(stored: Weights, weight: str, scale: str, block: Sequence[int]) -> np.ndarray:
    array, scales = stored[weight].astype(np.float32), stored[scale].astype(np.float32)
    if scales.size == 1:
        return array * scales.reshape(())
    scales = scales.reshape(len(scales), -1)
    for axis, (size, count) in enumerate(zip(array.shape, scales.shape, strict=True)):
        repeats = 1 if count == size else size if count == 1 else block[axis]
        if not repeats or -(-size // repeats) != count:
            raise ValueError(f"{scale} of shape {scales.shape} scales no blocks of {weight} of shape {array.shape}")
        scales = np.repeat(scales, repeats, axis).take(np.arange(size), axis)
    return array * scales


def _bitsandbytes(name: str, stored: Weights, options: Mapping[str, Any]) -> Quantized | None:
    """int8 with SCB, or 4 bits with a state."""
    module, _, last = name.rpartition(".")
    if last == "SCB":
        weight = f"{module}.weight"
        return Quantized(
            weight, stored[weight].shape, partial(_rows, stored, module), {name, f"{module}.weight_format"}
        )
    weight, is_state, _ = name.partition(STATE)
    if not is_state:
        return None
    parts = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
    state = json.loads(stored[name].tobytes())
    make = partial(_four_bits, stored, weight, state)
    return Quantized(weight, tuple(state["shape"]), make, {name, *(f"{weight}.{part}" for part in parts)})


def _rows(stored: Weights, module: str) -> np.ndarray:
    return stored[f"{module}.weight"].astype(np.float32) * (stored[f"{module}.SCB"].astype(np.float32)[:, None] / 127)


def _four_bits(stored: Weights, weight: str, state: Mapping[str, Any]) -> np.ndarray:
    scales = stored[f"{weight}.absmax"]
    if f"{weight}.nested_absmax" in stored:
        nested = stored[f"{weight}.nested_absmax"].astype(np.float32)
        blocks = np.repeat(nested, state["nested_blocksize"])[: scales.size]
        scales = stored[f"{weight}.nested_quant_map"][scales.reshape(-1)] * blocks + state.get("nested_offset", 0)
    bytes_ = stored[weight].reshape(-1)
    codes = np.stack([bytes_ >> 4, bytes_ & 15], 1).reshape(-1)[: math.prod(state["shape"])]
    values = stored[f"{weight}.quant_map"].astype(np.float32)[codes]
    factors = np.repeat(scales.astype(np.float32).reshape(-1), state["blocksize"])[: values.size]
    return (values * factors).reshape(state["shape"])


def _groups(name: str, stored: Weights, options: Mapping[str, Any]) -> Quantized | None:
    """Codes with a scale and a zero for each group of inputs."""
    module, _, last = name.rpartition(".")
    if last != "qweight":
        return None
    method, bits = str(options["quant_method"]).lower(), options.get("bits", options.get("w_bit", 4))
    version = options.get("version", "gemm")
    if bits not in (2, 4, 8) or (method == "awq" and (bits != 4 or str(version).lower() != "gemm")):
        raise ValueError(f"{name} is of {method} with {bits} bits, {version}; give the model before it was quantized")
    make = partial(_awq if method == "awq" else _gptq, stored, module, bits, options)
    rows, columns = stored[name].shape
    shape = (columns * 8, rows) if method == "awq" else (columns, rows * 32 // bits)
    return Quantized(
        f"{module}.weight", shape, make, {f"{module}.{part}" for part in ("qweight", "qzeros", "scales", "g_idx")}
    )


def _unpacked(codes: np.ndarray, bits: int) -> np.ndarray:
    """int32 [rows, n] -> the codes [rows, n, 32 / bits] in them, the lowest bits first."""
    return (codes.astype(np.uint32)[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & np.uint32((1 << bits) - 1)


def _gptq(stored: Weights, module: str, bits: int, options: Mapping[str, Any]) -> np.ndarray:
    packed, scales = stored[f"{module}.qweight"], stored[f"{module}.scales"].astype(np.float32)
    codes = _unpacked(packed, bits).transpose(0, 2, 1).reshape(-1, packed.shape[1]).astype(np.float32)
    zeros = _unpacked(stored[f"{module}.qzeros"], bits).reshape(len(scales), -1).astype(np.float32)
    zeros += 0 if options.get("checkpoint_format") == "gptq_v2" else 1
    if f"{module}.g_idx" in stored:
        group = stored[f"{module}.g_idx"]
    else:
        group = np.arange(len(codes)) // -(-len(codes) // len(scales))
    return np.ascontiguousarray(((codes - zeros[group]) * scales[group]).T)


def _awq(stored: Weights, module: str, bits: int, options: Mapping[str, Any]) -> np.ndarray:
    scales = stored[f"{module}.scales"].astype(np.float32)
    codes, zeros = (
        _unpacked(stored[f"{module}.{part}"], bits)[..., AWQ_ORDER].reshape(len(stored[f"{module}.{part}"]), -1)
        for part in ("qweight", "qzeros")
    )
    group = np.arange(len(codes)) // -(-len(codes) // len(scales))
    return np.ascontiguousarray(((codes.astype(np.float32) - zeros[group]) * scales[group]).T)


_READERS: Mapping[str, Callable[[str, Weights, Mapping[str, Any]], Quantized | None]] = {
    "fp8": _scaled,
    "fbgemm_fp8": _scaled,
    "compressed-tensors": _scaled,
    "bitsandbytes": _bitsandbytes,
    "gptq": _groups,
    "awq": _groups,
}

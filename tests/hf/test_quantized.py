"""Quantized folders: codes that loops unpack, one by one, and what is refused."""

import json

import ml_dtypes
import numpy as np
import pytest
from hf.test_regressions import LLAMA, save

from tfm import from_hf

NAME = "model.layers.0.mlp.up_proj"  # [6, 8]
DRAW = np.random.default_rng(0)


def read(folder, options, parts):
    """The weight of one module, whose tensors in the folder are `parts`."""

    def edit(arrays):
        del arrays[f"{NAME}.weight"]
        arrays |= {f"{NAME}.{part}": array for part, array in parts.items()}

    fields = LLAMA | {"quantization_config": options}
    save(folder, LLAMA, edit)
    (folder / "config.json").write_text(json.dumps(fields))
    return np.asarray(from_hf(folder)[1].decoder.layers.period[0].feed_forward.up.kernel)[0].T


@pytest.mark.parametrize(
    ("part", "shape"), [("weight_scale", ()), ("weight_scale", (6, 1)), ("weight_scale_inv", (2, 2))]
)
def test_float8(tmp_path, part, shape):
    codes = DRAW.normal(size=(6, 8)).astype(ml_dtypes.float8_e4m3fn)
    scales = DRAW.uniform(1, 2, shape).astype(np.float32)
    options = {"quant_method": "fp8"} | ({"weight_block_size": [4, 4]} if shape == (2, 2) else {})
    expected = np.zeros((6, 8), np.float32)
    for row in range(6):
        for column in range(8):
            place = {(): (), (6, 1): (row, 0), (2, 2): (row // 4, column // 4)}[shape]
            expected[row, column] = np.float32(codes[row, column]) * scales[place]
    np.testing.assert_array_equal(read(tmp_path, options, {"weight": codes, part: scales}), expected)


def test_int8_of_bitsandbytes(tmp_path):
    codes, scales = DRAW.integers(-127, 128, (6, 8)).astype(np.int8), DRAW.uniform(1, 2, 6).astype(np.float32)
    options = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    weight = read(tmp_path, options, {"weight": codes, "SCB": scales, "weight_format": np.uint8(0)})
    expected = [[codes[row, column] * scales[row] / 127 for column in range(8)] for row in range(6)]
    np.testing.assert_allclose(weight, expected, rtol=1e-6)


@pytest.mark.parametrize("nested", [False, True])
def test_four_bits_of_bitsandbytes(tmp_path, nested):
    values = np.sort(DRAW.normal(size=16)).astype(np.float32)
    codes, scales = DRAW.integers(0, 16, 48), DRAW.uniform(1, 2, 3).astype(np.float32)
    state = {"shape": [6, 8], "blocksize": 16, "dtype": "float32", "quant_type": "nf4"}
    parts = {"weight": np.uint8([16 * high + low for high, low in codes.reshape(-1, 2)])[:, None]}
    if nested:
        table, scale_codes = DRAW.normal(size=256).astype(np.float32), np.uint8([7, 200, 31])
        state |= {"nested_blocksize": 2, "nested_offset": 0.5}
        parts |= {"weight.nested_absmax": np.float32([3, 4]), "weight.nested_quant_map": table}
        parts["weight.absmax"] = scale_codes
        scales = [table[code] * (3, 4)[index // 2] + 0.5 for index, code in enumerate(scale_codes)]
    else:
        parts["weight.absmax"] = scales
    parts |= {"weight.quant_map": values}
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    weight = read(tmp_path, {"quant_method": "bitsandbytes"}, parts | {"weight.quant_state.bitsandbytes__nf4": text})
    expected = [values[code] * scales[index // 16] for index, code in enumerate(codes)]
    np.testing.assert_allclose(weight.ravel(), expected, rtol=1e-6)


def pack(codes, order=range(8)):
    """Eight codes of four bits in an int32; that of number order[i] stands at the bits 4 i."""
    return np.uint32(sum(int(codes[code]) << (4 * place) for place, code in enumerate(order))).view(np.int32)


@pytest.mark.parametrize("groups", [None, [1, 0, 1, 0, 0, 1, 0, 1]])
def test_gptq(tmp_path, groups):
    """Codes of eight inputs in an integer; zeros are stored less one."""
    codes, zeros = DRAW.integers(0, 16, (8, 8)), DRAW.integers(0, 15, (2, 8))
    scales = DRAW.uniform(1, 2, (2, 8)).astype(np.float16)
    parts = {
        "qweight": np.array([[pack(codes[:, column]) for column in range(8)]]),
        "qzeros": np.array([[pack(row)] for row in zeros]),
        "scales": scales,
    } | ({} if groups is None else {"g_idx": np.int32(groups)})
    fields = {"quant_method": "gptq", "bits": 4, "group_size": 4}
    weight = read_square(tmp_path, fields, parts)
    groups = groups or [0] * 4 + [1] * 4
    for row in range(8):
        for column in range(8):
            group = groups[row]
            expected = (codes[row, column] - zeros[group, column] - 1) * np.float32(scales[group, column])
            assert weight[column, row] == pytest.approx(expected, rel=1e-6)


def test_awq(tmp_path):
    """Codes of eight outputs in an integer, the even ones first."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    codes, zeros = DRAW.integers(0, 16, (8, 8)), DRAW.integers(0, 16, (2, 8))
    scales = DRAW.uniform(1, 2, (2, 8)).astype(np.float16)
    parts = {
        "qweight": np.array([[pack(row, order)] for row in codes]),
        "qzeros": np.array([[pack(row, order)] for row in zeros]),
        "scales": scales,
    }
    weight = read_square(tmp_path, {"quant_method": "awq", "bits": 4, "version": "gemm"}, parts)
    for row in range(8):
        for column in range(8):
            expected = (codes[row, column] - zeros[row // 4, column]) * np.float32(scales[row // 4, column])
            assert weight[column, row] == pytest.approx(expected, rel=1e-6)


def read_square(folder, options, parts):
    """As `read`, of a module of eight inputs and outputs."""
    name = "model.layers.0.self_attn.o_proj"

    def edit(arrays):
        del arrays[f"{name}.weight"]
        arrays |= {f"{name}.{part}": array for part, array in parts.items()}

    save(folder, LLAMA, edit)
    (folder / "config.json").write_text(json.dumps(LLAMA | {"quantization_config": options}))
    kernel = from_hf(folder)[1].decoder.layers.period[0].mixer.output.kernel
    return np.asarray(kernel)[0].reshape(8, 8).T


def test_integers_are_no_weights(tmp_path):
    def edit(arrays):
        arrays[f"{NAME}.weight"] = np.ones((6, 8), np.int8)

    folder, _ = save(tmp_path, LLAMA, edit)
    with pytest.raises(ValueError, match="up_proj.weight as int8, which are no weights without the scales"):
        from_hf(folder)
    for options, sentence in (
        ({"quant_method": "hqq"}, "quantization_config of method hqq; read are fp8"),
        ("4bit", "quantization_config='4bit', which must be an object"),
        ({"quant_method": "bitsandbytes"}, "as int8, which are no weights"),
    ):
        (folder / "config.json").write_text(json.dumps(LLAMA | {"quantization_config": options}))
        with pytest.raises(ValueError, match=sentence):
            from_hf(folder)

"""GGUF files, which the package writes here, and what of them is refused."""

import json

import numpy as np
import pytest
from hf.test_regressions import LLAMA, save

from tfm import from_hf

gguf = pytest.importorskip("gguf")
SIZES = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 2, "head_dim": 32}
FIELDS = LLAMA | SIZES | {"num_key_value_heads": 1, "rope_theta": 500.0, "rms_norm_eps": 1e-5}
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def neighbours(array, heads):
    """The rows of every head: 0, n / 2, 1, n / 2 + 1, ..."""
    rows = array.reshape(heads, -1, array.shape[1])
    half = rows.shape[1] // 2
    order = [row for pair in zip(range(half), range(half, 2 * half), strict=True) for row in pair]
    return rows[:, order].reshape(array.shape)


def write(folder, arrays, kind=None, architecture="llama"):
    """A file of the tensors of a Llama; tables and kernels are of a quantized type, or float32."""
    writer = gguf.GGUFWriter(folder / "model.gguf", architecture)
    writer.add_context_length(64)
    writer.add_block_count(1)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500.0)
    for name, array in arrays.items():
        module = name.removesuffix(".weight").removeprefix("model.layers.0.")
        prefix = "blk.0." if name.startswith("model.layers") else ""
        heads = {"self_attn.q_proj": 2, "self_attn.k_proj": 1}.get(module)
        array = neighbours(array, heads) if heads else array
        if kind is not None and array.ndim == 2:
            codes = gguf.quantize(array, kind)
            writer.add_tensor(f"{prefix}{NAMES[module]}.weight", codes, raw_dtype=kind)
        else:
            writer.add_tensor(f"{prefix}{NAMES[module]}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


@pytest.fixture
def plain(tmp_path):
    """A folder of safetensors, and its tensors."""
    return save(tmp_path / "plain", FIELDS)


def test_float32(plain, tmp_path):
    expected_config, expected = from_hf(plain[0])
    (tmp_path / "gguf").mkdir()
    config, params = from_hf(write(tmp_path / "gguf", plain[1]))
    assert config == expected_config
    for array, values in zip(leaves(params), leaves(expected), strict=True):
        np.testing.assert_array_equal(array, values)


def leaves(params):
    import jax

    return jax.tree.leaves(params)


@pytest.mark.parametrize(("kind", "levels"), [("F16", 2048), ("Q8_0", 254), ("Q4_0", 14), ("Q4_1", 15)])
def test_quantized_types(plain, tmp_path, kind, levels):
    """No number is further from its own than a step of the grid of its block."""
    (tmp_path / "gguf").mkdir()
    folder = write(tmp_path / "gguf", plain[1], gguf.GGMLQuantizationType[kind])
    values = np.asarray(from_hf(folder)[1].decoder.embed.tokens)[:96]
    expected = plain[1]["model.embed_tokens.weight"]
    blocks = np.abs(expected.reshape(-1, 32)).max(1, keepdims=True).repeat(32, 1).reshape(expected.shape)
    assert (np.abs(values - expected) <= 2 * blocks / levels).all()
    assert (values != expected).any()


def test_what_is_refused(plain, tmp_path):
    folder = tmp_path / "gguf"
    folder.mkdir()
    write(folder, plain[1])
    (folder / "config.json").write_text(json.dumps(FIELDS | {"rms_norm_eps": 1e-6}))
    with pytest.raises(ValueError, match="rms_norm_eps=1e-06 and rms_norm_eps of model.gguf=1e-05"):
        from_hf(folder)
    (folder / "config.json").unlink()
    (folder / "second.gguf").write_bytes(b"no")
    with pytest.raises(ValueError, match="model.gguf, second.gguf; leave the one"):
        from_hf(folder)
    (folder / "model.gguf").unlink()
    with pytest.raises(ValueError, match="second.gguf cannot be read"):
        from_hf(folder)
    (folder / "second.gguf").unlink()
    write(folder, plain[1], architecture="phi2")
    with pytest.raises(ValueError, match="of architecture phi2; of GGUF, read are llama"):
        from_hf(folder)

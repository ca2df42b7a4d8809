"""Folders of Whisper: what transformers computes, ours computes, in both directions; and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hf_models import weights

import tfm
from tfm.hf import FAMILIES
from tfm.hf.match import conflicts_of
from tfm.hf.tensors import Tensors

FIELDS = dict(
    vocab_size=103, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
    decoder_attention_heads=3, encoder_ffn_dim=40, decoder_ffn_dim=40, num_mel_bins=6, max_source_positions=9,
    max_target_positions=11, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=3,
)  # fmt: skip


def torch_model(**fields):
    """A model of transformers with its usual weights of tests; where it ties, the table is one parameter."""
    import torch
    import transformers

    config = transformers.WhisperConfig(**FIELDS | fields)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.copy_(torch.from_numpy(weights(name, tuple(values.shape))))
    return model


def inputs():
    """Frames [B,T,C] and tokens [B,S]."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 18, 6)).astype(np.float32), rng.integers(4, 103, (3, 7)).astype(np.int32)


def torch_logits(model):
    import torch

    frames, tokens = inputs()
    with torch.no_grad():
        features = torch.from_numpy(frames.transpose(0, 2, 1).copy())
        return model(
            input_features=features, decoder_input_ids=torch.from_numpy(tokens.astype(np.int64))
        ).logits.numpy()


def logits(config, params):
    frames, tokens = inputs()
    return jax.jit(tfm.seq2seq, static_argnums=1)(params, config, jnp.asarray(frames), jnp.asarray(tokens))[..., :103]


@pytest.mark.parity
@pytest.mark.parametrize("fields", [{}, {"encoder_layers": 3, "scale_embedding": True, "tie_word_embeddings": False}])
def test_there_and_back(fields, tmp_path):
    model = torch_model(**fields)
    model.save_pretrained(tmp_path / "read")
    config, params = tfm.from_hf(tmp_path / "read")
    expected = torch_logits(model)
    np.testing.assert_allclose(logits(config, params), expected, atol=1e-4, rtol=1e-4)
    tfm.to_hf(config, params, tmp_path / "written", like=tmp_path / "read")
    again = type(model).from_pretrained(tmp_path / "written", attn_implementation="eager").eval()
    np.testing.assert_allclose(torch_logits(again), expected, atol=3e-5, rtol=1e-5)
    written, read = (dict(Tensors(tmp_path / name).items()) for name in ("written", "read"))
    assert written.keys() <= read.keys()
    for name, values in written.items():
        np.testing.assert_array_equal(values, read[name], err_msg=name)


@pytest.mark.slow
def test_a_model_of_ours_there_and_back(fill, tmp_path):
    """A bias of the keys of cross-attention changes nothing, and is not written."""
    config = tfm.override(
        FAMILIES["whisper"].base,
        {"layers": 2, "width": 8, "heads": 2, "ffn": 12, "vocab": 103, "length": 11, "dropout": 0.0}
        | {"encoder.input.size": 18, "encoder.input.channels": 6},
    )
    params = jax.tree.map(lambda leaf: 0.3 * leaf, fill(tfm.seq2seq_specs(config)))
    tfm.to_hf(config, params, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["max_source_positions"] == 9
    assert not [name for name in Tensors(tmp_path) if name.endswith("k_proj.bias")]
    config_again, params_again = tfm.from_hf(tmp_path)
    np.testing.assert_allclose(logits(config_again, params_again), logits(config, params), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        {"encoder.input.mask_padding": True},
        {"encoder.input.convolutions": "3x2,3x2"},
        {"encoder.input": None},
        {"mixer.key_bias": True},
    ],
)
def test_models_that_no_folder_holds(values):
    config = tfm.override(FAMILIES["whisper"].base, values)
    (name, value), *_ = values.items()
    conflicts = conflicts_of(FAMILIES["whisper"], config, "WhisperForConditionalGeneration")
    assert f"{name}={value}" in conflicts


@pytest.mark.parametrize(("family", "heads", "ffn"), [("whisper", 6, 1536), ("bart", 16, 4096), ("led", 16, 4096)])
def test_sizes_that_a_folder_does_not_name(family, heads, ffn):
    """They are those of the class in transformers, of each stack by itself; both stacks must have the same here."""
    family = FAMILIES[family]
    head = next(iter(family.heads.values()))
    assert (family.config({}, head).heads, family.config({}, head).sizes["F"]) == (heads, ffn)
    for stack in ("encoder", "decoder"):
        defaults = {f"{stack}_attention_heads": heads, f"{stack}_ffn_dim": ffn}
        assert family.config(defaults, head) == family.config({}, head)
        for name in defaults:
            with pytest.raises(ValueError, match=rf"{name}={defaults[name] // 2}.* only equal ones"):
                family.config({name: defaults[name] // 2}, head)

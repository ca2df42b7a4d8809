"""What config.json of RoFormer, FNet, Nystromformer and LongT5 means here, and what is refused; without torch."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hf_models import stored

import tfm
from tfm.catalogue.options.mixers.fewer_keys import Nystrom
from tfm.catalogue.options.mixers.static import FNet
from tfm.catalogue.options.patterns import Sliding, Transient
from tfm.catalogue.options.positions.relative import T5
from tfm.config.mixers import Softmax
from tfm.config.model import Layer
from tfm.config.positions import Rotary
from tfm.hf import FAMILIES

SMALL = dict(vocab_size=103, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)


def config(name, **fields):
    """Our configuration of a small model."""
    family = FAMILIES[name]
    return family.config(fields, next(iter(family.heads.values())))


def test_encoders():
    roformer = config("roformer", **SMALL, hidden_act="gelu_new")
    assert (roformer.position, roformer.input.width) == (Rotary(pairs="adjacent"), None)
    assert roformer.head.pool_activation == roformer.activation == "gelu_tanh"
    fnet = config("fnet", hidden_size=24, num_hidden_layers=2, intermediate_size=40)
    assert (fnet.mixer, fnet.input.width, fnet.heads) == (FNet(reads_padding=True), 24, 1)
    published = config("nystromformer", **SMALL)
    assert published.mixer == Nystrom(landmarks=None, window=65, reads_padding=True, shared_start=True)
    landmarks = config("nystromformer", **SMALL, num_landmarks=4, segment_means_seq_len=16, max_position_embeddings=16)
    assert (landmarks.mixer.landmarks, landmarks.length) == (4, 16)


def test_layers_of_the_encoder_of_longt5():
    local = config("longt5", d_model=24, num_heads=3, local_radius=5)
    assert local.encoder.period == (Layer(mixer=Softmax(pattern=Sliding(window=10))),)
    fields = {"encoder_attention_type": "transient-global", "global_block_size": 8, "tie_word_embeddings": False}
    transient = config("longt5", d_model=24, num_heads=3, relative_attention_num_buckets=16, **fields)
    mixer = Softmax(pattern=Transient(radius=127, block=8))
    assert transient.encoder.period == (Layer(mixer=mixer, position=T5(buckets=16, blocks=True)),)
    assert (transient.position, transient.mixer) == (T5(buckets=16), Softmax())
    assert not transient.tie_embeddings  # the tensors decide
    assert not transient.head.scale_logits
    assert local.head.scale_logits


def test_layers_with_experts_of_switch_transformers():
    """transformers: those whose number modulo layers // count is 1, or all where that is 1; `d` is dense, `e` has
    experts."""
    family = FAMILIES["switch_transformers"]
    for layers, count, expected in ((4, 2, "dede"), (4, 1, "dedd"), (4, 0, "dedd"), (3, 2, "eee"), (3, 9, "ddd")):
        fields = {"num_sparse_encoder_layers": count, "num_layers": layers, "num_decoder_layers": None}
        both = config("switch_transformers", **fields, num_sparse_decoder_layers=1)
        kinds = both.in_encoder().layer_plan.layers
        assert "".join(kind.feed_forward.name[0] for kind in kinds) == expected
        written = family.config_json(both, "SwitchTransformersForConditionalGeneration")
        again = config("switch_transformers", **written)
        assert (again.layer_plan.layers, again.in_encoder().layer_plan.layers) == (both.layer_plan.layers, kinds)
        assert (both.feed_forward.slots, both.feed_forward.top_k, both.head.scale_logits) == (64, 1, True)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "switch_transformers",
            {"encoder_sparse_step": 2},
            "num_sparse_encoder_layers=3 of 12 layers (num_layers=12), so encoder_sparse_step=4, which must be equal",
        ),
        ("switch_transformers", {"router_bias": True}, "router_bias=True; of switch_transformers, only False is"),
        ("roformer", {"rotary_value": True}, "rotary_value=True; of roformer, only False is supported"),
        (
            "nystromformer",
            {"num_landmarks": 4},
            "segment_means_seq_len=64; of nystromformer, only num_landmarks or max_position_embeddings=510 is",
        ),
        ("nystromformer", {"inv_coeff_init_option": True}, "inv_coeff_init_option=True; of nystromformer, only False"),
        (
            "longt5",
            {"encoder_attention_type": "full"},
            "encoder_attention_type='full'; of longt5, only 'local' or 'transient-global' is supported",
        ),
        (
            "clip",
            {"text_config_dict": {"hidden_act": "relu"}},
            "text_config.hidden_act='quick_gelu' and text_config_dict.hidden_act='relu', which must be equal",
        ),
        (
            "clip",
            {"vision_config": {"image_size": 12, "patch_size": 5}},
            "vision_config.image_size=12 must be a multiple of vision_config.patch_size=5",
        ),
    ],
)
def test_what_is_refused(name, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        config(name, **fields)


@pytest.mark.slow
def test_half_and_adjacent_pairs_are_the_same_model(tmp_path, fill):
    """A model whose halves turn together is written with neighbours, and computes what it did."""
    halves = tfm.override(
        tfm.Config(layers=2, heads=2, width=16, ffn=24, vocab=30, pad_vocab_to=1, length=8, dropout=0.0, init_std=0.3),
        {"position": "rotary"},
    )
    params = fill(tfm.masked_lm_specs(halves))
    tfm.to_hf(halves, params, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["RoFormerForMaskedLM"]
    written, params_written = tfm.from_hf(tmp_path)
    assert written.position == Rotary(pairs="adjacent")
    tokens = jnp.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
    states, expected = (
        jax.jit(tfm.encoder, static_argnums=1)(model.encoder, options, tokens)
        for model, options in ((params_written, written), (params, halves))
    )
    np.testing.assert_allclose(states, expected, rtol=1e-5, atol=1e-5)


def test_a_convolution_without_a_window_has_no_tensor(tmp_path):
    stored(tmp_path / "read", "nystromformer", "NystromformerForMaskedLM")
    options, params = tfm.from_hf(tmp_path / "read")
    attention = dataclasses.replace(params.encoder.layers.period[0].mixer, convolution=None)
    block = dataclasses.replace(params.encoder.layers.period[0], mixer=attention)
    layers = dataclasses.replace(params.encoder.layers, period=(block,))
    params = dataclasses.replace(params, encoder=dataclasses.replace(params.encoder, layers=layers))
    tfm.to_hf(tfm.override(options, {"mixer.window": None}), params, tmp_path / "written")
    assert json.loads((tmp_path / "written/config.json").read_text())["conv_kernel_size"] is None
    assert tfm.from_hf(tmp_path / "written")[0].mixer.window is None

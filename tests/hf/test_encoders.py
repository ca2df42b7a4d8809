"""What config.json of ModernBERT and DeBERTa means here, and what is refused; without torch."""

import dataclasses
import re

import pytest

from tfm.catalogue.options.patterns import Sliding
from tfm.catalogue.options.positions.absolute import NoPosition
from tfm.catalogue.options.positions.relative import Disentangled
from tfm.config.mixers import Softmax
from tfm.config.model import Layer
from tfm.config.patterns import Full
from tfm.config.positions import Learned, Rotary
from tfm.config.residuals import PreNorm
from tfm.hf import FAMILIES
from tfm.hf.match import conflicts_of

MODERNBERT, DEBERTA = FAMILIES["modernbert"], FAMILIES["deberta-v2"]
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def config(family, **fields):
    """Our configuration of a small model."""
    small = dict(vocab_size=103, hidden_size=24, num_hidden_layers=5, num_attention_heads=3, intermediate_size=40)
    return family.config(small | fields, next(iter(family.heads.values())))


def local_layer(window, base):
    """A layer that attends within a window."""
    return Layer(mixer=Softmax(pattern=Sliding(window=window)), position=Rotary(base=base))


def test_modernbert_by_older_and_newer_fields():
    older = config(
        MODERNBERT, global_attn_every_n_layers=2, global_rope_theta=700, local_rope_theta=None, local_attention=6
    )
    rope = {"rope_type": "default", "rope_theta": 700.0}
    newer = config(
        MODERNBERT,
        layer_types=[GLOBAL, LOCAL, GLOBAL, LOCAL, GLOBAL],
        rope_parameters={GLOBAL: rope, LOCAL: rope},
        local_attention=6,
    )
    assert older == newer
    assert older.prefix == (Layer(residual=PreNorm(mixer_norm=False)),)
    assert older.period == (local_layer(6, 700.0), Layer())
    assert (older.mixer, older.position, older.residual) == (Softmax(), Rotary(base=700.0), PreNorm())
    assert config(MODERNBERT) == config(MODERNBERT, layer_types=[GLOBAL, LOCAL, LOCAL, GLOBAL, LOCAL])
    assert config(MODERNBERT).position.base == 160_000.0
    assert config(MODERNBERT).period == (local_layer(128, 10_000.0),) * 2 + (Layer(),)


@pytest.mark.parametrize(
    "layer_types",
    [
        [GLOBAL] * 5,
        [LOCAL] * 5,
        [GLOBAL, LOCAL, LOCAL, LOCAL, GLOBAL],
        [GLOBAL, LOCAL, LOCAL, LOCAL, LOCAL],
        [LOCAL, GLOBAL, LOCAL, LOCAL, GLOBAL],
        [LOCAL, LOCAL, LOCAL, GLOBAL, LOCAL],
    ],
)
def test_modernbert_layers_are_written_as_they_were_read(layer_types):
    model = config(MODERNBERT, layer_types=layer_types)
    patterns = {GLOBAL: Full(), LOCAL: Sliding(window=128)}
    assert [kind.mixer.pattern for kind in model.layer_plan.layers] == [patterns[name] for name in layer_types]
    assert [kind.residual.mixer_norm for kind in model.layer_plan.layers] == [False, True, True, True, True]
    written = MODERNBERT.config_json(model, "ModernBertForMaskedLM")
    assert written["layer_types"] == layer_types
    assert config(MODERNBERT, **written) == model


@pytest.mark.parametrize(
    ("layer_types", "size"),
    [("g", 1), ("glllll", 1), ("glllg", 4), ("gllglg", 5), ("llglgl", 2), ("gllgllgllg", 3), ("glgllglll", 7)],
)
def test_modernbert_has_the_shortest_period(layer_types, size):
    names = [{"g": GLOBAL, "l": LOCAL}[letter] for letter in layer_types]
    model = config(MODERNBERT, layer_types=names, num_hidden_layers=len(names))
    assert len(model.period) == size


@pytest.mark.parametrize(
    ("changes", "conflicts"),
    [
        ({}, []),
        ({"period": (Layer(), Layer())}, []),  # the same layers in other words
        ({"prefix": ()}, ["layers.0.residual.mixer_norm=True"]),
        ({"period": (local_layer(6, 9.0), local_layer(8, 9.0))}, ["layers.2.mixer.pattern.window=8"]),
        ({"period": (local_layer(6, 9.0), local_layer(6, 8.0))}, ["layers.2.position.base=8.0"]),
        ({"position": NoPosition()}, ["position=none"]),
        ({"activation": "silu", "norm": "rms"}, ["activation=silu", "norm=rms"]),
    ],
)
def test_what_modernbert_cannot_hold(changes, conflicts):
    model = dataclasses.replace(config(MODERNBERT, layer_types=[GLOBAL] * 5), **changes)
    assert conflicts_of(MODERNBERT, model, "ModernBertForMaskedLM") == conflicts


@pytest.mark.parametrize(
    ("fields", "position", "width"),
    [
        ({}, Learned(), None),
        ({"position_biased_input": False}, NoPosition(), None),
        (
            dict(pos_att_type="p2c|c2p", share_att_key=True),
            Disentangled("c2p_p2c", 1024, None, share_projections=True, absolute=True),
            None,
        ),
        (
            dict(pos_att_type=["c2p"], position_buckets=256, norm_rel_ebd="layer_norm", position_biased_input=False),
            Disentangled("c2p", 512, 512, norm=True),
            None,
        ),
        (
            dict(pos_att_type=["p2c"], position_buckets=6, max_relative_positions=20),
            Disentangled("p2c", 12, 20, absolute=True),
            None,
        ),
        (
            dict(pos_att_type=["p2c"], max_relative_positions=20, embedding_size=14),
            Disentangled("p2c", 40, None, absolute=True),
            14,
        ),
        (dict(pos_att_type=[], norm_rel_ebd="layer_norm", share_att_key=True), Learned(), None),
    ],
)
def test_deberta_and_back(fields, position, width):
    model = config(DEBERTA, relative_attention="pos_att_type" in fields, **fields)
    assert (model.position, model.input.width, model.input.projection) == (position, width, "first")
    assert config(DEBERTA, **DEBERTA.config_json(model, "DebertaV2ForMaskedLM")) == model


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (
            MODERNBERT,
            {"layer_types": [GLOBAL, LOCAL, GLOBAL, LOCAL, "chunked_attention"]},
            "of modernbert, only full_attention and sliding_attention are supported",
        ),
        (
            MODERNBERT,
            {"layer_types": [GLOBAL, LOCAL]},
            "config.json has 2 layer_types and num_hidden_layers=5, which must be equal",
        ),
        (
            MODERNBERT,
            {"rope_scaling": {"type": "yarn"}},
            "rotary positions of type yarn in rope_scaling; only default ones are supported",
        ),
        (
            MODERNBERT,
            {"rope_parameters": {LOCAL: {"rope_type": "linear"}}},
            "rotary positions of type linear in rope_parameters; only default",
        ),
        (
            MODERNBERT,
            {"hidden_activation": "silu"},
            "hidden_activation='silu'; of modernbert, only 'gelu' is supported",
        ),
        (
            MODERNBERT,
            {"classifier_activation": "relu"},
            "classifier_activation='relu'; of modernbert, only 'gelu' is supported",
        ),
        (MODERNBERT, {"decoder_bias": False}, "decoder_bias=False; of modernbert, only True is supported"),
        (
            MODERNBERT,
            {"attention_bias": False, "mlp_bias": True},
            "attention_bias=False and mlp_bias=True, which must be equal",
        ),
        (MODERNBERT, {"attention_bias": True}, "attention_bias=True and mlp_bias=False, which must be equal"),
        (
            MODERNBERT,
            {"local_attention": 8, "sliding_window": 3},
            "local_attention=8 and sliding_window * 2=6, which must be equal",
        ),
        (MODERNBERT, {"classifier_pooling": "max"}, "classifier_pooling='max'; of modernbert, supported are cls, mean"),
        (DEBERTA, {"conv_kernel_size": 3}, "conv_kernel_size=3; of deberta-v2, only 0 is supported"),
        (
            DEBERTA,
            {"pos_att_type": ["c2p"]},
            "pos_att_type=['c2p'] without relative_attention; of deberta-v2, only both",
        ),
        (
            DEBERTA,
            {"pos_att_type": "c2p|p2p", "relative_attention": True},
            "pos_att_type=c2p|p2p; of deberta-v2, only c2p and p2c are",
        ),
        (
            DEBERTA,
            {"attention_head_size": 6},
            "attention_head_size=6; of deberta-v2, only hidden_size / num_attention_heads is",
        ),
        (
            DEBERTA,
            {"pooler_hidden_size": 16},
            "pooler_hidden_size=16 and hidden_size=24; of deberta-v2, only equal ones are",
        ),
        (
            DEBERTA,
            {"pooler_hidden_act": "silu"},
            "pooler_hidden_act='silu'; of deberta-v2, supported are gelu, tanh, relu",
        ),
        (DEBERTA, {"hidden_act": "mish"}, "hidden_act='mish'; of deberta-v2, supported are gelu"),
        (DEBERTA, {"tie_word_embeddings": False}, "tie_word_embeddings=False; of deberta-v2, only True is supported"),
        (MODERNBERT, {"local_attention": 0}, "local_attention=0 must be"),
    ],
)
def test_what_is_refused(family, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        config(family, **fields)

"""What config.json of ModernBERT and DeBERTa means here, and what is refused; without torch."""

import re

import pytest

from tfm.hf import FAMILIES

MODERNBERT, DEBERTA = FAMILIES["modernbert"], FAMILIES["deberta-v2"]
FAR, NEAR = "full_attention", "sliding_attention"


def config(family, **fields):
    """Our configuration of a small model."""
    small = dict(vocab_size=103, hidden_size=24, num_hidden_layers=5, num_attention_heads=3, intermediate_size=40)
    return family.config(small | fields, next(iter(family.heads.values())))


def test_modernbert_by_older_and_newer_fields():
    older = config(
        MODERNBERT, global_attn_every_n_layers=2, global_rope_theta=700, local_rope_theta=None, local_attention=6
    )
    rope = {"rope_type": "default", "rope_theta": 700.0}
    newer = config(
        MODERNBERT, layer_types=[FAR, NEAR, FAR, NEAR, FAR], rope_parameters={FAR: rope, NEAR: rope}, local_attention=6
    )
    assert older == newer
    assert (older.global_every, older.window, older.rotary_base, older.rotary_base_near) == (2, 6, 700.0, 700.0)
    assert config(MODERNBERT) == config(MODERNBERT, layer_types=[FAR, NEAR, NEAR, FAR, NEAR])
    assert (config(MODERNBERT).rotary_base, config(MODERNBERT).rotary_base_near) == (160_000.0, 10_000.0)


@pytest.mark.parametrize("kinds", [[FAR] * 5, [NEAR] * 5, [FAR, NEAR, NEAR, NEAR, FAR], [FAR, NEAR, NEAR, NEAR, NEAR]])
def test_modernbert_layers_are_written_as_they_were_read(kinds):
    found = config(MODERNBERT, layer_types=kinds)
    written = MODERNBERT.config_json(found, "ModernBertForMaskedLM")
    assert written["layer_types"] == kinds
    assert config(MODERNBERT, **written) == found


@pytest.mark.parametrize(
    ("fields", "ours"),
    [
        ({}, ("none", False, False, 32, 128, 0)),
        (dict(pos_att_type="p2c|c2p", share_att_key=True), ("c2p_p2c", True, False, 1024, 0, 0)),
        (
            dict(pos_att_type=["c2p"], position_buckets=256, norm_rel_ebd="layer_norm"),
            ("c2p", False, True, 512, 512, 0),
        ),
        (dict(pos_att_type=["p2c"], position_buckets=6, max_relative_positions=20), ("p2c", False, False, 12, 20, 0)),
        (dict(pos_att_type=["p2c"], max_relative_positions=20, embedding_size=14), ("p2c", False, False, 40, 0, 14)),
        (dict(pos_att_type=[], norm_rel_ebd="layer_norm", share_att_key=True), ("none", False, False, 32, 128, 0)),
    ],
)
def test_deberta_and_back(fields, ours):
    found = config(DEBERTA, relative_attention="pos_att_type" in fields, **fields)
    names = ("relative", "relative_shared", "relative_norm", "buckets", "bucket_distance", "embed_width")
    assert tuple(getattr(found, name) for name in names) == ours
    assert config(DEBERTA, **DEBERTA.config_json(found, "DebertaV2ForMaskedLM")) == found


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (
            MODERNBERT,
            {"layer_types": [NEAR, FAR, NEAR, FAR, NEAR]},
            "layer_types in which full_attention does not come at equal distances",
        ),
        (
            MODERNBERT,
            {"rope_scaling": {"type": "yarn"}},
            "rotary positions of type yarn; only default ones are supported",
        ),
        (
            MODERNBERT,
            {"rope_parameters": {NEAR: {"rope_type": "linear"}}},
            "rotary positions of type linear; only default",
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
            "mlp_bias=True and attention_bias=False; of modernbert, only equal ones",
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
        (MODERNBERT, {"local_attention": 0}, "global_every=3 needs a window"),
    ],
)
def test_what_is_refused(family, fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        config(family, **fields)

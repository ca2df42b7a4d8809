"""What config.json of Reformer means in tfm, and what is refused; without torch."""

import dataclasses
import re

import pytest

import tfm
from tfm.catalogue.options.mixers.clustered import Reformer
from tfm.catalogue.options.positions.absolute import Axial
from tfm.config.mixers import Softmax
from tfm.config.patterns import Local
from tfm.config.positions import Learned
from tfm.hf import FAMILIES
from tfm.hf.match import conflicts_of

REFORMER = FAMILIES["reformer"]
LM = "ReformerModelWithLMHead"
SIZES = dict(vocab_size=103, hidden_size=24, num_attention_heads=3, axial_pos_embds_dim=[8, 16], is_decoder=True)


def config(architecture=LM, **fields):
    """Our configuration of a small model."""
    return REFORMER.config(SIZES | {"architectures": [architecture]} | fields, REFORMER.heads[architecture])


def test_a_language_model_and_back():
    """That of Kitaev et al., in small: pairs of hashes, and no seed."""
    model = config(
        num_buckets=[64, 128], axial_pos_shape=[16, 32], lsh_attn_chunk_length=32, local_attn_chunk_length=16
    )
    assert model.mixer == Reformer(64, 1, 32, across=True, factor=128, seed=0, bias=False)
    assert model.position == Axial(rows=16, columns=32, row_width=8)
    local = Softmax(pattern=Local(block=16, neighbours=1), qkv_bias=False, output_bias=False)
    assert [kind.mixer for kind in model.layer_plan.layers] == [local, model.mixer] * 3
    assert conflicts_of(REFORMER, model, LM) == []
    written = REFORMER.config_json(model, LM)
    assert config(**written) == model
    assert written["attn_layers"] == ["local", "lsh"] * 3
    assert (written["num_buckets"], written["hash_seed"], written["is_decoder"]) == ([64, 128], 0, True)


def test_buckets_of_the_longest_text():
    assert config(max_position_embeddings=4096).mixer.sizes == (128,)
    assert config(max_position_embeddings=1 << 15).mixer.sizes == (32, 32)
    assert config(axial_pos_embds=False).position == Learned()


def test_what_a_folder_cannot_hold():
    model = config()
    own = dataclasses.replace(model, mixer=dataclasses.replace(model.mixer, seed=None))
    assert conflicts_of(REFORMER, own, LM) == ["mixer.seed=None"]
    assert "residual.merge=mean" in conflicts_of(REFORMER, tfm.override(model, {"residual.merge": "mean"}), LM)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"attn_layers": ["lsh", "full"]},
            "attn_layers=['lsh', 'full']; of reformer, only local and lsh",
        ),
        ({"num_buckets": 3}, "num_buckets=[3]; of reformer, only one or two even numbers are supported"),
        ({"axial_pos_embds_dim": [8, 8]}, "the latter with the sum hidden_size=24"),
        ({"lsh_attn_chunk_length": 48}, "local_attn_chunk_length=64 and lsh_attn_chunk_length=48"),
        ({"is_decoder": False}, "is_decoder=false and local layers, which see the end of a text from its beginning"),
        ({"is_decoder": False, "attn_layers": ["lsh"]}, "ReformerModelWithLMHead needs is_decoder=true"),
        ({"lsh_num_chunks_after": 1}, "lsh_num_chunks_after=1; of reformer, only 0 is supported"),
    ],
)
def test_refusals(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        config(**fields)

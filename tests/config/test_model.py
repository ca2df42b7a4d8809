import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfm
from tfm import ops
from tfm.attention import attend
from tfm.config import model
from tfm.layers import block
from tfm.models import heads
from tfm.positions import absolute


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 5}, "heads=5 must divide width=128; try heads=4"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads=3 must divide heads=4; try kv_heads=2"),
        ({"layers": 0}, "layers=0 must be at least 1"),
        ({"kv_heads": -1}, "kv_heads=-1 must be at least 0"),
        ({"ffn": -4}, "ffn=-4 must be at least 0"),
        ({"vocab_multiple": 0}, "vocab_multiple=0 must be at least 1"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and less than 1"),
        ({"dropout": -0.1}, "dropout=-0.1 must be at least 0 and less than 1"),
        ({"token_types": -1}, "token_types=-1 must be at least 0"),
        ({"norm": "lyer"}, "norm=lyer is unknown; did you mean layer?"),
        ({"activation": "swigul"}, "activation=swigul is unknown; did you mean swiglu?"),
        ({"order": "sandwich"}, "order=sandwich is unknown; known are post, pre"),
        (
            {"position": "fourier"},
            "position=fourier is unknown; known are learned, sinusoidal, sinusoidal_halves, rotary, buckets, none",
        ),
        (
            {"position": "rotary", "width": 15, "heads": 3},
            "position=rotary turns pairs, and 5 of each head of size 5 are turned; try other heads",
        ),
        ({"rotary_base": 1.0}, "rotary_base=1.0 must be more than 1; 10,000 is usual"),
        ({"rotary_stretch": 0.5}, "rotary_stretch=0.5 must be at least 1, which stretches nothing"),
        (
            {"rotary_short": 9.0, "rotary_long": 3.0},
            "rotary_short=9.0 must be above 0 and less than rotary_long=3.0, or both 0",
        ),
        ({"rotary_base_near": 0.5}, "rotary_base_near=0.5 must be more than 1; 10,000 is usual"),
        ({"global_every": 3}, "global_every=3 needs a window for the other layers; 128 is usual"),
        (
            {"first_norm": False},
            "first_norm=False needs order=pre and shared=False; they are order=post and shared=False",
        ),
        ({"position": "buckets", "bucket_distance": 0}, "bucket_distance=0 must be at least 1 where position=buckets"),
        (
            {"relative": "p2c", "position": "buckets"},
            "relative=p2c and position=buckets both place tokens by distances; leave one of them",
        ),
        ({"relative": "c2p", "buckets": 9}, "buckets=9 must be even and at least 4 where relative=c2p"),
        ({"relative": "c2p", "bucket_distance": 9}, "bucket_distance=9 must be at least 10 with 32 buckets; or 0"),
        ({"relative": "c2p+p2c"}, "relative=c2p+p2c is unknown; did you mean c2p_p2c?"),
        ({"remat": "all"}, "remat=all is unknown; known are none, dots, block, offload"),
        ({"dtype": "bfloat"}, "dtype=bfloat is unknown; did you mean bfloat16?"),
    ],
)
def test_errors_name_the_culprit_and_the_remedy(fields, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        tfm.Config(**fields)


def test_zero_means_the_usual_size():
    config = tfm.Config(heads=4, width=32)
    assert [config.sizes[letter] for letter in "KGF"] == [4, 1, 128]
    wider = dataclasses.replace(config, heads=8, width=64)
    assert [wider.sizes[letter] for letter in "KGF"] == [8, 1, 256], "and it follows when the rest changes"


@pytest.mark.parametrize(
    ("vocab", "multiple", "padded"), [(60, 64, 64), (64, 64, 64), (65, 64, 128), (30522, 128, 30592), (7, 1, 7)]
)
def test_vocabulary_is_rounded_up(vocab, multiple, padded):
    assert tfm.Config(vocab=vocab, vocab_multiple=multiple).padded_vocab == padded


def test_sizes_of_the_letters():
    sizes = tfm.Config(
        layers=3, heads=6, kv_heads=2, width=24, ffn=40, vocab=60, vocab_multiple=64, length=9, token_types=2, classes=5
    ).sizes
    assert sizes == dict(D=24, E=24, K=2, G=3, H=4, F=40, V=64, P=9, R=32, Y=2, C=5, L=3, U=24)
    assert set(sizes) <= set(tfm.AXES)


def test_tables_hold_the_names_that_the_config_knows():
    assert model.CHOICES["norm"] == tuple(ops.NORMS)
    assert model.CHOICES["order"] == tuple(block.ORDERS)
    assert model.CHOICES["activation"] == (*ops.ACTIVATIONS, *ops.GATES)
    assert model.CHOICES["position"] == tuple(absolute.POSITIONS)
    assert model.CHOICES["kernel"] == ("auto", *attend.KERNELS)
    assert model.CHOICES["pool"] == tuple(heads.POOLS)
    assert model.CHOICES["pool_activation"] == tuple(heads.POOLERS)


def test_the_docstring_lists_every_field_and_choice():
    lines = dict(re.findall(r"^(\w+): (.*)$", inspect.cleandoc(tfm.Config.__doc__), re.MULTILINE))
    assert list(lines) == [field.name for field in dataclasses.fields(tfm.Config)]
    for name, choices in model.CHOICES.items():
        assert lines[name].startswith(" | ".join(choices))


def test_a_config_is_frozen_and_hashable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        tfm.Config().width = 5
    assert hash(tfm.Config(heads=4)) == hash(tfm.Config(heads=4))


@pytest.mark.parametrize(("number", "whole", "nearest"), [(5, 128, 4), (100, 12, 12), (7, 12, 6), (0, 9, 1), (2, 7, 1)])
def test_nearest_divisor(number, whole, nearest):
    assert model.nearest_divisor(number, whole) == nearest


def test_suggest():
    assert model.suggest("widht", ["width", "ffn"]) == "; did you mean width?"
    assert model.suggest("zzz", iter(["width", "ffn"])) == "; known are width, ffn"


@pytest.mark.parametrize("name", tfm.__all__)
def test_public_names_can_be_imported_and_are_documented(name):
    thing = getattr(tfm, name)
    if name not in ("AXES", "MESH_AXES"):
        assert thing.__doc__
        assert not thing.__doc__.startswith(f"{name}(")  # what dataclasses write where nobody wrote anything
        assert thing.__module__.startswith("tfm.")


def test_dir_lists_the_public_names():
    assert dir(tfm) == tfm.__all__


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match="tfm has no 'attention_'; it has .*attend"):
        tfm.attention_  # noqa: B018


def test_import_tfm_is_light():
    """jax is loaded at the first use; what only the trainer needs, never."""
    code = """
import sys, tfm
assert "jax" not in sys.modules and "numpy" not in sys.modules
tfm.Config()
assert "jax" not in sys.modules
for name in tfm.__all__:
    if name != "Module":  # flax.nnx itself loads optax
        getattr(tfm, name)
assert "jax" in sys.modules
print(*{"flax.nnx", "matplotlib", "orbax", "grain", "optax", "tokenizers", "tensorflow"} & set(sys.modules))
"""
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert (result.returncode, result.stdout.strip()) == (0, ""), result.stdout + result.stderr

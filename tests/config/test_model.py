import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import tfm
from tfm import norms, ops
from tfm.attention.kernels.choice import KERNELS
from tfm.catalogue.options.patterns import BigBird, Fixed, Global, Sliding
from tfm.catalogue.options.positions.relative import T5, Disentangled
from tfm.catalogue.options.positions.scaling import Dynamic, LinearScaling, Llama3, LongRope, Yarn
from tfm.config.feed_forwards import PositionWise
from tfm.config.heads import Head
from tfm.config.inputs import Tokens
from tfm.config.layers import EncoderOptions
from tfm.config.mixers import Softmax
from tfm.config.model import COMPUTE, Config, Kind, Layer
from tfm.config.positions import Learned, Rotary, Sinusoidal
from tfm.config.residuals import PostNorm, PreNorm
from tfm.config.stages import Stage
from tfm.models import classifier, pooling
from tfm.options.choices import Options, choices_of, type_hints

ERRORS = [
    (lambda: Config(heads=5), "heads=5 must divide width=128; try heads=4"),
    (lambda: Config(heads=4, kv_heads=3), "kv_heads=3 must divide heads=4; try kv_heads=2"),
    (lambda: Config(layers=0), "layers=0 must be at least 1"),
    (lambda: Config(kv_heads=-1), "kv_heads=-1 must be at least 1, or none"),
    (lambda: Config(kv_heads=0), "kv_heads=0 must be at least 1, or none"),
    (lambda: Config(ffn=-4), "ffn=-4 must be at least 1, or none"),
    (lambda: Config(pad_vocab_to=0), "pad_vocab_to=0 must be at least 1"),
    (lambda: Config(dropout=1.0), "dropout=1.0 must be at least 0 and less than 1"),
    (lambda: Config(dropout=-0.1), "dropout=-0.1 must be at least 0 and less than 1"),
    (lambda: Config(attn_dropout=1.5), "attn_dropout=1.5 must be at least 0 and less than 1"),
    (lambda: Config(norm="lyer"), "norm=lyer is unknown; did you mean layer?"),
    (lambda: Config(activation="swigul"), "activation=swigul is unknown; did you mean swiglu?"),
    (lambda: Config(remat="all"), "remat=all is unknown; known are none, dots, block, offload"),
    (lambda: Config(norm_eps=float("nan")), "norm_eps=nan must be a finite number"),
    (lambda: Config(norm_eps=-1), "norm_eps=-1 must be at least 0"),
    (lambda: Config(init_std=-1), "init_std=-1 must be at least 0"),
    (lambda: Config(width=64.0), "width=64.0 must be a whole number"),
    (lambda: Config(layers=True), "layers=True must be a whole number"),
    (lambda: Config(layers=10**400), "layers=0x"),
    (lambda: Config(dtype="bfloat"), "dtype=bfloat is unknown; did you mean bfloat16?"),
    (lambda: Config(period=()), "period=0 must be at least 1"),
    (lambda: EncoderOptions(length=0), "length=0 must be at least 1, or none"),
    (
        lambda: Config(
            length=64, encoder=EncoderOptions(length=8, period=(Layer(mixer=Softmax(pattern=Global(tokens=9))),))
        ),
        "mixer.pattern.tokens=9 global tokens are more than length=8",
    ),
    (lambda: Config(share_layers=True, layers=3, period=(Layer(),) * 2), "share_layers=true shares whole periods"),
    # each class of options judges itself
    (lambda: Tokens(token_types=-1), "token_types=-1 must be at least 1, or none"),
    (lambda: Tokens(projection="middle"), "projection=middle is unknown; known are last, first"),
    (lambda: Head(pool="sum"), "pool=sum is unknown; known are first, mean, last, max"),
    (lambda: Sliding(window=0), "window=0 must be at least 1"),
    (lambda: Sliding(dilation=0), "dilation=0 must be at least 1"),
    (lambda: Fixed(block=4, summary=5), "summary=5 must be at most block=4"),
    (lambda: BigBird(window=4), "window=4 must be odd; try window=5"),
    (lambda: Sinusoidal(order="columns"), "order=columns is unknown; known are interleaved, halves"),
    (lambda: Rotary(base=1.0), "base=1.0 must be more than 1; 10,000 is usual"),
    (lambda: Rotary(fraction=0.0), "fraction=0.0 must be more than 0 and at most 1"),
    (lambda: LinearScaling(factor=0.5), "factor=0.5 must be at least 1"),
    (lambda: Dynamic(original_length=0), "original_length=0 must be at least 1"),
    (lambda: LongRope(original_length=1), "original_length=1 must be at least 2"),
    (lambda: Llama3(low_freq_factor=4.0), "low_freq_factor=4.0 must be above 0 and less than high_freq_factor=4.0"),
    (lambda: Yarn(beta_fast=0.5), "beta_slow=1.0 must be above 0 and less than beta_fast=0.5"),
    *(
        (
            lambda text=text: LongRope(long_factors=text),
            f"long_factors={text} must be numbers above 0, joined by commas",
        )
        for text in ("", "1,", "1,x", "1,nan", "1,inf", "1,0", "-1")
    ),
    (lambda: T5(max_distance=0), "max_distance=0 must be more than half of buckets=32"),
    (lambda: Disentangled(terms="c2p+p2c"), "terms=c2p+p2c is unknown; did you mean c2p_p2c?"),
    (lambda: Disentangled(buckets=9), "buckets=9 must be even and at least 4"),
    (
        lambda: Disentangled(buckets=32, max_distance=9),
        "max_distance=9 must be at least 10 with 32 buckets; or none",
    ),
    # and some of them the model
    (
        lambda: Config(mixer=Softmax(pattern=Global(tokens=513))),
        "mixer.pattern.tokens=513 global tokens are more than length=512; choose fewer",
    ),
    (lambda: Global(places="0,-7"), "places=0,-7 must be whole numbers, joined by commas, such as 0,7,64"),
    (lambda: Global(places="7,"), "places=7, must be whole numbers, joined by commas"),
    (lambda: Global(places="7", tokens=3), "places=7 and tokens=3 both choose global tokens; leave one out"),
    (
        lambda: Config(mixer=Softmax(pattern=Global(places="512,7"))),
        "mixer.pattern.places=512,7: place 512 is behind the end of texts of length=512; choose places from 0 to 511",
    ),
    (
        lambda: Config(period=(Layer(mixer=Softmax(pattern=BigBird(global_blocks=9))),)),
        "mixer.pattern.global_blocks * block=576 global tokens are more than length=512; choose fewer",
    ),
    (
        lambda: Config(position=Rotary(), width=15, heads=3),
        "position=rotary rotates pairs, and of each head 5 elements are rotated, of head_size=5; heads=",
    ),
    (
        lambda: Config(period=(Layer(), Layer(position=Rotary())), width=15, heads=3),
        "position=rotary rotates pairs, and of each head 5 elements are rotated, of head_size=5; heads=",
    ),
]


@pytest.mark.parametrize(("make", "message"), ERRORS, ids=[message[:40] for _, message in ERRORS])
def test_errors_name_the_culprit_and_the_remedy(make, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        make()


def test_none_is_the_size_that_others_imply():
    config = Config(heads=4, width=32)
    assert [config.sizes[letter] for letter in "KGHFU"] == [4, 1, 8, 128, 32]
    wider = dataclasses.replace(config, heads=8, width=64)
    assert [wider.sizes[letter] for letter in "KGHFU"] == [8, 1, 8, 256, 64], "and it follows when the rest changes"


@pytest.mark.parametrize(
    ("vocab", "multiple", "padded"), [(60, 64, 64), (64, 64, 64), (65, 64, 128), (30522, 128, 30592), (7, 1, 7)]
)
def test_vocabulary_is_rounded_up(vocab, multiple, padded):
    assert Config(vocab=vocab, pad_vocab_to=multiple).padded_vocab == padded


def test_sizes_of_the_letters():
    config = Config(layers=3, heads=6, kv_heads=2, width=24, ffn=40, vocab=60, pad_vocab_to=64, length=9, classes=5)
    sizes = config.sizes
    expected = dict(D=24, E=24, K=2, G=3, H=4, F=40, V=64, P=9, Y=2, C=5, L=3, U=24)
    assert {letter: sizes[letter] for letter in expected} == expected
    assert set(sizes) <= set(tfm.AXES)


def test_the_layers_of_a_model():
    """A prefix, whole periods, and a period that is cut short; a kind is the model's own where it does not choose."""
    local = Layer(mixer=Softmax(pattern=Sliding(window=4)), position=Rotary())
    bare = Layer(residual=PreNorm(mixer_norm=False))
    config = Config(layers=8, prefix=(bare,), period=(Layer(), local, local))
    plan = config.layer_plan
    own = Kind(Softmax(), Learned(), PostNorm(), PositionWise())
    local = Kind(Softmax(pattern=Sliding(window=4)), Rotary(), PostNorm(), PositionWise())
    assert plan == (
        (Kind(Softmax(), Learned(), PreNorm(mixer_norm=False), PositionWise()),),
        (own, local, local),
        2,
        (own,),
    )
    assert config.kinds == (plan.prefix[0], own, local)
    assert config.positions == (Learned(), Rotary())
    few = dataclasses.replace(config, layers=3).layer_plan
    assert (few.period, few.times, few.tail) == ((), 0, (own, local))


def test_gemma3_is_one_period():
    """Five local layers and a global one, with rotary bases of their own (Gemma 3: section 2)."""
    local = Layer(mixer=Softmax(pattern=Sliding(window=1024)), position=Rotary(base=10_000.0))
    config = Config(layers=26, position=Rotary(base=1_000_000.0), period=(*[local] * 5, Layer()))
    plan = config.layer_plan
    kinds = [*plan.prefix, *plan.period * plan.times, *plan.tail]
    bases = [kind.position.base for kind in kinds]
    assert bases == [10_000.0 if layer % 6 != 5 else 1_000_000.0 for layer in range(26)]
    assert [kind.mixer.pattern.name for kind in kinds] == [
        "full" if layer % 6 == 5 else "sliding" for layer in range(26)
    ]


def test_the_longest_text():
    assert Config(length=64).max_length == 64
    assert Config(length=64, position=Rotary()).max_length is None
    assert Config(length=64, position=Rotary(), period=(Layer(), Layer(position=Learned()))).max_length == 64
    assert Config(length=64, position=Disentangled(absolute=True)).max_length == 64
    assert Config(length=64, position=Disentangled()).max_length is None


def test_tables_hold_the_names_that_the_config_knows():
    assert choices_of(Config, "norm") == tuple(norms.NORMS)
    assert choices_of(Config, "activation") == (*ops.ACTIVATIONS, *ops.GATES)
    assert ("auto", *KERNELS) == (*choices_of(Config, "kernel"), "blocks")  # which nobody asks for by name
    pools = [pool for pool in choices_of(Head, "pool") if pool != "prefix"]  # a mean of other places
    assert [*pools, "mean_sqrt", "weighted_mean"] == [*pooling.POOLS]  # of folders
    assert choices_of(Head, "pool_activation") == tuple(classifier.POOLERS)


def classes_of(cls: type) -> list[type]:
    """A dataclass and all classes of options that its fields may hold."""
    hints = [hint for name, hint in type_hints(cls).items() if name != "name"]
    parts = [part for hint in hints for part in (*get_args(hint), hint) if dataclasses.is_dataclass(part)]
    return list(dict.fromkeys([cls, *(inner for part in parts for inner in classes_of(part))]))


def test_the_docstring_of_a_class_lists_its_fields_and_their_choices():
    classes = classes_of(Config)
    assert {Layer, Head, Tokens, Softmax, Sliding, Rotary, PreNorm} <= set(classes)
    for cls in classes:
        lines = dict(re.findall(r"^(\w+): (.*)$", inspect.cleandoc(cls.__doc__), re.MULTILINE))
        names = [field.name for field in dataclasses.fields(cls) if field.init]
        assert list(lines) == names, cls
        for name in names:
            assert lines[name].startswith(" | ".join(choices_of(cls, name)))


# Parts of a configuration that are no variants.
PLAIN = (Config, EncoderOptions, Head, Layer, Stage)


@pytest.mark.parametrize("cls", [cls for cls in classes_of(Config) if cls not in PLAIN])
def test_options_are_of_their_tag(cls):
    assert cls().name
    assert issubclass(cls, Options)
    assert {"name": cls().name}.items() <= dataclasses.asdict(cls()).items(), "run.json keeps it"


def test_what_is_computed_is_a_part_of_the_configuration():
    assert set(COMPUTE) <= {field.name for field in dataclasses.fields(Config)}


def test_a_config_is_frozen_and_hashable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().width = 5
    assert hash(Config(heads=4)) == hash(Config(heads=4))
    assert len({Config(), Config(position=Rotary()), Config(position=Rotary(base=5.0)), Config()}) == 3


@pytest.mark.parametrize("name", tfm.__all__)
def test_public_names_can_be_imported_and_are_documented(name):
    public = getattr(tfm, name)
    if name not in ("AXES", "COMPUTE", "MESH_AXES"):
        assert public.__doc__
        assert not public.__doc__.startswith(f"{name}(")  # what dataclasses write where nobody wrote anypublic
        assert public.__module__.startswith("tfm.")


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
print(*{"flax.nnx", "matplotlib", "orbax", "optax", "tokenizers", "tensorflow"} & set(sys.modules))
"""
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert (result.returncode, result.stdout.strip()) == (0, ""), result.stdout + result.stderr

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tfm
from tfm.config.inputs import Tokens
from train.planning import counting
from train.tasks import presets

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, pad_vocab_to=64, length=8)


def paths(tree) -> dict:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def test_kinds_of_parameters():
    weight, bias, scale = tfm.weight_spec(CONFIG, "DKGH"), tfm.bias_spec(CONFIG, "F"), tfm.scale_spec(CONFIG, "D")
    assert (weight.axes, weight.shape, weight.decay, weight.padding) == ("DKGH", (16, 2, 2, 4), True, 0)
    assert (bias.shape, bias.decay) == ((24,), False)
    assert (scale.shape, scale.decay) == ((16,), False)
    values = tfm.init({"bias": bias, "scale": scale}, jax.random.key(0))
    np.testing.assert_array_equal(values["bias"], np.zeros(24))
    np.testing.assert_array_equal(values["scale"], np.ones(16))


def test_a_letter_without_a_size_or_a_meaning_is_refused():
    for axes in ("DX", "Dr"):
        with pytest.raises(ValueError, match=f"axis {axes[1]} of '{axes}' has no size; give {axes[1]}=SIZE, in lower"):
            tfm.weight_spec(CONFIG, axes)
    with pytest.raises(ValueError, match="axis R of 'DR' has no size; give R=SIZE, in lower case"):
        tfm.weight_spec(CONFIG, "DR", R=3)


def test_an_axis_of_one_variant_is_a_lower_case_letter():
    spec = tfm.weight_spec(CONFIG, "rKG", r=5)
    assert (spec.axes, spec.shape) == ("rKG", (5, 2, 2))
    assert tfm.bias_spec(CONFIG, "dr", d=3, r=5).shape == (3, 5)
    assert tfm.stacked(spec, 3).shape == (3, 5, 2, 2)
    assert tfm.shardings(spec, tfm.make_mesh(2, 2, 2)).spec == P(None, "tensor", None)


def test_fixed_parameters_are_not_trained():
    """Though they are stored, initialized and sharded like the others."""
    draw = lambda key, shape, sharding: jax.random.normal(key, shape)
    specs = {"features": tfm.fixed_spec(CONFIG, "mH", draw, m=3), "kernel": tfm.weight_spec(CONFIG, "DF")}
    assert tfm.trained_mask(tfm.stacked(specs, 2)) == {"features": False, "kernel": True}
    assert tfm.decay_mask(specs) == {"features": False, "kernel": True}
    assert tfm.init(specs, jax.random.key(0))["features"].shape == (3, 4)


def test_weights_say_which_axes_are_inputs_and_which_lie_on_a_branch():
    plain, branch = tfm.weight_spec(CONFIG, "DF"), tfm.weight_spec(CONFIG, "KGHD", inputs=3, branch=True)
    assert [(spec.inputs, spec.branch, spec.trained) for spec in (plain, branch)] == [(1, False, True), (3, True, True)]
    layers = tfm.stacked(branch, 4)
    assert (layers.axes, layers.inputs, layers.branch) == ("LKGHD", 3, True)
    assert {spec.inputs for spec in (tfm.bias_spec(CONFIG, "F"), tfm.scale_spec(CONFIG, "D"))} == {0}


def test_weights_start_from_a_normal_cut_at_two_standard_deviations():
    config = dataclasses.replace(CONFIG, width=400, heads=4, init_std=0.05)
    values = np.asarray(tfm.init(tfm.weight_spec(config, "DE"), jax.random.key(0)))
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    inside = math.erf(2 / math.sqrt(2))
    std = 0.05 * math.sqrt(1 - 4 * density / inside)  # of a normal cut at +-2, 0.88 of the whole one's
    assert values.dtype == np.float32
    assert 0.099 < np.abs(values).max() <= 0.1
    assert abs(values.std() / std - 1) < 0.01
    assert abs(values.mean()) < 5 * std / 400


def test_init_depends_on_key_and_path_only():
    spec, key = tfm.weight_spec(CONFIG, "DF"), jax.random.key(3)
    alone = tfm.init({"b": spec}, key)
    together = tfm.init({"a": spec, "b": spec, "c": tfm.bias_spec(CONFIG, "D")}, key)
    np.testing.assert_array_equal(alone["b"], together["b"])
    assert not np.array_equal(together["a"], together["b"])
    assert not np.array_equal(alone["b"], tfm.init({"b": spec}, jax.random.key(4))["b"])


def test_init_on_a_mesh_gives_the_same_values():
    mesh = tfm.make_mesh(2, 2, 2)
    specs = {
        "table": tfm.weight_spec(CONFIG, "VD"),
        "bias": tfm.bias_spec(CONFIG, "F"),
        "scale": tfm.scale_spec(CONFIG, "D"),
    }
    plain = tfm.init(specs, jax.random.key(0))
    with jax.set_mesh(mesh):
        sharded = tfm.init(specs, jax.random.key(0), mesh)
    for name in specs:
        np.testing.assert_array_equal(plain[name], sharded[name])
    assert jax.tree.map(lambda x: x.sharding, sharded) == tfm.shardings(specs, mesh)


def test_stacked_layers_start_differently():
    specs = tfm.stacked(
        {
            "kernel": tfm.weight_spec(CONFIG, "DF"),
            "table": tfm.weight_spec(CONFIG, "VD"),
            "bias": tfm.bias_spec(CONFIG, "F"),
        },
        3,
    )
    assert (specs["kernel"].axes, specs["kernel"].shape, specs["kernel"].decay) == ("LDF", (3, 16, 24), True)
    assert (specs["bias"].axes, specs["bias"].shape, specs["bias"].decay) == ("LF", (3, 24), False)
    assert tfm.count_params(specs["table"]) == 3 * 60 * 16
    layers = tfm.init(specs, jax.random.key(0))["kernel"]
    assert not np.array_equal(layers[0], layers[1])


def test_abstract_and_shardings_describe_what_init_makes():
    mesh = tfm.make_mesh(2, 2, 2)
    specs = tfm.masked_lm_specs(CONFIG)
    values = jax.eval_shape(lambda: tfm.init(specs, jax.random.key(0)))
    assert tfm.abstract(specs) == values
    assert paths(jax.tree.map(lambda x: x.sharding, tfm.abstract(specs, mesh))) == paths(tfm.shardings(specs, mesh))
    assert tfm.shardings(specs, mesh).encoder.embed.tokens == NamedSharding(mesh, P("tensor", "fsdp"))
    assert tfm.shardings(specs, mesh).encoder.layers.period[0].mixer.query.kernel == NamedSharding(
        mesh, P(None, "fsdp", "tensor", None, None)
    )


def test_shardings_refuse_a_mesh_that_does_not_divide_the_width():
    with pytest.raises(ValueError, match=r"mesh\.fsdp = 8 must divide the width axis of size 12 of encoder\..*; try 6"):
        tfm.shardings(tfm.masked_lm_specs(tfm.Config(width=12)), tfm.make_mesh(1, 8, 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_leaf_has_the_dtype_of_parameters(dtype):
    specs = tfm.masked_lm_specs(dataclasses.replace(CONFIG, param_dtype=dtype))
    assert {leaf.dtype for leaf in jax.tree.leaves(tfm.abstract(specs))} == {jnp.dtype(dtype)}
    assert jax.eval_shape(lambda key: tfm.init(specs, key), jax.random.key(0)) == tfm.abstract(specs)


SMALL = tfm.Config(
    layers=2, heads=2, width=8, ffn=16, vocab=60, pad_vocab_to=64, length=8, input=Tokens(width=4), dropout=0.1
)
T5 = {"position": "t5", "norm": "rms", "tie_embeddings": False, "head.output_bias": True}
DISENTANGLED = {"position": "disentangled", "position.buckets": 4, "position.max_distance": 3}
LLAMA = {"position": "rotary", "activation": "swiglu", "mixer.qk_norm": True, "head.output_bias": True}


@pytest.mark.parametrize(
    ("specs", "apply", "values"),
    [
        (tfm.masked_lm_specs, lambda *args: tfm.masked_lm(*args, args[2]), {}),
        (tfm.masked_lm_specs, lambda *args: tfm.masked_lm(*args, args[2]), DISENTANGLED),
        (tfm.classifier_specs, tfm.classify, {"position": "sinusoidal", "head.pool_norm": True}),
        (tfm.causal_lm_specs, tfm.causal_lm, LLAMA | {"tie_embeddings": False}),
        pytest.param(tfm.seq2seq_specs, lambda *args: tfm.seq2seq(*args, args[2]), T5, marks=pytest.mark.slow),
    ],
)
def test_a_model_in_bfloat16_computes_as_it_would_in_float32(specs, apply, values):
    """By its types: nothing is promoted, what is computed in float32 stays so, and gradients are as the parameters."""
    tokens = jax.ShapeDtypeStruct((2, 6), jnp.int32)
    config = tfm.override(SMALL, values)
    run = lambda params, tokens: apply(params, config, tokens)
    params = tfm.abstract(specs(dataclasses.replace(config, param_dtype="bfloat16")))
    assert jax.eval_shape(run, params, tokens) == jax.eval_shape(run, tfm.abstract(specs(config)), tokens)
    assert jax.eval_shape(jax.grad(lambda *args: run(*args).sum()), params, tokens) == params


@pytest.mark.parametrize(
    ("preset", "published"),
    [
        ("bert-tiny", 4.4e6),
        ("bert-mini", 11.2e6),
        ("bert-small", 28.8e6),
        ("bert-base", 109_514_298),
        ("bert-large", 335_174_458),
    ],
)
def test_parameter_counts_of_the_presets(preset, published):
    """Tiny to small are published to a tenth of a million (Turc et al. 2019), the others counted in checkpoints."""
    shape = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "base": (12, 768), "large": (24, 1024)}
    layers, width = shape[preset.removeprefix("bert-")]
    norm = 2 * width
    embeddings = (30522 + 512 + 2) * width + norm
    attention = 4 * (width * width + width)
    feed_forward = width * 4 * width + 4 * width + 4 * width * width + width
    head = width * width + width + norm + 30522
    expected = embeddings + layers * (attention + norm + feed_forward + norm) + head

    config = presets.model(preset, vocab=30522)
    assert tfm.count_params(tfm.masked_lm_specs(config)) == expected
    assert config.heads * 64 == width
    assert abs(expected - published) < (0.05e6 if published < 1e8 else 1)


@pytest.mark.parametrize(
    ("preset", "layers", "width", "heads", "length", "published"),
    [
        ("gpt2", 12, 768, 12, 1024, 124_439_808),
        ("gpt2-medium", 24, 1024, 16, 1024, 354_823_168),
        ("gpt2-large", 36, 1280, 20, 1024, 774_030_080),
        ("gpt2-xl", 48, 1600, 25, 1024, 1_557_611_200),
        ("gpt3-175b", 96, 12288, 96, 2048, 175e9),
    ],
)
def test_shapes_of_the_gpt_presets(preset, layers, width, heads, length, published):
    """Counts of the released GPT-2 checkpoints, and GPT-3's published size (Brown et al. 2020, table 2.1)."""
    config = presets.model(preset, vocab=50257)
    assert (config.layers, config.width, config.heads, config.length) == (layers, width, heads, length)
    expected = (50257 + length) * width + layers * (12 * width**2 + 13 * width) + 2 * width
    assert tfm.count_params(tfm.causal_lm_specs(config)) == expected
    assert abs(expected - published) < (0.5e9 if preset == "gpt3-175b" else 1)


@pytest.mark.parametrize(
    ("preset", "published"),
    [
        ("gopher-280b", 280e9),
        ("chinchilla-70b", 70e9),
        ("mt-nlg-530b", 530e9),
        ("lamda-137b", 137e9),
        ("palm-540b", 540.35e9),
    ],
)
def test_sizes_of_the_largest_models(preset, published):
    """Rae et al. 2021; Hoffmann et al. 2022; Smith et al. 2022; Thoppilan et al. 2022; Chowdhery et al. 2022."""
    config = presets.model(preset, vocab=presets.PRESETS["lm"][preset]["tokenizer.vocab"])
    assert tfm.count_params(tfm.causal_lm_specs(config)) == pytest.approx(published, rel=0.006)


def test_work_of_gpt3():
    """Training on 300 billion tokens is published as 3.14e23 floating-point operations (Brown et al. 2020, appendix D).

    Attention scores are left out there and counted here: 4 * T * D a layer and token forward.
    """
    config = presets.model("gpt3-175b", vocab=50257, kernel="einsum", period=1)  # it counts no scores
    params, tokens = tfm.abstract(tfm.causal_lm_specs(config)), jax.ShapeDtypeStruct((1, 2048), jnp.int32)
    forward = counting.flops(lambda params, tokens: tfm.causal_lm(params, config, tokens), params, tokens) / 2048
    assert (forward - 96 * 4 * 2048 * 12288) * 3 * 300e9 == pytest.approx(3.14e23, rel=0.01)


def test_padding_of_the_vocabulary_is_stored_but_not_counted():
    specs = tfm.masked_lm_specs(CONFIG)
    stored = sum(math.prod(spec.shape) for spec in jax.tree.leaves(specs))
    assert stored - tfm.count_params(specs) == 4 * 16 + 4  # rows of the token table, and output biases


@pytest.mark.parametrize(
    ("values", "difference"),
    [
        ({"input.token_types": None}, -2 * 16),
        ({"position": "sinusoidal"}, -8 * 16),
        ({"position": "none"}, -8 * 16),
        ({"tie_embeddings": False}, 60 * 16),
        ({"input.norm": False}, -2 * 16),
        ({"residual": "pre"}, 2 * 16),
        ({"norm": "rms"}, -(2 * 2 + 2) * 16),
        ({"activation": "swiglu"}, 2 * (16 * 24 + 24)),
        ({"bias": False}, -2 * (16 + 8 + 8 + 16 + 24 + 16)),
        ({"kv_heads": 4}, 2 * 2 * (16 + 1) * 8),
        ({"mixer.qk_norm": True}, 2 * 2 * 2 * 4),
        ({"share_layers": True}, -(2 * 16 * 16 + 2 * 16 + 2 * (16 + 1) * 8 + 2 * 16 * 24 + 24 + 16 + 4 * 16)),
    ],
)
def test_what_a_variant_adds_or_saves(values, difference):
    count = tfm.count_params(tfm.masked_lm_specs(CONFIG))
    assert tfm.count_params(tfm.masked_lm_specs(tfm.override(CONFIG, values))) - count == difference


def test_decay_is_for_matrices_and_tables():
    config = tfm.override(CONFIG, {"tie_embeddings": False, "activation": "swiglu", "residual": "pre"})
    decayed = {
        ".kernel": True,
        ".tokens": True,
        ".positions": True,
        ".types": True,
        ".table": True,
        ".bias": False,
        ".scale": False,
    }
    mask = paths(tfm.decay_mask(tfm.masked_lm_specs(config)))
    assert mask == {path: decayed[path[path.rindex(".") :]] for path in mask}
    assert {path[path.rindex(".") :] for path in mask} == set(decayed)

"""What every variant must do, by its row in `variants.py`."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from random_params import random_params
from variants import VARIANTS

import tfm

pytestmark = pytest.mark.usefixtures("strict")

TOKENS = jnp.array([[5, 59, 0, 7, 7, 31, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8]])
NEAR = {"rtol": 1e-4, "atol": 1e-5}
MESHES = {"fsdp_tensor": (2, 2, 2, 1), "tensor_context": (2, 1, 2, 2)}


def family_of(row):
    """The family of a row: where its mixer is, what its input is, and whether it has stages."""
    return type(row.config.mixer).__module__, row.config.input.name, bool(row.config.stages)


# The rows whose contracts are part of the plain test command: the first, a mixer with a state of its own, and one with
# several kinds of layers. The contracts of all others are slow tests, which CI runs.
PLAIN = [*[name for name, row in VARIANTS.items() if row.oracle and row.decoder][:2], "gpt3"]

# The plain test command has a row of each family for the contracts that cost little: who breaks a family is told.
ROWS_OF_FAMILIES = {
    "softmax": "learned",
    "mixers/clustered": "sinkhorn",
    "mixers/convolution": "lightconv",
    "mixers/fewer_keys": "compressed",
    "mixers/fewer_keys, of grids": "spatial_reduction",
    "mixers/kernels": "performer",
    "mixers/kernels, of grids": "xcit",
    "mixers/recurrent": "gru",
    "mixers/static": "gmlp",
    "patterns": "strided",
    "positions, absolute": "sinusoidal",
    "positions, relative": "shaw",
    "positions of grids": "beit",
    "residuals": "reversible",
    "inputs, of texts": "characters",
    "inputs, of images": "patches",
    "inputs, of images by convolutions": "resnet",
    "inputs, of images by convolutions with norms behind": "detr",
    "inputs, of texts and images": "tokens_and_patches",
    "inputs, of frames": "frames",
    "inputs, of frames, in squares": "spectrogram",
    "inputs, of videos": "tubes",
    "several kinds of layers": "gpt3",
    "stages": "swin",
}

# Keys and values, and a state: the plain test command fills the caches of these rows; slow tests, those of all.
CACHED = ["learned", "gru"]

# The rows whose costly contracts are slow tests: one for each family of mixers, for each input, and for stages. Those
# of all others are exhaustive tests (`-m exhaustive`), an hour on two cores.
FAMILIES = list({family_of(row): name for name, row in VARIANTS.items()}.values())

# Of images, what a model computes without dropout is all that costs little.
IMAGES = [name for name in ROWS_OF_FAMILIES.values() if VARIANTS[name].config.input.grid]


def rows(**wanted):
    """The names of the rows that have these properties."""
    return [name for name, row in VARIANTS.items() if all(getattr(row, key) == value for key, value in wanted.items())]


def slow_unless(names, all_names):
    """Parameters of a test: the rows of the plain test command, and the slow others."""
    return [pytest.param(name, marks=[] if name in names else [pytest.mark.slow]) for name in all_names]


def costly(all_names, plain=PLAIN[:1]):
    """Parameters of a costly test: the rows of the plain test command, the slow ones, and the exhaustive others."""

    def marks(name):
        if name in plain:
            return []
        return [pytest.mark.slow if name in (*PLAIN, *FAMILIES) else pytest.mark.exhaustive]

    return [pytest.param(name, marks=marks(name)) for name in all_names]


def inputs_of(config, rows=2):
    """What a model reads: the texts, or random ones where there are more rows; random images or frames; or both."""
    rng = np.random.default_rng(0)
    if config.input.array_shape:
        return jax.device_put(np.float32(rng.normal(size=(rows, *config.input.array_shape))))
    texts = TOKENS if rows == 2 else jax.device_put(np.int32(rng.integers(0, 60, (rows, 8))))
    if not config.input.suffix:
        return texts
    return tfm.PicturedTokens(texts, jax.device_put(np.float32(rng.normal(size=(rows, *config.input.pixels)))))


def reads_arrays(config):
    """Whether a model reads images or frames, alone or behind texts."""
    return bool(config.input.array_shape or config.input.suffix)


@functools.partial(jax.jit, static_argnums=(0, 1))
def states_of(function, config, params, inputs, mask=None, positions=None, key=None):
    """The hidden states of texts or images."""
    return function(params, config, inputs, mask, positions=positions, key=key)


@functools.partial(jax.jit, static_argnums=(0, 1))
def loss_and_gradient(function, config, params, inputs, mask=None, key=None):
    """A loss that depends on every state, its gradient, and the states."""

    def loss(params):
        states = function(params, config, inputs, mask, key=key)
        weights = jax.random.normal(jax.random.key(1), states.shape)
        return (states * weights).sum(), states

    (value, states), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return value, gradient, states


def model_of(name):
    """The configuration of a row, its function (`tfm.encoder` or `tfm.decoder`), its specs and parameters."""
    row = VARIANTS[name]
    specs = tfm.encoder_specs(row.config)
    return row.config, tfm.encoder if row.encoder else tfm.decoder, specs, random_params(specs, std=0.1)


def assert_near(actual, expected, tolerance=1e-4):
    """Trees are equal up to a tolerance, relative to the largest element of each leaf."""
    for leaf, reference in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        scale = np.abs(np.asarray(reference, np.float32)).max(initial=0.0)
        np.testing.assert_allclose(leaf, reference, rtol=tolerance, atol=tolerance * scale + 1e-5)


def test_every_family_has_a_row_in_the_plain_command():
    assert {family_of(VARIANTS[name]) for name in ROWS_OF_FAMILIES.values()} == {*map(family_of, VARIANTS.values())}


@pytest.mark.parametrize(
    "name", slow_unless([*PLAIN, *FAMILIES], [name for name, row in VARIANTS.items() if row.oracle])
)
def test_mixers_are_their_oracles(name):
    """A mixer alone, on random states, against numpy."""
    row = VARIANTS[name]
    params, forward = mixer_alone(row)
    x = np.random.default_rng(0).normal(size=(2, 8, row.config.width)).astype(np.float32)
    y = jax.jit(forward)(params, x)
    np.testing.assert_allclose(y, row.oracle(params, x.astype(np.float64)), rtol=1e-5, atol=1e-5)


def mixer_alone(row):
    """The parameters of the mixer of a row, and (parameters, x [B,T,D]) -> what it returns without a mask."""
    options, config = row.config.mixer, row.config
    mixer = tfm.mixer_of(options)

    def forward(params, x):
        context = tfm.AttentionContext(tfm.default_positions(TOKENS), causal=not row.encoder)
        call = tfm.LayerCall(options, config, params, mixer.prepare(tfm.LayerCall(options, config), context), None)
        return mixer.forward(call, x, lambda q, k, projections: (q, k, None), None)[0]

    return random_params(mixer.specs(options, config)), forward


def slope(function, x, direction):
    """The derivative of a function of numpy along a direction, by central differences in float64."""
    step = 1e-6
    return (function(x + step * direction) - function(x - step * direction)) / (2 * step)


@pytest.mark.parametrize("name", slow_unless([], [name for name, row in VARIANTS.items() if row.oracle]))
def test_gradients_of_mixers_are_slopes_of_their_oracles(name):
    """Along a random direction of the states, as `test_mixers_are_their_oracles`."""
    row, rng = VARIANTS[name], np.random.default_rng(0)
    width = row.config.width
    params, forward = mixer_alone(row)
    x, direction, weights = (rng.normal(size=(2, 8, width)).astype(np.float32) for _ in range(3))

    def loss(x):
        return (forward(params, x)[..., :width] * weights).sum()

    slopes = slope(lambda x: row.oracle(params, x), x.astype(np.float64), direction)
    expected = (slopes[..., :width] * weights).sum()
    actual = (np.asarray(jax.jit(jax.grad(loss))(x), np.float64) * direction).sum()
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", costly(VARIANTS))
def test_scanned_unrolled_and_recomputed_are_the_same(name):
    """Values and gradients, with dropout, which changes them."""
    config, function, _, params = model_of(name)
    results = []
    for fields in ({"scan": True}, {"scan": False}, {"scan": True, "remat": "block"}):
        options = dataclasses.replace(config, dropout=0.1, **fields)
        results.append(loss_and_gradient(function, options, params, inputs_of(config), key=jax.random.key(1)))
    for result in results[1:]:
        assert_near(result, results[0])
    assert not np.allclose(results[0][2], states_of(function, config, params, inputs_of(config)), atol=1e-2)


@pytest.mark.parametrize("name", slow_unless([PLAIN[0], IMAGES[-1]], VARIANTS))
def test_nothing_is_dropped_without_a_key(name):
    """Values of a model with dropout."""
    config, function, _, params = model_of(name)
    states = states_of(function, dataclasses.replace(config, dropout=0.5), params, inputs_of(config))
    np.testing.assert_allclose(states, states_of(function, config, params, inputs_of(config)), **NEAR)


@pytest.mark.parametrize("name", slow_unless(PLAIN[:1], rows(decoder=True)))
def test_nothing_later_has_influence_on_a_decoder(name):
    """By gradient; and everything before has some, unless a pattern hides it."""
    config, _, _, params = model_of(name)
    context = tfm.AttentionContext(tfm.default_positions(TOKENS[:1]), causal=True)
    x = jax.device_put(np.float32(np.random.default_rng(1).normal(size=(1, 8, config.width))))
    states = lambda x: tfm.stack(params, config, x, context)[0]
    slope = jax.jit(lambda slopes: jax.vjp(states, x)[1](slopes)[0][0])
    direction = np.random.default_rng(2).normal(size=jax.eval_shape(states, x).shape[-1])
    slopes = np.eye(8)[:, None, :, None] * direction
    influence = np.array([np.abs(slope(jax.device_put(np.float32(of_query)))).max(-1) for of_query in slopes])
    assert (influence[np.triu_indices(8, 1)] == 0).all()
    assert (np.diagonal(influence, -1) > 0).all()


@pytest.mark.parametrize("name", slow_unless(CACHED, rows(decoder=True, generates=True)))
def test_cached_is_full(name):
    """A prompt, several tokens, one token: states as of a pass over everything; padding on the left changes nothing,
    nor do slots that are allocated later."""
    config = VARIANTS[name].config
    params = random_params(tfm.causal_lm_specs(config), std=0.1)
    extend = jax.jit(functools.partial(tfm.extend, params.decoder, config))
    allocate = jax.jit(lambda cache: tfm.allocate_slots(config, cache, 12))

    @jax.jit
    def prefill(tokens, starts):
        return tfm.prefill(params.decoder, config, tokens, starts, 12, allocated=6)

    def cached(tokens, starts):
        states, cache = prefill(tokens[:, :3], starts)
        parts = [states]
        for part in (tokens[:, 3:6], tokens[:, 6:7], tokens[:, 7:8]):
            states, cache = extend(part, cache)
            parts.append(states)
            cache = allocate(cache)
        return np.concatenate(parts, axis=1)

    full = states_of(tfm.decoder, config, params.decoder, TOKENS)
    np.testing.assert_allclose(cached(TOKENS, jnp.zeros(2, jnp.int32)), full, **NEAR)
    padded = jnp.concatenate([jnp.array([[58, 57]]), TOKENS[:1, :6]], axis=1)
    states = cached(jnp.concatenate([padded, TOKENS[1:]]), jnp.array([2, 0]))
    np.testing.assert_allclose(states[:1, 2:], full[:1, :6], **NEAR)
    np.testing.assert_allclose(states[1:], full[1:], **NEAR)


@pytest.mark.parametrize("name", costly(rows(decoder=True, generates=True), plain=()))
def test_beams_have_the_probability_of_a_full_pass(name):
    """Beam search reorders states that it does not know: the log-probability of each text is that of a pass over it."""
    config = VARIANTS[name].config
    params = random_params(tfm.causal_lm_specs(config), std=0.1)
    prompts = [[5, 6, 7], [8, 9]]
    for prompt, hypotheses in zip(
        prompts, tfm.beam_search(params, config, prompts, 5, tfm.Beam(width=4), (), 4), strict=True
    ):
        for hypothesis in hypotheses:
            text = jnp.array([[*prompt, *hypothesis.tokens]])
            logprobs = jax.nn.log_softmax(tfm.causal_lm(params, config, text), axis=-1)[0]
            chosen = [logprobs[len(prompt) - 1 + n, token] for n, token in enumerate(hypothesis.tokens)]
            np.testing.assert_allclose(hypothesis.logprob, sum(chosen), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", slow_unless(ROWS_OF_FAMILIES.values(), rows(ignores_padding=True)))
def test_padding_does_not_matter(name):
    """A text alone, and before padding of two kinds."""
    config, function, _, params = model_of(name)
    alone = states_of(function, config, params, TOKENS[:1, :4])
    padded = jnp.array([[5, 59, 0, 7, 9, 9, 9], [5, 59, 0, 7, 1, 2, 3]])
    valid = jnp.arange(7)[None] < jnp.array([[4], [4]])
    states = states_of(function, config, params, padded, tfm.padding(valid))
    np.testing.assert_allclose(states[0, :4], alone[0], **NEAR)
    np.testing.assert_allclose(states[1, :4], alone[0], **NEAR)


@pytest.mark.parametrize("name", slow_unless([*CACHED, "shaw", "lightconv"], rows(packs=True)))
def test_packed_documents_are_as_separate_ones(name):
    config, function, _, params = model_of(name)
    first, second = TOKENS[:1, :4], TOKENS[1:, :4]
    packed = jnp.concatenate([first, second], axis=1)
    mask, positions = tfm.segments(jnp.array([[1] * 4 + [2] * 4])), jnp.array([[0, 1, 2, 3] * 2])
    together = states_of(function, config, params, packed, mask, positions)
    np.testing.assert_allclose(together[:, :4], states_of(function, config, params, first), **NEAR)
    np.testing.assert_allclose(together[:, 4:], states_of(function, config, params, second), **NEAR)


@pytest.mark.parametrize("name", costly(VARIANTS))
def test_bfloat16_is_near_float32(name):
    config, function, _, params = model_of(name)
    states = states_of(function, dataclasses.replace(config, dtype="bfloat16"), params, inputs_of(config))
    assert states.dtype == jnp.bfloat16
    expected = states_of(function, config, params, inputs_of(config))
    assert np.abs(np.asarray(states, np.float32) - expected).mean() < 0.05 * np.abs(expected).mean()


@pytest.mark.parametrize("name", costly(VARIANTS))
def test_vmap_and_grad(name):
    """vmap gives the same states; the gradient is the slope of the loss along its own direction."""
    config, function, _, params = model_of(name)
    inputs = inputs_of(config)
    value, gradient, states = loss_and_gradient(function, config, params, inputs)
    by_row = jax.jit(jax.vmap(lambda row: function(params, config, jax.tree.map(lambda x: x[None], row))[0]))(inputs)
    np.testing.assert_allclose(by_row, states, **NEAR)
    params, gradient = jax.device_get((params, gradient))
    norm = np.sqrt(_inner(gradient, gradient))
    step = np.float32(1e-3 / norm)
    moved = jax.tree.map(lambda leaf, slope: leaf + step * slope, params, gradient)
    ahead = loss_and_gradient(function, config, moved, inputs)
    slopes = 0.5 * (norm**2 + _inner(gradient, jax.device_get(ahead[1])))
    np.testing.assert_allclose((ahead[0] - value) / step, slopes, rtol=0.05)


def _inner(tree, tree2):
    """The inner product of two trees of arrays of numpy."""
    return sum(float((leaf * leaf2).sum()) for leaf, leaf2 in zip(*map(jax.tree.leaves, (tree, tree2)), strict=True))


def assert_same_on_mesh(name, function, mesh_name, mask_of, fields):
    """The loss and its gradient with dropout, on a mesh as without; `mask_of` makes the mask of fields [B,T]."""
    config, _, specs, params = model_of(name)
    config = dataclasses.replace(config, dropout=0.1)
    inputs = inputs_of(config, rows=4)

    def run(params, inputs, fields):
        return loss_and_gradient(function, config, params, inputs, mask_of(fields), jax.random.key(3))

    expected = run(params, inputs, fields)
    mesh = tfm.make_mesh(*MESHES[mesh_name])
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(specs, mesh))
        rows, batch = (NamedSharding(mesh, tfm.partition(axes, (4, 8)[: len(axes)], mesh)) for axes in ("B", "BT"))
        inputs = jax.device_put(inputs, rows if reads_arrays(config) else batch)
        actual = run(sharded, inputs, jax.device_put(fields, batch))
    assert_near((actual[0], actual[1]), (expected[0], expected[1]), 2e-4)


@pytest.mark.parametrize("mesh_name", slow_unless(["fsdp_tensor"], MESHES))
@pytest.mark.parametrize("name", costly(VARIANTS))
def test_eight_devices_are_one(name, mesh_name):
    """With padding, which images have not; an encoder where a row can be either."""
    valid = jnp.arange(8)[None] < jnp.array([[8], [6], [3], [8]])
    mask_of = (lambda valid: None) if reads_arrays(VARIANTS[name].config) else tfm.padding
    assert_same_on_mesh(name, model_of(name)[1], mesh_name, mask_of, valid)


@pytest.mark.parametrize("mesh_name", slow_unless(["fsdp_tensor"], MESHES))
@pytest.mark.parametrize("name", costly(rows(decoder=True, packs=True), plain=()))
def test_decoders_of_packed_rows_on_eight_devices_are_one(name, mesh_name):
    """As language models are trained: causal, and several documents in a row."""
    documents = jnp.array([[1] * 8, [1, 1, 1, 2, 2, 2, 2, 2], [1, 2, 2, 2, 3, 3, 0, 0], [1] * 7 + [2]])
    assert_same_on_mesh(name, tfm.decoder, mesh_name, tfm.segments, documents)

"""Images as vectors: patches, what stands before them, and where they are."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import images

import tfm

pytestmark = pytest.mark.usefixtures("strict")

IMAGES = {"input": "patches", "input.size": 4, "input.image_width": 6, "input.patch": 2, "input.channels": 3}
CONFIG = tfm.override(tfm.Config(layers=2, heads=2, width=16, ffn=24, classes=5, dropout=0.0), IMAGES)
PIXELS = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(2, 4, 6, 3))))
ENCODER, CLASSIFY = (jax.jit(function, static_argnums=1) for function in (tfm.encoder, tfm.classify))
# By the names of positions, dotted names and values.
POSITIONS = {
    "learned": {"position": "learned"},
    "learned_queries_keys": {"position": "learned", "position.place": "queries_keys"},
    "sinusoidal": {"position": "sinusoidal"},
    "sinusoidal_2d": {"position": "sinusoidal", "position.axes": 2, "position.order": "halves"},
    "rotary": {"position": "rotary"},
    "rotary_2d": {"position": "rotary", "position.axes": 2, "position.base": 50.0},
    "t5": {"position": "t5"},
}


@pytest.mark.parametrize("name", ["learned", "sinusoidal_2d", "none"])
def test_embeddings_are_those_of_a_loop(fill, name):
    """A patch is its own product with the kernel; [CLS] is first, and the token of the teacher second."""
    values = {"input.distilled": name == "learned", "input.bias": name != "none"}
    config = tfm.override(CONFIG, POSITIONS.get(name, {"position": name}), values)
    tables = fill(tfm.embed_specs(config))
    expected = images.embedded(tables, 2, PIXELS)
    if name == "learned":
        expected += np.asarray(tables.positions)
    if name == "sinusoidal_2d":
        grid = [(-1, -1), *((row, column) for row in range(2) for column in range(3))]
        expected += np.stack([np.concatenate([images.waves(x, 8), images.waves(y, 8)]) for y, x in grid])
    np.testing.assert_allclose(tfm.embed(tables, config, PIXELS), expected, rtol=1e-4, atol=1e-4)


def test_a_vector_stands_for_masked_patches(fill):
    """The others are as they were; pixels of masked ones are not read."""
    config = tfm.override(CONFIG, {"position": "none", "input.mask_token": True})
    tables = fill(tfm.embed_specs(config))
    masked = np.array([[0, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0]], bool)
    expected = images.embedded(tables, 2, PIXELS)
    expected[:, 1:][masked] = tables.mask_token
    actual = tfm.embed(tables, config, tfm.MaskedPixels(PIXELS, jnp.asarray(masked)))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"masked has shape \[2, 5\]; it must be \[2, 6\]"):
        tfm.embed(tables, config, tfm.MaskedPixels(PIXELS, jnp.asarray(masked[:, 1:])))
    plain = tfm.override(config, {"input.mask_token": False})
    with pytest.raises(ValueError, match=r"no vector for them; take input\.mask_token=true"):
        tfm.embed(fill(tfm.embed_specs(plain)), plain, tfm.MaskedPixels(PIXELS, jnp.asarray(masked)))


@pytest.mark.slow
def test_two_axes_of_rotary_positions_are_those_of_a_loop():
    config = tfm.override(CONFIG, POSITIONS["rotary_2d"])
    q = np.random.default_rng(1).normal(size=(1, 7, 1, 2, 8)).astype(np.float32)
    context = tfm.AttentionContext(jnp.arange(7)[None])
    position = tfm.position_of(config.position)
    call = tfm.LayerCall(
        config.position, config, None, position.prepare(tfm.LayerCall(config.position, config), context), None
    )
    actual, _, _ = position.score(call, q, q[:, :, :, 0], None)
    for token, group in np.ndindex(7, 2):
        row, column = divmod(max(token - 1, 0), 3)
        expected = images.rotated(q[0, token, 0, group], row, column, 50.0)
        np.testing.assert_allclose(actual[0, token, 0, group], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["learned", *(pytest.param(name, marks=pytest.mark.slow) for name in list(POSITIONS)[1:])]
)
def test_patches_in_another_order_with_their_positions_have_the_same_states(fill, name):
    """And without their positions they have not; distances of a score's bias are of places, whatever positions say."""
    config = tfm.override(CONFIG, POSITIONS[name])
    params = jax.tree.map(lambda leaf: 0.3 * leaf, fill(tfm.encoder_specs(config)))
    order = np.array([4, 0, 5, 2, 1, 3])
    grid = PIXELS.reshape(2, 2, 2, 3, 2, 3).swapaxes(2, 3).reshape(2, 6, 2, 2, 3)[:, order]
    shuffled = grid.reshape(2, 2, 3, 2, 2, 3).swapaxes(2, 3).reshape(PIXELS.shape)
    tokens = jnp.array([0, *(1 + order)])
    states = ENCODER(params, config, PIXELS)[:, tokens]
    moved = ENCODER(params, config, shuffled, positions=jnp.tile(tokens[None], (2, 1)))
    in_place = ENCODER(params, config, shuffled)
    np.testing.assert_allclose(moved, in_place if name == "t5" else states, rtol=1e-4, atol=1e-4)
    assert np.abs(in_place - states).max() > (1e-4 if name == "t5" else 1e-3)


def test_a_head_reads_cls_or_the_mean_of_the_patches(fill):
    plain = tfm.override(CONFIG, {"head.dense": False})
    params = fill(tfm.classifier_specs(plain))
    assert params.pooler is None
    states = np.asarray(ENCODER(params.encoder, plain, PIXELS))
    for pool, image in {"first": states[:, 0], "mean": states[:, 1:].mean(1)}.items():
        logits = CLASSIFY(params, tfm.override(plain, {"head.pool": pool}), PIXELS)
        expected = image @ np.asarray(params.output.kernel) + np.asarray(params.output.bias)
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert tfm.classifier_specs(CONFIG).pooler.kernel.shape == (16, 16)


@pytest.mark.slow
def test_an_output_for_the_teacher_reads_the_second_vector(fill):
    config = tfm.override(CONFIG, {"head.dense": False, "head.distilled": True, "input.distilled": True})
    params = fill(tfm.classifier_specs(config))
    states = np.asarray(ENCODER(params.encoder, config, PIXELS))
    label, teacher = (
        states[:, place] @ np.asarray(output.kernel) + np.asarray(output.bias)
        for place, output in enumerate((params.output, params.distilled))
    )
    for actual, expected in zip(tfm.classify_distilled(params, config, PIXELS), (label, teacher), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(CLASSIFY(params, config, PIXELS), (label + teacher) / 2, rtol=1e-4, atol=1e-4)
    without = dataclasses.replace(params, distilled=None)
    with pytest.raises(ValueError, match=r"no output for what a teacher says; make it with head\.distilled=true"):
        tfm.classify_distilled(without, config, PIXELS)


def test_the_sizes_of_an_image_are_those_of_its_patches():
    config = tfm.override(CONFIG, {"input.distilled": True})
    assert (config.input.grid, config.input.length, config.max_length) == ((2, 3), 8, 8)
    assert tfm.embed_specs(config).positions.shape == (8, 16)
    assert not config.reads_packed
    assert not config.sizes.keys() & {"V", "Y"}
    count = tfm.count_params(tfm.embed_specs(config))
    assert count == (2 * 2 * 3 + 1) * 16 + 2 * 16 + 8 * 16


@pytest.mark.slow
def test_what_positions_do_to_scores_of_patches(fill):
    """Rotary positions of rows and columns depend on both distances: equal in all heads where these are."""
    config = tfm.override(CONFIG, POSITIONS["rotary_2d"])
    params = fill(tfm.encoder_specs(config))
    scores = tfm.position_scores(params, config, 7)
    assert scores.shape == (4, 7, 7)
    np.testing.assert_allclose(scores[:, 1, 2], scores[:, 5, 6], atol=1e-3)
    np.testing.assert_allclose(scores[:, 1, 4], scores[:, 3, 6], atol=1e-3)
    assert np.abs(scores[:, 1, 2] - scores[:, 1, 4]).max() > 1e-2
    assert tfm.position_similarity(params, config, 7) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input.size": 9}, r"input\.size=9 must be a multiple of patch=2; try size=8"),
        ({"input.cls": False, "input.distilled": True}, "distilled=true puts a vector behind"),
        ({"head.distilled": True}, r"head\.distilled=true reads the second vector of an image"),
        ({"input": "tokens", "position": "rotary", "position.axes": 2}, r"axes=2 counts rows and columns"),
        (
            {"position": "rotary", "position.axes": 3},
            "axes=3 counts times, rows and columns, which input=patches does not",
        ),
        ({"position": "rotary", "position.axes": 2, "heads": 8}, "2 elements .* must be a multiple of 4"),
        ({"position": "sinusoidal", "position.axes": 2, "width": 18}, "18 elements .* must be a multiple of 4"),
        ({"input.token_types": 2}, r"input\.token_types belongs to input=tokens or characters, not to patches"),
    ],
)
def test_options_that_do_not_fit(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, values)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (PIXELS[0], r"must have the shape \[B,4,6,3\] of the images that the model reads, not \[4, 6, 3\]"),
        (PIXELS[:, :2], r"not \[2, 2, 6, 3\]; resize them, or adapt the model with tfm\.interpolate_positions"),
        (PIXELS.astype(jnp.uint8), "must be floating-point numbers, not uint8; divide by 255 and normalize them"),
        ([1.0], r"must be an array \[B,H,W,C\], not a list; wrap it in jnp\.array"),
    ],
)
def test_pixels_that_are_no_images(fill, pixels, message):
    with pytest.raises(ValueError, match=message):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, pixels)


def test_images_have_neither_sentences_nor_tokens_to_predict(fill):
    with pytest.raises(ValueError, match="types tell the sentences of a pair apart, and images have none"):
        tfm.embed(fill(tfm.embed_specs(CONFIG)), CONFIG, PIXELS, types=jnp.zeros((2, 7), jnp.int32))
    for specs in (tfm.masked_lm_specs, tfm.causal_lm_specs, tfm.seq2seq_specs):
        with pytest.raises(ValueError, match="input=patches has no vocabulary to predict"):
            specs(CONFIG)


def test_patches_of_one_row_are_pieces_of_a_series(fill):
    config = tfm.override(CONFIG, {"input.size": 1, "input.patch_height": 1, "input.patch": 3, "position": "none"})
    tables = fill(tfm.embed_specs(config))
    series = PIXELS[:, :1]
    kernel, bias = (np.asarray(part, np.float64) for part in (tables.projection.kernel, tables.projection.bias))
    assert kernel.shape == (1, 3, 3, 16)
    pieces = [np.einsum("bwc,wcd->bd", series[:, 0, first : first + 3], kernel[0]) + bias for first in (0, 3)]
    actual = tfm.embed(tables, config, series)
    np.testing.assert_allclose(actual[:, 1:], np.stack(pieces, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input.patch_height": 3}, "size=4 must be a multiple of patch_height=3; try size=3"),
        ({"input.patch_height": 1, "input.kernel": 3}, "kernel=3 is a square, and patch_height=1 is for others"),
    ],
)
def test_bad_heights_of_patches(values, message):
    with pytest.raises(ValueError, match=message):
        tfm.override(CONFIG, values)

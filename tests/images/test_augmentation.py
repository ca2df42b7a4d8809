"""Random changes of pictures: pure functions of their row, within their bounds; mixtures as a loop mixes them."""

import numpy as np
import pytest
from PIL import Image

from train.images import mixing
from train.images.augmentation import OPERATIONS, augmented, erased, random_box
from train.images.decoding import to_array
from train.images.processor import ImageProcessor
from train.settings.images import Augment

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
PICTURE = Image.fromarray(PIXELS)
PROCESSOR = ImageProcessor((8, 8))


def rng(seed=0):
    return np.random.default_rng(seed)


def test_nothing_changes_by_default():
    np.testing.assert_array_equal(augmented(PICTURE, PROCESSOR, Augment(), rng()), PROCESSOR.prepare(PICTURE))


def test_half_of_the_pictures_are_mirrored():
    plain = PROCESSOR.prepare(PICTURE)
    mirrored = [(augmented(PICTURE, PROCESSOR, Augment(flip=True), rng(n)) == plain[:, ::-1]).all() for n in range(200)]
    assert 70 < sum(mirrored) < 130
    outcomes = {augmented(PICTURE, PROCESSOR, Augment(flip=True), rng(n)).tobytes() for n in range(200)}
    assert outcomes == {plain.tobytes(), plain[:, ::-1].tobytes()}


def test_crops_have_their_share_and_lie_inside():
    shares = []
    for seed in range(300):
        left, top, right, bottom = random_box(40, 30, 0.3, rng(seed))
        assert 0 <= left < right <= 40
        assert 0 <= top < bottom <= 30
        shares.append((right - left) * (bottom - top) / 1200)
    assert min(shares) >= 0.3 - 1e-9
    assert max(shares) > 0.9


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_everything_at_once_depends_on_the_row_alone(mode):
    options = Augment(flip=True, crop=0.3, color=0.4, randaugment=3)
    processor = PROCESSOR if mode == "RGB" else ImageProcessor((8, 8), None, (0.5,), (0.5,))
    image = PICTURE.convert(mode)
    first, again, second = (augmented(image, processor, options, rng(seed)) for seed in (1, 1, 2))
    assert first.shape == (8, 8, processor.channels)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_operations_keep_the_shape(name, mode):
    image = PICTURE.convert(mode)
    changed = OPERATIONS[name](image, 0.9, rng())
    assert (changed.size, changed.mode) == (image.size, mode)
    unchanging = {"identity", "autocontrast", *(["color"] if mode == "L" else [])}
    assert (to_array(changed) != to_array(image)).any() or name in unchanging


def test_no_strength_changes_nothing():
    for name in ("rotate", "shear_x", "shear_y", "translate_x", "translate_y", "solarize", "brightness", "sharpness"):
        np.testing.assert_array_equal(to_array(OPERATIONS[name](PICTURE, 0.0, rng())), PIXELS, err_msg=name)


def test_a_shift_is_a_shift():
    values = {seed: to_array(OPERATIONS["translate_x"](PICTURE, 1.0, rng(seed))) for seed in range(8)}
    shift = int(0.45 * 32)
    assert any((pixels[:, : 32 - shift] == PIXELS[:, shift:]).all() for pixels in values.values())


def test_erased_rectangles():
    ones = np.ones((20, 20, 3), np.float32)
    np.testing.assert_array_equal(erased(ones, 0.0, rng()), ones)
    shares = []
    for seed in range(100):
        zeros = np.argwhere(erased(ones, 1.0, rng(seed))[:, :, 0] == 0)
        height, width = np.ptp(zeros, axis=0) + 1
        assert len(zeros) == height * width, "it is a rectangle"
        shares.append(len(zeros) / 400)
    assert min(shares) > 0.01
    assert 0.25 < max(shares) < 0.4
    assert (ones == 1).all()


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixtures_are_those_of_a_loop(kind):
    pixels = np.random.default_rng(1).normal(size=(6, 8, 10, 3)).astype(np.float32)
    is_row = np.array([1, 1, 0, 1, 1, 1], bool)
    pixels[2] = 0
    mixed = mixing.mixed(pixels, is_row, Augment(**{kind: 1.0}), rng(3))
    assert mixed.partners.tolist() == [5, 0, 2, 1, 3, 4]
    assert ((mixed.shares >= 0) & (mixed.shares <= 1)).all()
    for row in range(6):
        own, partner, share = pixels[row], pixels[mixed.partners[row]], mixed.shares[row]
        if kind == "mixup":
            expected = share * own + (1 - share) * partner
            np.testing.assert_allclose(mixed.pixels[row], expected, atol=1e-6)
        elif row != 2:
            is_own = (mixed.pixels[row] == own).all(-1)
            assert ((mixed.pixels[row] == partner).all(-1) | is_own).all()
            assert is_own.mean() == pytest.approx(share)
    assert (mixed.pixels[2] == 0).all(), "an empty row stays empty"


def test_a_batch_has_either_mixture():
    pixels = np.random.default_rng(1).normal(size=(4, 8, 8, 1)).astype(np.float32)
    is_row, options = np.ones(4, bool), Augment(mixup=0.8, cutmix=1.0)
    results = [mixing.mixed(pixels, is_row, options, rng(seed)) for seed in range(60)]
    cuts = sum(np.isin(result.pixels[0], pixels).all() for result in results)
    assert 15 < cuts < 45
    np.testing.assert_array_equal(results[0].pixels, mixing.mixed(pixels, is_row, options, rng(0)).pixels)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"crop": 0.0}, "crop=0.0 must be more than 0 and at most 1"),
        ({"erase": 1.5}, "erase=1.5 must be at most 1"),
        ({"magnitude": 11.0}, "magnitude=11.0 must be at most 10"),
        ({"mixup": -1.0}, "mixup=-1.0 must be at least 0"),
    ],
)
def test_bad_options(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Augment(**options)

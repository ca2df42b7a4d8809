"""Sounds in files, and sentences for those that are none."""

import numpy as np
import pytest
from sound_files import write

from train import UserError
from train.sounds import files, synthetic
from train.sounds.processor import SOUND_PROCESSOR, SoundProcessor


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_are_those_that_were_written(width, tmp_path):
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, (50, 2))
    write(tmp_path / "a.wav", samples, 8000, width, channels=2)
    assert files.header(str(tmp_path / "a.wav")) == (8000, 50)
    actual = files.read(str(tmp_path / "a.wav"), 30)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, samples[:30].mean(1), atol=2.0 ** (1 - 8 * width) + 1e-6)


def test_other_sounds_by_soundfile(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, 100).astype(np.float32)
    soundfile.write(tmp_path / "a.flac", samples, 16_000)
    assert files.header(str(tmp_path / "a.flac")) == (16_000, 100)
    np.testing.assert_allclose(files.read(str(tmp_path / "a.flac"), 60), samples[:60], atol=1e-4)


def test_files_that_are_no_sounds(tmp_path, monkeypatch):
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    (tmp_path / "a.wav").write_bytes(b"no sound")
    (tmp_path / "b.flac").write_bytes(b"")
    write(tmp_path / "c.wav", [])
    for name, sentence in (
        ("a.wav", "a.wav is no whole .wav file of whole numbers"),
        ("b.flac", "b.flac is no .wav file, and other sounds need soundfile; install"),
        ("c.wav", "c.wav holds no sample; leave it out"),
        ("d.wav", "d.wav is no whole .wav file of whole numbers .*No such file"),
    ):
        with pytest.raises(UserError, match=sentence):
            files.header(str(tmp_path / name))


def test_a_processor_is_kept(tmp_path):
    processor = SoundProcessor(16_000, 400, 320, 40, 26)
    (text,) = SOUND_PROCESSOR.to_texts(processor)
    (tmp_path / "preprocessor_config.json").write_text(text)
    assert SOUND_PROCESSOR.read(tmp_path / "preprocessor_config.json") == processor
    assert processor.frames(np.ones(50, np.float32)).shape == (26, 40)
    assert [processor.frame_count(count) for count in (1, 320, 321, 10**6)] == [1, 1, 2, 26]
    with pytest.raises(ValueError, match="1 frames of 160 samples are less than half a window of 400"):
        SoundProcessor(16_000, 400, 160, 40, 1)


def test_built_in_digits_differ_from_their_reversals_in_order_alone():
    for digit in range(0, 10, 2):
        forwards, backwards = synthetic.GLIDES[digit], synthetic.GLIDES[digit + 1]
        assert [tone[::-1] for tone in forwards] == list(backwards)
        assert forwards != backwards
    name = synthetic.name_of([3, 1], 7)
    assert synthetic.words_of(name) == "three one"
    np.testing.assert_array_equal(synthetic.samples(name), synthetic.samples(name))
    lengths = {len(name.split(":")[1].split()) for name in synthetic.generate(200, (2, 4), 0)}
    assert lengths == {2, 3, 4}
    assert not {*synthetic.generate(200, (1, 1), 0)} & {*synthetic.generate(200, (1, 1), 1)}

"""Kaldi's filter banks against their definition, term by term, and the processor of AST against transformers."""

import cmath
import json
import math

import numpy as np
import pytest

import tfm
from tfm.catalogue.options.frames import Spectrogram
from train import UserError
from train.sounds.fbank import fbank
from train.sounds.processor import AUDIOSET, SOUND_PROCESSOR, SoundProcessor

FIELDS = {"feature_extractor_type": "ASTFeatureExtractor", "num_mel_bins": 20, "max_length": 50}
SMALL = SoundProcessor(16_000, 400, 160, 20, 50, AUDIOSET)


def read(folder, fields, model=None):
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))
    return SOUND_PROCESSOR.read_hf(folder, model or tfm.Config())


def mels(frequency):
    return 1127 * math.log(1 + frequency / 700)


def defined(samples, rate, window, hop, size, bands):
    """Sums over samples, frequencies and bands; `size` is that of the Fourier transform."""
    corners = [mels(20) + (mels(rate / 2) - mels(20)) * n / (bands + 1) for n in range(bands + 2)]
    rows = []
    for start in range(0, len(samples) - window + 1, hop):
        piece = [float(sample) for sample in samples[start : start + window]]
        piece = [sample - sum(piece) / window for sample in piece]
        piece = [sample - 0.97 * piece[max(0, n - 1)] for n, sample in enumerate(piece)]
        hann = [0.5 - 0.5 * math.cos(2 * math.pi * n / (window - 1)) for n in range(window)]
        row = []
        for low, top, high in zip(corners, corners[1:], corners[2:], strict=False):
            value = 0.0
            for bin_ in range(size // 2 + 1):
                mel = mels(bin_ * rate / size)
                height = max(0.0, min((mel - low) / (top - low), (high - mel) / (high - top)))
                terms = (
                    h * x * cmath.exp(-2j * math.pi * bin_ * n / size)
                    for n, (h, x) in enumerate(zip(hann, piece, strict=True))
                )
                value += height * abs(sum(terms)) ** 2 if height else 0.0
            row.append(math.log(max(value, 2**-23)))
        rows.append(row)
    return np.array(rows)


def test_filter_banks_are_their_definition():
    samples = np.random.default_rng(0).normal(size=75) + 3
    samples[:20] = 1.0  # of which nothing is left
    actual = fbank(samples, 8000, 20, 10, 4)
    assert actual.shape == (6, 4)
    np.testing.assert_allclose(actual, defined(samples, 8000, 20, 10, 32, 4), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(actual[0], math.log(2**-23), rtol=1e-6)


def test_zeros_stand_behind_the_last_frame():
    """They are normalized as the frames are; a sound that is too long loses its end."""
    sound = np.random.default_rng(0).normal(size=9000).astype(np.float32)
    expected = (fbank(sound[:8240], 16_000, 400, 160, 20) - AUDIOSET[0]) / (2 * AUDIOSET[1])
    assert (SMALL.samples, SMALL.frame_count(9000), SMALL.frame_count(719), SMALL.frame_count(399)) == (8240, 50, 2, 0)
    np.testing.assert_allclose(SMALL.frames(sound), expected, rtol=1e-5, atol=1e-6)
    short = SMALL.frames(sound[:719])
    np.testing.assert_allclose(short[:2], expected[:2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(short[2:], -AUDIOSET[0] / (2 * AUDIOSET[1]), rtol=1e-6)
    np.testing.assert_array_equal(SMALL.frames(sound[:399]), np.broadcast_to(short[2], (50, 20)))


def test_fields_of_a_file(tmp_path):
    assert read(tmp_path, FIELDS) == SMALL
    assert read(tmp_path, {"feature_extractor_type": "ASTFeatureExtractor"}).frames(np.zeros(9)).shape == (1024, 128)
    assert read(tmp_path, FIELDS | {"mean": 1, "std": 2.0}).statistics == (1.0, 2.0)
    plain = read(tmp_path, FIELDS | {"do_normalize": False})
    assert not plain.frames(np.zeros(399)).any()
    for processor in (SMALL, plain, SoundProcessor(8000, 300, 70, 4, 5, (0.5, 2.0))):
        (tmp_path / "kept.json").write_text(SOUND_PROCESSOR.to_texts(processor)[0])
        assert SOUND_PROCESSOR.read(tmp_path / "kept.json") == processor


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"sampling_rate": 8000}, "sampling_rate=8000, .* it must be 16000"),
        ({"hop_length": 80}, "frames of ASTFeatureExtractor of 400 samples, at every 160th one, .* take window=400"),
        ({"std": 0.0}, "mean=-4.2677393 must be finite, and std=0.0 more than 0"),
        ({"max_length": 0}, "must have sizes of at least 1"),
        ({"num_mel_bins": "20"}, "num_mel_bins='20' must be"),
        (
            {"max_length": 49},
            r"reads 50 frames of 20 bands \(max_length and num_mel_bins of config.json\), .* 49 of 20",
        ),
    ],
)
def test_what_is_refused(fields, sentence, tmp_path):
    model = tfm.Config(input=Spectrogram(size=50, channels=20))
    with pytest.raises(UserError, match=sentence):
        read(tmp_path, FIELDS | fields, model)


@pytest.mark.parity
@pytest.mark.parametrize("changes", [{}, {"do_normalize": False}, {"mean": -3.0, "std": 2.0, "num_mel_bins": 64}])
@pytest.mark.filterwarnings("ignore:At least one mel filter")
def test_transformers_makes_the_same_frames(changes, tmp_path, monkeypatch):
    """By its own functions: torchaudio computes in float32, and differs from them by up to 1e-4."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.audio_spectrogram_transformer import feature_extraction_audio_spectrogram_transformer

    monkeypatch.setattr(feature_extraction_audio_spectrogram_transformer, "is_speech_available", lambda: False)
    SOUND_PROCESSOR.save_hf(read(tmp_path, FIELDS | changes), None, None, tmp_path)
    processor = SOUND_PROCESSOR.read_hf(tmp_path, tfm.Config())
    hf_processor = transformers.AutoFeatureExtractor.from_pretrained(tmp_path)
    for count in (400, 719, 8239, 16_000):
        for scale in (1.0, 1e-3, 0.0):
            sound = scale * np.random.default_rng(count).normal(size=count).astype(np.float32)
            frames = hf_processor(sound, sampling_rate=16_000, return_tensors="np").input_values[0]
            np.testing.assert_allclose(processor.frames(sound), frames, atol=1e-5)

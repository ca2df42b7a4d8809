"""preprocessor_config.json of sounds: frames against transformers', fields that contradict each other, joint files."""

import json

import numpy as np
import pytest

import tfm
from tfm.catalogue.options.frames import Frames
from train import UserError
from train.sounds.processor import SOUND_PROCESSOR, SoundProcessor

FIELDS = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 20, "chunk_length": 2}
SMALL = SoundProcessor(16_000, 400, 160, 20, 200)


def read(folder, fields, file="preprocessor_config.json"):
    (folder / file).write_text(json.dumps(fields))
    return SOUND_PROCESSOR.read_hf(folder, tfm.Config())


def test_frames_follow_from_seconds(tmp_path):
    assert read(tmp_path, FIELDS) == SMALL
    assert read(tmp_path, FIELDS | {"chunk_length": 1, "hop_length": 80}) == SoundProcessor(16_000, 400, 80, 20, 200)


def test_a_joint_file_of_transformers_5(tmp_path):
    assert read(tmp_path, {"feature_extractor": FIELDS}, "processor_config.json") == SMALL
    assert read(tmp_path, FIELDS | {"nb_max_frames": 200}) == SMALL
    with pytest.raises(
        ValueError, match=r"processor_config.json: feature_extractor and .* differ in size \(200 and 300\)"
    ):
        read(tmp_path, FIELDS | {"chunk_length": 3})


def test_no_file(tmp_path):
    with pytest.raises(UserError, match="no preprocessor_config.json, and no processor_config.json with feature_extr"):
        SOUND_PROCESSOR.read_hf(tmp_path, tfm.Config())


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("nb_max_frames", 100, "nb_max_frames=100 and chunk_length=2, .* which make it 200"),
        ("n_samples", 5, "n_samples=5 and chunk_length=2"),
        ("hop_length", 7, "hop_length=7: 32,000 samples must be a multiple"),
        ("sampling_rate", 8000, "sampling_rate=8000, .* it must be 16000"),
        ("n_fft", 401, "n_fft=401: .* make it even"),
        ("padding_side", "left", "padding_side='left' is not supported; 'right' is"),
        ("padding_value", 0.5, "padding_value=0.5 is not supported"),
        ("dither", 0.1, "dither=0.1 is not supported"),
        ("chunk_length", None, "chunk_length=None must be"),
        ("hop_length", 0, "must have sizes of at least 1"),
        ("feature_extractor_type", "ClapFeatureExtractor", "feature_extractor_type=ClapFeatureExtractor is not"),
    ],
)
def test_what_is_refused(field, value, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        read(tmp_path, FIELDS | {field: value})


def test_a_field_that_is_not_known_is_said(tmp_path):
    with pytest.warns(UserWarning, match="the processor has win_length, which change nothing here"):
        assert (
            read(tmp_path, FIELDS | {"win_length": 200, "do_normalize": True, "return_attention_mask": True}) == SMALL
        )


def test_frames_that_the_model_does_not_read(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(FIELDS))
    model = tfm.Config(input=Frames(size=100, channels=20))
    with pytest.raises(UserError, match="num_mel_bins of config.json.* makes 200 of 20"):
        SOUND_PROCESSOR.read_hf(tmp_path, model)


@pytest.mark.parity
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"chunk_length": 1, "hop_length": 200, "n_fft": 512},
        {"do_normalize": True, "return_attention_mask": True, "mel_filters": [[1.0]], "win_length": 9},
    ],
)
@pytest.mark.filterwarnings("ignore:the processor has", "ignore:At least one mel filter")
def test_transformers_makes_the_same_frames(changes, tmp_path):
    transformers = pytest.importorskip("transformers")
    processor = read(tmp_path, FIELDS | changes)
    hf_processor = transformers.AutoFeatureExtractor.from_pretrained(tmp_path)
    for count in (1, 399, 16_000, 40_000):
        sound = 0.1 * np.random.default_rng(count).normal(size=count).astype(np.float32)
        frames = hf_processor(sound, sampling_rate=16_000, return_tensors="np").input_features[0].T
        np.testing.assert_allclose(processor.frames(sound), frames, atol=1e-3)


@pytest.mark.parity
def test_transformers_reads_what_is_written(tmp_path):
    """Whole seconds stand in the file as a whole number: transformers refuses 2.0."""
    transformers = pytest.importorskip("transformers")
    SOUND_PROCESSOR.save_hf(SMALL, None, None, tmp_path)
    hf_processor = transformers.AutoFeatureExtractor.from_pretrained(tmp_path)
    frames = hf_processor(np.ones(99, np.float32), sampling_rate=16_000, return_tensors="np").input_features
    assert frames.shape == (1, 20, 200)


def test_parts_of_seconds_are_said_where_they_are_written(tmp_path):
    processor = SoundProcessor(16_000, 400, 160, 20, 150)
    with pytest.warns(UserWarning, match="24,000 samples are no whole seconds at 16,000"):
        SOUND_PROCESSOR.save_hf(processor, None, None, tmp_path)
    assert SOUND_PROCESSOR.read_hf(tmp_path, tfm.Config()) == processor
    with pytest.raises(UserError, match="window=401: .* make it even"):
        SOUND_PROCESSOR.save_hf(SoundProcessor(16_000, 401, 160, 20, 200), None, None, tmp_path)

"""Folders of AST: what is refused."""

import json
import re

import pytest
from hf_models import stored

from tfm import from_hf


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"qkv_bias": False}, "has qkv_bias=False; of audio-spectrogram-transformer, only True is supported"),
        ({"patch_size": [3, 3]}, "config.json: patch_size=[3, 3] must be a whole number"),
        ({"num_mel_bins": 2}, "patch_size=3 is more than the max_length=8 frames or the num_mel_bins=2 of an input"),
        ({"time_stride": 0}, "config.json: time_stride=0 must be at least 1"),
    ],
)
def test_what_no_model_here_computes(fields, sentence, tmp_path):
    stored(tmp_path, "audio_spectrogram_transformer", "ASTForAudioClassification")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        from_hf(tmp_path)

"""Folders of VideoMAE: what is refused, and both names of a bias."""

import json
import re

import jax
import numpy as np
import pytest
from hf_models import stored

from tfm import from_hf
from tfm.hf import tensors


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"qv_bias": False}, "config.json has qv_bias=False; of videomae, only True is supported"),
        ({"patch_size": [2, 1]}, "config.json has patch_size=[2, 1]; only square patches are supported"),
        ({"num_frames": 5}, "num_frames=5 must be a multiple of tubelet_size=2; try num_frames=4"),
    ],
)
def test_what_no_model_here_computes(fields, sentence, tmp_path):
    stored(tmp_path, "videomae", "VideoMAEForVideoClassification")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        from_hf(tmp_path)


def test_biases_under_the_names_of_transformers_5(tmp_path):
    stored(tmp_path, "videomae", "VideoMAEForVideoClassification")
    params, saved = from_hf(tmp_path)[1], tensors.Tensors(tmp_path)

    def newer(name):
        return name.replace("q_bias", "query.bias").replace("v_bias", "value.bias")

    entries = [(newer(name), array.dtype, array.shape, lambda array=array: array) for name, array in saved.items()]
    assert {name for name, *_ in entries} != set(saved)
    tensors.write_folder(tmp_path, entries)
    jax.tree.map(np.testing.assert_array_equal, from_hf(tmp_path)[1], params)

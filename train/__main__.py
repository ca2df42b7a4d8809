"""All commands, a line each: `python -m train`; `python -m train COMMAND` is `python -m train.COMMAND`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import ast
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from tfm.options.errors import suggest
from train import UserError, exit_code

# What a newcomer needs comes first; the rest follows in the order of the alphabet.
_FIRST = ("main", "generate", "predict", "evaluate", "export")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(start, argv)


def start(argv: Sequence[str]):
    """Runs the command that comes first in `argv`, or lists all."""
    name, *rest = argv or ["--help"]
    paths = command_paths()
    if name in ("-h", "--help"):
        print("usage: python -m train.COMMAND [flags]; --help explains the flags of a command\n")
        for command, path in paths.items():
            print(f"  {command:<10} {_purpose(path)}")
        return
    name = name.removeprefix("train.")
    if name not in paths:
        raise UserError(f"there is no command {name!r}{suggest(name, paths)}")
    sys.argv = [str(paths[name]), *rest]
    runpy.run_module(f"train.{name}", run_name="__main__", alter_sys=True)


def command_paths() -> dict[str, Path]:
    """The commands and their files: modules of this package that can be run."""
    root = Path(__file__).parent
    paths = {path.stem: path for path in sorted(root.glob("[!_]*.py")) if '__name__ == "__main__"' in path.read_text()}
    names = [*_FIRST, *sorted(paths.keys() - set(_FIRST))]
    return {name: paths[name] for name in names}


def _purpose(path: Path) -> str:
    """What a command does: the beginning of its docstring, or of that of the tool it runs; nothing is imported."""
    lab = path.parent / "lab"
    tools = (lab / path.name, lab / path.stem / "command.py")
    path = next((tool for tool in tools if tool.exists()), path)
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].partition(": `")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())

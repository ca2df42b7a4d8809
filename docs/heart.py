"""The heart of the code: what runs when BERT's loss is computed, file by file, in the order of the pass.

`python docs/heart.py` prints the table of the README. Lines are those that run, out of those of the file.
"""

import ast
import re
import sys
from pathlib import Path
from types import FrameType

import jax
import jax.numpy as jnp

import tfm
from train.tasks import resolve
from train.tasks.table import task_of

ROOT = Path(__file__).resolve().parent.parent
SMALL = "--model.layers=2 --model.width=16 --model.heads=2 --model.ffn=32 --model.vocab=64".split()


class Trace:
    """The lines of the project that run in a `with Trace() as trace:` block, by file, in the order of calls."""

    def __init__(self) -> None:
        self.lines: dict[str, set[int]] = {}

    def __enter__(self) -> "Trace":
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: object):
        name = frame.f_code.co_filename
        if name.startswith((f"{ROOT}/tfm/", f"{ROOT}/train/")) and frame.f_code.co_name != "<module>":
            self.lines.setdefault(str(Path(name).relative_to(ROOT)), set()).add(frame.f_lineno)
            return self._ran
        return None

    def _ran(self, frame: FrameType, event: str, argument: object):
        if event == "line":
            self.lines[str(Path(frame.f_code.co_filename).relative_to(ROOT))].add(frame.f_lineno)
        return self._ran


def lines_of_loss() -> dict[str, set[int]]:
    """The lines that run for the loss of `--task=mlm`, by file."""
    run, _ = resolve.resolve(["--task=mlm", *SMALL], None, None)
    task = task_of(run)
    params = jax.tree.map(lambda spec: jax.ShapeDtypeStruct(spec.shape, jnp.float32), task.specs(run))
    batch = {name: jnp.ones(field.shape(4, 16), field.dtype) for name, field in task.batch_spec(run).items()}

    def loss(params):
        return task.loss(params, run.model, batch, None)

    jax.eval_shape(loss, params)  # everything is imported
    jax.clear_caches()
    with Trace() as trace:
        jax.eval_shape(loss, params)
    return trace.lines


def purpose(path: Path) -> str:
    """What a file is for: the beginning of its docstring, without its sources."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    sentence = re.sub(r" \([^)]*\d{4}[^)]*\)", "", " ".join(docstring.partition("\n\n")[0].split()))
    return re.split(r"[:;.]( |$)| of which | that it ", sentence)[0]


def main() -> None:
    """Prints the table."""
    files = lines_of_loss()
    for name, lines in files.items():
        size = len((ROOT / name).read_text().splitlines())
        print(f"{name:<31} {len(lines):>3} of {size:>3}  {purpose(ROOT / name)}")
    print(f"{len(files)} files, {sum(map(len, files.values()))} lines")


if __name__ == "__main__":
    assert tfm.__file__ == str(ROOT / "tfm/__init__.py"), "run it in the clone whose code it shows"
    main()

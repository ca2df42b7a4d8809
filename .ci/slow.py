"""Which tests marked slow or parity a step of `.ci/run` runs.

    python .ci/slow.py STEP              the files of a step of each run
    python .ci/slow.py turn 3            the files of a turn: of all others, every twelfth

Each file belongs to one step. What not each run has takes turns: twelve turns in a row have run everything. Of a file
whose tests are many and need nothing of each other, a turn has every twelfth test; the plugin of pytest below leaves
the others out (`PYTHONPATH=.ci pytest -p slow --turn=3`).
"""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TURNS = 12

# Steps of each run; a step with a number after its name is one of every third run.
STEPS = {
    "style": (
        "tests/guide/test_flags.py",
        "tests/test_budget.py",
        "tests/test_ci.py",
        "tests/test_names.py",
    ),
    "whole runs": (
        "tests/commands/test_main.py",
        "tests/training/test_step.py",
    ),
    "whole runs 0": (
        "tests/devices/test_distributed.py",
        "tests/tasks/classify/test_task.py",
    ),
    "whole runs 1": ("tests/tasks/translate/test_task.py",),
    "whole runs 2": ("tests/commands/test_export.py",),
    "parity": (
        "tests/data/test_processors.py",
        "tests/hf/test_adapter.py",
        "tests/models/parity/test_bert.py",
        "tests/models/parity/test_davit.py",
        "tests/models/parity/test_gpt.py",
        "tests/models/parity/test_xlnet.py",
        "tests/runs/test_hf_folder.py",
    ),
    "documents": (
        "tests/test_docs.py",
        "tests/guide/test_followed_pages.py",
        "tests/guide/test_generated.py",
        "tests/guide/test_shown_commands.py",
    ),
    "tpu": (
        "tests/planning/test_libtpu.py",
        "tests/planning/test_notebook_steps.py",
    ),
    "buckets": ("tests/runs/test_emulator.py",),
    "transformers 4": ("tests/hf/test_transformers_4.py",),
    "real weights": (
        "tests/real/test_lora.py",
        "tests/real/test_minilm.py",
        "tests/real/test_mutated.py",
        "tests/real/test_smollm2.py",
    ),
}

# Files of which a turn has every twelfth test.
BY_TEST = (
    "tests/catalogue/patterns/test_kernel_path.py",
    "tests/catalogue/patterns/test_patterns.py",
    "tests/compat/test_params.py",
    "tests/compat/test_parity.py",
    "tests/contracts.py",
    "tests/hf/test_folder.py",
    "tests/hf/test_generation_parity.py",
    "tests/hf/test_parity.py",
    "tests/lab/check/test_model_bugs.py",
    "tests/lab/check/test_training_bugs.py",
    "tests/masks/test_masks.py",
    "tests/planning/test_pods.py",
    "tests/tasks/test_resolve.py",
    "tests/test_notebooks.py",
    "tests/test_transforms.py",
)


def slow_files() -> list[str]:
    """The files with tests that the plain test command leaves out."""
    files = [*ROOT.glob("tests/**/test_*.py"), ROOT / "tests" / "contracts.py"]
    marked = [path for path in files if re.search(r"\bmark\.(slow|parity|real)\b", path.read_text())]
    return sorted(str(path.relative_to(ROOT)) for path in marked)


def files_of_turn(turn: int) -> list[str]:
    """The files of a turn, without those of the steps."""
    of_steps = {name for names in STEPS.values() for name in names}
    rest = [name for name in slow_files() if name not in of_steps]
    return [*BY_TEST, *[name for name in rest if name not in BY_TEST][turn % TURNS :: TURNS]]


def pytest_addoption(parser):
    """The turn."""
    parser.addoption("--turn", type=int, help="of the files of BY_TEST, every twelfth test")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Of what `-m` and `-k` leave, every twelfth test of a file of BY_TEST."""
    turn = config.getoption("--turn")
    if turn is None:
        return
    counts, kept, left_out = {}, [], []
    for item in items:
        name = str(item.path.relative_to(ROOT))
        counts[name] = counts.get(name, -1) + 1
        (kept if name not in BY_TEST or counts[name] % TURNS == turn % TURNS else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


if __name__ == "__main__":
    print(*(files_of_turn(int(sys.argv[2])) if sys.argv[1] == "turn" else STEPS[sys.argv[1]]))

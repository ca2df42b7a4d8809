"""What a run takes over from a folder beside weights: a processor, facts about the data, the classes of a head."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train.runs.run_folder import open_folder
from train.settings.schema import Run
from train.tasks.record import HEAD_CLASSES


class SavedData(NamedTuple):
    """What a run takes over from another one: its processor, and facts."""

    processor: Any
    facts: Mapping[str, Any]


def of_resumed(path: str | Path) -> SavedData:
    """What a run that goes on takes over from its folder: the facts of its data."""
    folder = open_folder(path)
    return SavedData(folder.processor, folder.facts)


def of_init(run: Run) -> SavedData:
    """What a run on other data takes over from the folder of `--init`: the classes of its head, if that may be kept."""
    return SavedData(open_folder(run.init).processor, head_of_init(run))


def head_of_init(run: Run) -> dict[str, Any]:
    """The classes of the head of `--init` under HEAD_CLASSES, if that may be kept. The tokenizer is not read for it."""
    folder = open_folder(run.init)
    keeps_head = run.init_head == "classes" and folder.values["task"] == run.task.name
    return {HEAD_CLASSES: folder.facts.get("classes")} if keeps_head else {}

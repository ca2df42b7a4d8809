"""Predictions of test sets as the servers take them (gluebenchmark.com, super.gluebenchmark.com).

GLUE: a table `index`, `prediction` with a header. SuperGLUE: an object a line, `idx` and `label`; truth is the text
"true", but "True" of WSC; MultiRC nests answers in questions in passages.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from train import UserError
from train.files.strict_json import json_text
from train.lab.glue.glue_rows import Answer, Key
from train.lab.glue.suites import SUITES, GluePart, GlueTask
from train.runs import run_folder

_ENDINGS = {"glue": "tsv", "superglue": "jsonl"}


def check_folder(path: str):
    """Raises UserError where the folder cannot be made. It is made when there is an answer to write."""
    nearest = next(folder for folder in (Path(path), *Path(path).absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise UserError(f"--submission={path} cannot be made: {nearest} is a file; choose another folder")


def write(folder: Path, suite: str, task: GlueTask, part: GluePart, answers: Mapping[Key, Answer]) -> Path:
    """Writes the answers of a test set under the name that the server wants; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    if suite == "glue":
        lines = ["index\tprediction", *(f"{key}\t{_prediction(answer)}" for key, answer in answers.items())]
    else:
        objects = _passages(answers) if task.kind == "answers" else _objects(task, part, answers)
        lines = [json_text(row) for row in objects]
    path = folder / f"{part.name}.{_ENDINGS[suite]}"
    run_folder.write(path, "\n".join(lines) + "\n")
    return path


def completeness(folder: Path, suite: str) -> str:
    """A line that says which files the server wants and the folder lacks."""
    names = [f"{part.name}.{_ENDINGS[suite]}" for task in SUITES[suite] for part in task.parts]
    missing = [name for name in names if not (folder / name).exists()]
    return f"{folder} lacks {', '.join(missing)}, which the server wants" if missing else f"{folder} is complete"


def _prediction(answer: Answer) -> str:
    """A class as it is; a value with three digits, within 0 and 5."""
    return f"{min(max(answer, 0.0), 5.0):.3f}" if isinstance(answer, float) else str(answer)


def _objects(task: GlueTask, part: GluePart, answers: Mapping[Key, Answer]) -> Iterator[dict[str, object]]:
    for key, answer in answers.items():
        yield {"idx": key, "label": str(answer).capitalize() if part.name == "WSC" else answer}


def _passages(answers: Mapping[Key, Answer]) -> Iterator[dict[str, object]]:
    """(passage, question, answer) -> 0 or 1, as one object a passage."""
    passages: dict[int, dict[int, list[dict[str, Answer]]]] = {}
    for key, label in answers.items():
        assert isinstance(key, tuple)
        passage, question, answer = key
        passages.setdefault(passage, {}).setdefault(question, []).append({"idx": answer, "label": label})
    for passage, questions in passages.items():
        rows = [{"idx": question, "answers": answered} for question, answered in questions.items()]
        yield {"idx": passage, "passage": {"questions": rows}}

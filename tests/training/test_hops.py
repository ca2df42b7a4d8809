"""From the command to the loss there are few function calls, and no class has many methods."""

import ast
import dataclasses
import traceback
from pathlib import Path

import pytest
from small import FLAGS, call, write_text

import train
from train.main import main
from train.tasks.mlm.task import MLM

PACKAGE = Path(train.__file__).parent
MAX_HOPS = 6
MAX_METHODS = 10


def stacks_of_the_loss(tmp_path, monkeypatch, *flags):
    """For every call of the loss in a run of one step, the functions of train/ on the stack, outermost first."""
    stacks = []
    loss = MLM.loss

    def recorded_loss(*arguments):
        frames = [frame for frame in traceback.extract_stack() if PACKAGE in Path(frame.filename).parents]
        stacks.append([frame.name for frame in frames] + ["loss"])
        return loss(*arguments)

    monkeypatch.setattr("train.tasks.mlm.task.MLM", dataclasses.replace(MLM, loss=recorded_loss))
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    code, _, err = call(main, *FLAGS, "--steps=1", "--eval.final=false", *flags)
    assert code == 0, err
    return stacks


@pytest.mark.slow
def test_from_the_command_to_the_loss(tmp_path, monkeypatch):
    """Counted when the step is traced, with all frames of train/, those of nested functions too."""
    stacks = [stack for stack in stacks_of_the_loss(tmp_path, monkeypatch) if "train_step" in stack]
    assert stacks, "the step was traced"
    for stack in stacks:
        assert stack[0] == "main"
        assert len(stack) - 1 <= MAX_HOPS, " -> ".join(stack)


@pytest.mark.slow
def test_from_the_loop_to_the_loss_of_accumulated_parts(tmp_path, monkeypatch):
    stacks = stacks_of_the_loss(tmp_path, monkeypatch, "--batch.size=16", "--batch.accumulate=2")
    stacks = [stack for stack in stacks if "train_step" in stack]
    assert stacks, "the step was traced"
    for stack in stacks:
        assert len(stack) - 1 - stack.index("train") <= MAX_HOPS, " -> ".join(stack)


@pytest.mark.parametrize("path", sorted((PACKAGE / "training").glob("*.py")), ids=lambda path: path.stem)
def test_classes_are_small(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            methods = [child.name for child in node.body if isinstance(child, ast.FunctionDef)]
            assert len(methods) <= MAX_METHODS, f"{node.name} has {len(methods)} methods"


def test_the_loop_stands_on_the_page_of_main():
    (function,) = [
        node
        for node in ast.parse((PACKAGE / "main.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "train"
    ]
    assert any(isinstance(node, ast.While | ast.For) for node in ast.walk(function))

"""Small runs, and bugs that are planted in the functions that they call."""

import dataclasses

import pytest
from small import FLAGS, write_text

from train.images import drawings
from train.lab.check import load
from train.screens.console import Log

SUBJECTS = {
    "lm": "--task=lm --data.split=line --model.layers=2 --tokenizer.kind=wordpiece",
    "mlm": "--task=mlm --data.split=line",
    # Eight devices share the rows of a batch: 16 texts are the fewest that may share rows.
    "classify": "--task=classify --data=classes.tsv --batch.length=48 --batch.size=16",
    "translate": "--task=translate --data=rows.tsv --data.field=text,label --task.source=text --task.target=label "
    "--batch.tokens=256 --model.layers=2",
    "contrast": "--task=contrast --data=rows.tsv --data.field=text,label",
    "bilm": "--task=bilm --model.layers=2 --model.mixer.size=24 --model.mixer.projection=16 --model.input.width=16",
    "pixels": "--task=pixels --data=builtin --model.length=64",
    "clip": "--task=contrast --preset=clip-tiny --data=builtin --batch.length=16 --model.images.layers=1 "
    "--model.images.width=32 --model.images.heads=2 --model.images.input.size=16 --model.images.projection=16",
}


@pytest.fixture(scope="session")
def subjects(tmp_path_factory):
    """A function that makes the subject of a name, once."""
    home, by_name, generate = tmp_path_factory.mktemp("home"), {}, drawings.generate
    write_text(home / "text.txt")
    lines = (home / "text.txt").read_text().splitlines()
    rows = "\n".join(f"{line}\t{lines[-n][:20]}" for n, line in enumerate(lines, 1))
    (home / "rows.tsv").write_text(f"text\tlabel\n{rows}\n")
    classes = "\n".join(f"{line}\t{n % 3 % 2}" for n, line in enumerate(lines))
    (home / "classes.tsv").write_text(f"text\tlabel\n{classes}\n")

    def subject(name):
        if name not in by_name:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(home)
                patch.setattr(drawings, "generate", lambda: generate(120, 20, 20))
                by_name[name] = load.subject_of_flags([*FLAGS, *SUBJECTS[name].split()], Log(quiet=True))
        return dataclasses.replace(by_name[name])  # without what was computed before

    return subject


class Plant:
    """Replaces functions by wrong ones, and knows which of these were called."""

    def __init__(self, patch):
        self._patch, self.was_called = patch, {}

    def __call__(self, owner, name, make):
        """Puts `make(original)` in the place of a function of a module, a class, a dict or a field of a record.

        The name of a field follows that of its record: MIXER.write. Raises AttributeError or KeyError where there is
        no such function.
        """
        name, _, field = name.partition(".")
        original = owner[name] if isinstance(owner, dict) else getattr(owner, name)
        wrong = make(getattr(original, field) if field else original)
        self.was_called[name] = False

        def planted(*arguments, **options):
            self.was_called[name] = True
            return wrong(*arguments, **options)

        if field and dataclasses.is_dataclass(original):  # who has the record before sees the bug too
            self._patch.setitem(vars(original), field, planted)
            return

        replacement = original._replace(**{field: planted}) if field else planted
        if isinstance(owner, dict):
            self._patch.setitem(owner, name, replacement)
        else:
            self._patch.setattr(owner, name, replacement)


@pytest.fixture
def plant(monkeypatch):
    """Plants bugs for the time of a test, and fails it where one of them was in nobody's path."""
    plant = Plant(monkeypatch)
    yield plant
    assert plant.was_called, "the bug replaces nothing"
    assert all(plant.was_called.values()), f"nobody calls {plant.was_called}"

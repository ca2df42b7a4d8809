"""The black box of a step that is not finite: its batch, and the state before it.

RUN/blackbox/step-N/batch.npz       the fields [B, ...] of its batch
RUN/blackbox/step-N/state/          the state before it, as a checkpoint; its note has the checksum of the batch
RUN/blackbox/step-N/report.json     what is known of the step, for people

A step gives up the buffers of the state before it, and is known to be bad a few steps later. So that state is computed
again: from the newest checkpoint before it, by the program and on the devices of the run. A folder has one black box.
"""

import io
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, final

import jax
import numpy as np

from train import UserError
from train.data.corpus import Corpus
from train.devices import distributed
from train.files import checksum
from train.runs import run_folder
from train.runs.checkpoint import Checkpoints
from train.runs.saved import SavedCheckpoints
from train.runs.state import State
from train.training.job import Job

FOLDER = "blackbox"
BATCH, STATE, REPORT = "batch.npz", "state", "report.json"


class StepBatch(NamedTuple):
    """The batch of a step.

    step: from 1
    fields: [B, ...], on the host
    rows: the rows of the training text in it, int [B]
    """

    step: int
    fields: Mapping[str, np.ndarray]
    rows: np.ndarray


def batch_of(corpus: Corpus, step: int) -> StepBatch:
    """The whole batch of a step, also where several processes share its rows."""
    return StepBatch(step, corpus.batch(step - 1, lambda rows: np.ones(rows, bool)), corpus.batch_rows(step - 1))


@final
class BlackBox:
    """The black box of a step in a run folder, which may be absent."""

    def __init__(self, folder: Path, step: int):
        self.step = step
        self.path = folder / FOLDER / f"step-{step}"

    @property
    def is_whole(self) -> bool:
        """Whether it has a state: a signal may have cut off what computes it."""
        return (self.path / BATCH).is_file() and self._states("none").steps == [self.step - 1]

    def write_batch(self, batch: StepBatch) -> str:
        """Begins the box in the place of all others of the folder; the checksum of the batch. One process calls it."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.mkdir(parents=True)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **dict(batch.fields))  # type: ignore[arg-type]
        part = self.path / f"{BATCH}.part"
        part.write_bytes(buffer.getbuffer())
        part.replace(self.path / BATCH)
        return checksum.of_bytes(buffer.getbuffer())

    def write_state(self, state: State, batch: StepBatch, batch_checksum: str):
        """Adds the state before the step; all processes call it together."""
        store = Checkpoints(self.path / STATE)
        try:
            store.save(self.step - 1, state, {"batch": batch_checksum, "rows": batch.rows.tolist()}, None)
        finally:
            store.close()

    def write_report(self, batch: StepBatch, facts: Mapping[str, object]):
        """Writes what is known of the step."""
        run_folder.write_json(self.path / REPORT, {"step": self.step, "rows": batch.rows.tolist(), **facts})

    def read(self, job: Job, log: Callable[[str], None]) -> tuple[State, StepBatch]:
        """The state before the step on the mesh of a job, and its batch. Raises UserError if the box is damaged."""
        states = self._states(job.run.checkpoint.verify)
        if reason := states.damage(self.step - 1, ("params", "opt")):
            self._refuse(reason)
        with jax.set_mesh(job.mesh):
            state, saved, _ = states.restore(job.new_state(), log, before=self.step)
        content = (self.path / BATCH).read_bytes()
        if checksum.of_bytes(content) != saved["batch"]:
            self._refuse(f"{BATCH} differs from its checksum")
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                fields = {name: arrays[name] for name in arrays.files}
        except (ValueError, zipfile.BadZipFile) as error:
            self._refuse(f"{BATCH}: {error}")
        return state, StepBatch(self.step, fields, np.array(saved["rows"]))

    def _states(self, verify: str) -> SavedCheckpoints:
        return SavedCheckpoints(self.path / STATE, verify)

    def _refuse(self, reason: str):
        raise UserError(
            f"{self.path} is damaged ({reason}); remove it, and add --step={self.step}: the step is then run again "
            "from the checkpoints and the data of the run"
        )


def newest(folder: Path) -> BlackBox | None:
    """The black box of a run folder, if it has one."""
    steps = [path.name.removeprefix("step-") for path in (folder / FOLDER).glob("step-*")]
    step = max((int(step) for step in steps if step.isascii() and step.isdigit()), default=None)
    return None if step is None else BlackBox(folder, step)


def begin(folder: Path, batch: StepBatch) -> tuple[BlackBox, str]:
    """A black box with its batch, made by process 0, and the checksum of the batch."""
    box = BlackBox(folder, batch.step)
    text = distributed.broadcast_from_main(lambda: box.write_batch(batch))
    return box, text

"""Run folders: how one is chosen, made and read. `open_folder` takes a Hugging Face folder in its place."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tfm.options.dotted import flatten, flatten_saved, override
from tfm.options.json_text import read_object
from train import UserError
from train.files import buckets, checksum
from train.files.buckets import Folder
from train.files.strict_json import json_text
from train.runs import adapters
from train.runs.description import FORMAT, checksums_of, describe
from train.runs.hf_folder import NO_CHANGES, HfFolder, is_hf_folder
from train.runs.paths import seen_from_here
from train.runs.phase_model import values_of_phase
from train.screens import finite
from train.settings import flags
from train.settings.schema import Run
from train.tasks import table

if TYPE_CHECKING:
    from tfm.config.model import Config
    from tfm.params import PyTree
    from train.text.sentence_transformers import Modules

ROOT = Path("runs")
CONFIG = "run.json"
RESULT = "result.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"


@final
class RunFolder:
    """A folder that train.main made. Every member raises UserError if its file is missing or damaged.

    `changes` are flags that replace some values of the run. `HfFolder` has the same members.
    """

    def __init__(self, path: str | Path, changes: Mapping[str, object] = NO_CHANGES):
        self.path = Path(path)
        self.changes = changes

    @cached_property
    def values(self) -> dict[str, object]:
        """The configuration by dotted names, `out` set to this folder; the model is that of the newest checkpoint's
        phase."""
        values = self.recorded_values
        return values_of_phase(values, checkpoints_of(self.path, str(values["checkpoint.folder"])))

    @cached_property
    def recorded_values(self) -> dict[str, object]:
        """The same, as the flags were."""
        saved = flatten_saved(self._section("config"))
        if self._sections.get("format") != FORMAT:
            raise UserError(f"{self.path} was written by an earlier version, which alone can read it; train it again")
        try:
            values = flatten(override(table.AnyRun(), saved))
        except ValueError as error:
            raise UserError(f"{self.path / CONFIG} has a configuration that cannot be used: {error}") from error
        self._check_unchanged()
        values |= seen_from_here(values, self._sections.get("directory", "")) | {"out": str(self.path)}
        return flatten(flags.build(table.AnyRun, values, self.changes)) if self.changes else values

    @cached_property
    def config(self) -> Run:
        """The run that made the parameters.

        The attention kernel is auto, whatever the devices of the training had. A moving average is float32, whatever
        dtype was trained.
        """
        run = flags.build(table.AnyRun, self.values)
        model = dataclasses.replace(run.model, kernel="auto")
        if run.optim.has_average:
            model = dataclasses.replace(model, param_dtype="float32")
        return dataclasses.replace(run, model=model)

    @property
    def task(self) -> "table.Task":
        """The task."""
        return table.task_of(self.config)

    @property
    def specs(self) -> "PyTree":
        """The spec tree of the parameters."""
        from train.runs.tuning import specs_of

        return specs_of(self.task, self.config)

    @cached_property
    def processor(self) -> Any:
        """The tokenizer, or another processor that the task names."""
        kind = self.task.processor
        paths = [self.path / name for name in kind.kept(self._sections.get("files"))]
        for path in paths:
            if not path.exists():
                raise UserError(f"{self.path} is not a run folder: it has no {path.name}")
            checksums = self._section("files")
            if checksums.get(path.name) != checksum.of_bytes(path.read_bytes()):
                raise UserError(f"{path} is damaged, or of another run; restore it or start a new run")
        try:
            return kind.read(*paths)
        except ValueError as error:
            names = " or ".join(map(str, paths))
            raise UserError(f"{names} is damaged ({error}); restore it or start a new run") from error

    @property
    def modules(self) -> "Modules":
        """How a text becomes a vector: as the task has it."""
        return self.task.modules(self.config)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The section of run.json about the data."""
        self._check_unchanged()
        return self._section("data")

    @cached_property
    def surroundings(self) -> dict[str, Any]:
        """What run.json says beside the configuration: versions, data, devices, mesh, checksums of files."""
        self._check_unchanged()
        separate = ("format", "config", "command", "directory", "checksums")
        return {name: value for name, value in self._sections.items() if name not in separate}

    @property
    def text_prefix(self) -> list[int]:
        """The tokens before every document in training, of a language model."""
        return self.task.text_prefix(self.config, self.processor)

    @property
    def text_template(self) -> tuple[str, ...]:
        """What training put around a text, in the words of `TemplateProcessing`; () where the tokenizer says it."""
        return self.task.hf_template(self.config, self.processor)

    @property
    def window(self) -> int:
        """The tokens of a row in training."""
        return self.config.batch.length

    def hf_fields(self) -> dict[str, object]:
        """The fields of config.json that the model's configuration does not have.

        `architectures` are those whose head is trained by the task: two heads may have the same shapes.
        """
        from tfm.hf import FAMILIES

        heads = [item for family in FAMILIES.values() for item in family.heads.items()]
        fields: dict[str, object] = {"architectures": [name for name, head in heads if head.kind in self.task.hf_heads]}
        fields |= self.task.processor.hf_fields(self.processor)
        return fields | self.task.hf_fields(self.config, self.processor, self.facts)

    def save_hf(
        self, to: Path, model: "Config", params: "PyTree", fields: Mapping[str, object], trained: "PyTree" = None
    ):
        """Writes a Hugging Face folder with this folder's processor; `model` and `params` may be laid out anew.

        trained: the parameters as they were trained, where training has more; None: `params`
        """
        import tfm
        from train.text import hf_roles

        tfm.to_hf(model, params, to, like=fields)
        self.save_processor(to)
        if self.task.writes_in_order:
            tokenizer = self.task.processor.tokenizer(self.processor) or self.processor
            text = hf_roles.generation_text(tokenizer, fields)
            (to / hf_roles.GENERATION).write_text(text, encoding="utf-8")
        self.task.save_hf(self, params if trained is None else trained, to)

    def save_processor(self, to: Path):
        """Writes the tokenizer or the processor of images as transformers loads it."""
        self.task.processor.save_hf(self.processor, self.task, self.config, to)

    def load(self, mesh=None, log: Callable[[str], None] = print, average: int = 1) -> "PyTree":
        """The parameters on a mesh, by default of one device.

        They are the mean of the newest `average` checkpoints, or the best ones if the run had patience, or the newest.
        Raises UserError if they are not finite, or more than memory can hold.
        """
        import tfm
        from train.devices import capacity
        from train.runs import saved

        mesh = capacity.mesh_for_weights(self.specs, self.path, mesh)
        like = tfm.abstract(self.specs, mesh)
        settings, best = self.config.checkpoint, self.config.eval.patience is not None
        folder = checkpoints_of(self.path, settings.folder)
        params = saved.load_params(folder, like, log, settings.verify, best, average)
        finite.refuse_parameters(params, str(self.path))
        return params

    def check_data(self, facts: Mapping[str, object]):
        """Raises UserError if the data are no longer those that the run began with."""
        if self.facts["hash"] != facts["hash"]:
            raise UserError(
                f"the text of --data={facts['source']} is not that with which {self.path} began; "
                "restore or name that one, or start a new run"
            )
        if self.facts.get("order") != facts["order"]:
            raise UserError(
                f"{self.path} began with another order of rows ({self.facts.get('order', 'an earlier one')}) than this "
                f"version has ({facts['order']}); go on with that version, or start a new run with --init={self.path}"
            )
        if self.facts.get("segmentation_hash", "") != facts["segmentation_hash"]:
            raise UserError(
                f"the cache has lost what --tokenizer.dropout drew for {self.path}; "
                "restore the cache, or start a new run"
            )

    def _check_unchanged(self):
        """Raises UserError if a section of run.json is not as the run wrote it. Without checksums, it is as it is."""
        checksums = self._sections.get("checksums")
        if checksums is None or checksums == (actual := checksums_of(self._sections)):
            return
        names = [name for name in actual if not isinstance(checksums, dict) or checksums.get(name) != actual[name]]
        raise UserError(
            f"{self.path / CONFIG} is not as the run wrote it: {names[0] if names else 'checksums'} was changed or "
            'damaged; undo that, or remove "checksums" from the file to go on with it as it is'
        )

    def _section(self, name: str) -> dict[str, object]:
        """A section of run.json."""
        section = self._sections.get(name)
        if not isinstance(section, dict):
            raise UserError(f"{self.path / CONFIG} is damaged ({name!r}); restore it or start a new run")
        return section

    @cached_property
    def _sections(self) -> dict[str, object]:
        """The content of run.json."""
        path = self.path / CONFIG
        try:
            return read_object(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UserError(
                f"{self.path} is not a run folder: it has no {CONFIG} (nor config.json, as models of transformers have)"
            ) from error
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}); restore it or start a new run") from error


def checkpoints_of(path: Path, url: str) -> Folder:
    """Where the run of a folder has its checkpoints: in it, or where `--checkpoint.folder` says."""
    return buckets.open_folder(url) if url else path / CHECKPOINTS


def open_folder(path: str | Path, changes: Mapping[str, object] = NO_CHANGES) -> RunFolder | HfFolder:
    """The folder to take a model from, with some values of its run changed. Only a member that reads a file raises
    UserError."""
    return HfFolder(path, changes) if is_hf_folder(path) else RunFolder(path, changes)


def run_values(path: str | Path, adapter: str = "") -> dict[str, object]:
    """The dotted values of a run, or of a run that could have made a Hugging Face folder.

    Those of --tune are then what an adapter of PEFT asks for.
    """
    values = open_folder(path).values
    if not adapter:
        return values
    tune = adapters.tune_values(adapter, values)
    return {name: value for name, value in values.items() if name.partition(".")[0] != "tune"} | tune


def resumed_values(out: str) -> dict[str, object]:
    """The dotted values of the run that `--resume` continues: the one in `out`, or the newest in runs/."""
    if out:
        return RunFolder(out).recorded_values
    paths = sorted(ROOT.glob(f"*/{CONFIG}"), key=lambda path: path.stat().st_mtime)
    if not paths:
        raise UserError(f"--resume found no run in {ROOT}/; name one with --out=DIR, or start one without --resume")
    return RunFolder(paths[-1].parent).recorded_values


def create(path: Path, run: Run, processor: object, facts: Mapping[str, object]):
    """Fills the folder of a new run, or updates run.json of a resumed one; `facts` are about data and devices."""
    path.mkdir(parents=True, exist_ok=True)
    kind = table.task_of(run).processor
    if not run.resume:
        for name, text in kind.contents(processor).items():
            write(path / name, text)
    files = {name: checksum.of_bytes((path / name).read_bytes()) for name in kind.files if (path / name).exists()}
    write_json(path / CONFIG, describe(run, {**facts, "files": files}))


def write_json(path: Path, value: Mapping[str, object]):
    """Writes one JSON object, indented."""
    write(path, json_text(value, indent=1) + "\n")


def write(path: Path, text: str):
    """Writes a file completely or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)

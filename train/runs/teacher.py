"""The teacher of a run: a model of the same task, in a run folder or a Hugging Face folder."""

import dataclasses
import hashlib
from typing import final

import jax
from jax.sharding import Mesh

import tfm
from tfm.config.model import Config
from tfm.params import PyTree
from train import UserError
from train.data.corpus import Corpus
from train.devices import distributed
from train.losses.teaching import OutputLoss
from train.runs.pretrained import take_parts
from train.runs.run_folder import open_folder
from train.runs.takeover import SavedData
from train.settings.gate import user_errors
from train.settings.schema import Run
from train.tasks import table
from train.tasks.record import Task


@final
class TeacherModel:
    """The model in `--teacher=FOLDER`. Raises UserError where it cannot teach the run."""

    def __init__(self, run: Run, task: Task):
        self.path = run.teacher.folder
        self.folder = open_folder(self.path)
        if not isinstance(task.loss, OutputLoss):
            teachable = [name for name in table.TASKS if isinstance(table.load_task(name, run.model).loss, OutputLoss)]
            raise UserError(f"--task={run.task.name} has no teacher; those with one are {', '.join(teachable)}")
        if self.folder.config.task.name != run.task.name:
            raise UserError(
                f"--teacher={self.path} is a model of task={self.folder.config.task.name}, and this run is of "
                f"task={run.task.name}; name a model of the same task"
            )
        if run.teacher.copy and run.init:
            raise UserError(f"--teacher.copy=true takes weights, and so does --init={run.init}; leave one of them out")
        self._check_inputs(run, task)
        if run.teacher.hidden and _state_shape(self.model) != _state_shape(run.model):
            raise UserError(
                f"--teacher.hidden={run.teacher.hidden} compares states, which differ in width or in place: those of "
                f"{self.path} are {self.model.stage_configs[-1].width} wide, and those of this model "
                f"{run.model.stage_configs[-1].width}; leave it out"
            )
        self.dtype = run.model.dtype

    @property
    def model(self) -> Config:
        """The teacher's configuration."""
        return self.folder.config.model

    @property
    def running_model(self) -> Config:
        """The teacher's configuration, in the dtype of the run's products."""
        return dataclasses.replace(self.model, dtype=self.dtype, kernel="auto")

    @property
    def saved(self) -> SavedData:
        """What the run takes over: the processor, and the names of the classes."""
        facts = self.folder.facts
        return SavedData(self.folder.processor, {"classes": facts["classes"]} if "classes" in facts else {})

    def check_corpus(self, corpus: Corpus):
        """Raises UserError for a corpus that the teacher would read as something else."""
        kind = self.folder.task.processor
        if kind.to_texts(corpus.processor) != kind.to_texts(self.folder.processor):
            raise UserError(
                f"--teacher={self.path} has another {' or '.join(kind.files)} than this run; leave --init out, or name "
                "a teacher with the same one"
            )
        names, teacher_names = corpus.facts().get("classes"), self.saved.facts.get("classes")
        if names != teacher_names:
            raise UserError(
                f"--teacher={self.path} has the classes {_some(teacher_names)}, and the data have {_some(names)}; name "
                "a teacher of the same classes"
            )

    def abstract(self, mesh: Mesh) -> PyTree:
        """The shapes and shardings of the parameters."""
        return tfm.abstract(self.folder.specs, mesh)

    def load(self, mesh: Mesh) -> PyTree:
        """The parameters on a mesh."""
        return self.folder.load(mesh)

    def copy_into(self, params: PyTree, source: PyTree, model: Config, mesh: Mesh) -> tuple[PyTree, list[str]]:
        """Fresh parameters of a model with those of the teacher, `source`, its layers at equal distances (Sanh et al.
        2019, section 3); and the names of the parts that stay fresh. Raises UserError for another architecture."""
        source = tfm.merge_low_rank(source)

        def choose(encoder: PyTree, teacher_model: Config, student: Config) -> PyTree:
            return tfm.spaced_layers(encoder, teacher_model, student.layers)[0]

        with jax.set_mesh(mesh), user_errors("--teacher.copy"):
            for name in ("encoder", "decoder"):
                if (stack := getattr(source, name, None)) is not None:
                    reads_source = isinstance(source, tfm.Seq2Seq) and name == "encoder"
                    models = (shape.in_encoder() if reads_source else shape for shape in (self.model, model))
                    chosen = jax.jit(choose, static_argnums=(1, 2))(stack, *models)
                    source = dataclasses.replace(source, **{name: chosen})
        taken, fresh = take_parts(f"--teacher={self.path}", source, params)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
        # The step gives up the buffers of parameters, and keeps the teacher's.
        return jax.device_put(taken, shardings, may_alias=False), fresh

    def _check_inputs(self, run: Run, task: Task):
        """Raises UserError where the teacher cannot read the rows of the run."""
        if run.task.reads_pictures:
            shapes = [_picture(model) for model in (self.model, run.model)]
            if shapes[0] != shapes[1]:
                raise UserError(f"--teacher={self.path} reads {shapes[0]}, and this model {shapes[1]}; choose the same")
        elif self.model.max_length is not None and self.model.max_length < run.batch.length:
            raise UserError(
                f"--teacher={self.path} reads at most {self.model.max_length} tokens; say "
                f"--batch.length={self.model.max_length}"
            )
        if "segments" in task.batch_spec(run) and run.packs_rows and not self.model.reads_packed:
            raise UserError(f"--teacher={self.path} cannot keep texts of a row apart; add --data.pack=false")


def fingerprint(params: PyTree) -> str:
    """A hash of all parameters and their names, the same on any mesh; all processes call it together."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(distributed.to_host(leaf).tobytes())
    return digest.hexdigest()[:16]


def _picture(model: Config) -> str:
    """What a model of pictures reads."""
    shape = model.input.array_shape
    if shape is None:
        return f"{model.length} colours of a palette"
    return f"{'pictures' if len(shape) == 3 else 'frames'} of " + " x ".join(map(str, shape))


def _state_shape(model: Config) -> tuple[object, ...]:
    """What the shapes of last states depend on, beside the rows."""
    last = model.stage_configs[-1]
    return last.width, last.input.prefix, last.grid, last.input.grid, model.head.decoder_width


def _some(names: list[str] | None) -> str:
    return "none" if not names else ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")

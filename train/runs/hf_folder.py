"""Hugging Face folders in place of run folders: what a run of this trainer would say of the model."""

import contextlib
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from tfm.options.dotted import flatten
from train import UserError
from train.screens import finite
from train.settings import flags
from train.settings.gate import user_errors
from train.settings.schema import Run
from train.tasks import table

if TYPE_CHECKING:
    from tfm.config.model import Config
    from tfm.hf.folder import Opened
    from tfm.params import PyTree
    from train.text.sentence_transformers import Modules

# Kinds of heads whose rows have [CLS] and [SEP], whatever the tokenizer adds.
_FRAMED = ("classify", "choice", "tag", "span")

# Nothing of a saved run is changed.
NO_CHANGES: Mapping[str, object] = MappingProxyType({})


def is_hf_folder(path: str | Path) -> bool:
    """Whether transformers saved the model in this folder, and not train.main."""
    return (_model_folder(Path(path)) / "config.json").is_file() and not (Path(path) / "run.json").is_file()


def _model_folder(root: Path) -> Path:
    """Where the model lies: in the folder, or in one in it, as sentence-transformers had it in 2020."""
    if not (root / "modules.json").is_file():
        return root
    from train.text import sentence_transformers

    return sentence_transformers.transformer_folder(root)


@final
class HfFolder:
    """A folder that transformers, or train.export, saved. Members raise UserError if they cannot be read.

    `RunFolder` has the same members.
    """

    def __init__(self, path: str | Path, changes: Mapping[str, object] = NO_CHANGES):
        self.root, self.path = Path(path), _model_folder(Path(path))
        self.changes = changes

    @cached_property
    def fields(self) -> dict[str, object]:
        """The fields of config.json."""
        from tfm.hf.folder import read_config

        with self._user_errors():
            return read_config(self.path)

    @cached_property
    def values(self) -> dict[str, object]:
        """The configuration, by dotted names, of a run that could have made the model."""
        model, head = self._opened.config, self._opened.head.kind
        values = flatten(model, "model.") | {"task": self._task_name, "preset": ""}
        values |= {"batch.length": 512, "batch.size": 8} | self._task_named(self._task_name).hf_run_values(head, self)
        values["batch.length"] = min(model.length, values["batch.length"])
        return flatten(flags.build(table.AnyRun, values, self.changes)) | {"out": str(self.path)}

    @cached_property
    def _task_name(self) -> str:
        """The task that trains such a model; one with another head, or with none, can still be started from."""
        model, head = self._opened.config, self._opened.head.kind
        if self._has_token_vectors and head == "model":
            return "late"
        if self.has_modules and head == "model" and model.images is None:
            return "contrast"
        if head == "classify" and model.classes == 1 and self._is_cross_encoder:
            return "rank"
        readers = [name for name, entry in table.TASKS.items() if model.input.name in entry.options.inputs]
        return next((name for name in readers if head in self._task_named(name).hf_heads), readers[0])

    def _task_named(self, name: str) -> "table.Task":
        """The task of a name, for this model."""
        return table.load_task(name, self._opened.config)

    @cached_property
    def _opened(self) -> "Opened":
        """The folder, checked without reading weights."""
        from tfm.hf.folder import open_folder

        with self._user_errors(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # load logs them
            return open_folder(self.path)

    @cached_property
    def config(self) -> Run:
        """A run that could have made the model."""
        return flags.build(table.AnyRun, self.values)

    @property
    def task(self) -> "table.Task":
        """The task."""
        return table.task_of(self.config)

    @property
    def specs(self) -> "PyTree":
        """The spec tree of the parameters."""
        return self._opened.specs

    @cached_property
    def processor(self) -> Any:
        """The tokenizer, or another processor that the task names."""
        with self._user_errors():
            kind = self._task_named(self._task_name).processor
            processor = kind.read_hf(self.path, self._opened.config)
            tokenizer = kind.tokenizer(processor)
            if tokenizer is not None and self._opened.head.kind in _FRAMED and self._opened.config.images is None:
                self._check_frame(tokenizer)
        return _lower_cased(processor) if self.has_modules and self.modules.lower else processor

    @cached_property
    def has_modules(self) -> bool:
        """Whether it is of sentence-transformers, with modules that are known here."""
        from train.text import sentence_transformers

        return sentence_transformers.is_folder(self.root)

    @cached_property
    def _has_token_vectors(self) -> bool:
        """Whether sentence-transformers saved a model with a vector of each token."""
        from train.text import multi_vector

        return multi_vector.is_folder(self.root)

    @property
    def hf_model(self) -> "Config":
        """The model that config.json describes."""
        return self._opened.config

    @property
    def _is_cross_encoder(self) -> bool:
        """Whether sentence-transformers saved it to score pairs of texts."""
        from train.text import cross_encoders

        return cross_encoders.is_folder(self.root, self.fields)

    @cached_property
    def modules(self) -> "Modules":
        """How a text becomes a vector: as modules.json says, else as the task has it."""
        from train.text import sentence_transformers

        with self._user_errors():
            if not (self.root / sentence_transformers.MODULES).is_file():
                sentence_transformers.check_no_parts(self.root)
                return self.task.modules(self.config)
            if self._has_token_vectors:
                return self.task.modules(self.config)
            return sentence_transformers.read(self.root, self._opened.config)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What run.json would say of the data: the names of the classes, and that the tokenizer marks texts."""
        from tfm.hf.fields import class_names
        from train.tasks.record import TOKENIZER_MARKS

        with self._user_errors():
            return {"classes": class_names(self.fields), TOKENIZER_MARKS: True}

    @property
    def text_prefix(self) -> list[int]:
        """The tokens before every document in training: those that the tokenizer adds."""
        from train.text import tokenize

        return tokenize.prefix_tokens(self.processor)

    @property
    def text_template(self) -> tuple[str, ...]:
        """(): the tokenizer says what stands around a text."""
        return ()

    @property
    def window(self) -> int:
        """The tokens that the model reads at a time, 512 at most."""
        return min(self.config.model.max_length or 512, 512)

    def hf_fields(self) -> dict[str, object]:
        """The fields of config.json, which an export keeps."""
        return self.fields

    def save_hf(
        self, to: Path, model: "Config", params: "PyTree", fields: Mapping[str, object], trained: "PyTree" = None
    ):
        """Writes a Hugging Face folder with this folder's processor; `model` and `params` may be laid out anew."""
        import tfm
        from train.text import sentence_transformers

        tfm.to_hf(model, params, to, tokenizer=self.path, like=fields)
        if (self.root / sentence_transformers.MODULES).is_file():
            sentence_transformers.copy(self.root, to)

    def save_processor(self, to: Path):
        """Writes the tokenizer or the processor of images."""
        kind = self.task.processor
        for name, text in kind.contents(self.processor).items():
            (to / name).write_text(text, encoding="utf-8")

    def load(self, mesh=None, log: Callable[[str], None] = print, average: int = 1) -> "PyTree":
        """The parameters on a mesh, by default of one device.

        Logs the fields of config.json that change nothing. Raises UserError if parameters are not finite, or more than
        memory can hold, and for an `average` of several checkpoints, as there is one.
        """
        import tfm
        from train.devices import capacity

        if average != 1:
            raise UserError(
                f"--average={average} is a mean of the checkpoints of a run, and {self.path} holds one model; leave it "
                "out"
            )

        mesh = capacity.mesh_for_weights(self.specs, self.path, mesh)
        with self._user_errors(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            params = self.task.load_hf(self, tfm.from_hf(self.path, mesh)[1], mesh)
        for warning in caught:
            log(f"{self.path}: {warning.message}")
        if self.task.writes_in_order and (count := self._num_unwritten()):
            log(
                f"{self.path}: the last {count} ids of the model are no tokens of the tokenizer: they are never written"
            )
        finite.refuse_parameters(params, str(self.path))
        return params

    def _num_unwritten(self) -> int:
        """Rows of the vocabulary behind the last token of the tokenizer; 0 where the model writes no tokens of one."""
        from train.text import tokenize

        model, tokenizer = self.config.model, self.task.processor.tokenizer(self.processor)
        if tokenizer is None:
            return 0
        return tokenize.writing_model(model, tokenizer).head.input_only - model.head.input_only

    def _check_frame(self, tokenizer: Any):
        """Warns where the tokenizer puts something else around a text than rows of this model have."""
        from train.text import special

        before, _, after = special.added_tokens(tokenizer, "a")
        roles = special.special_tokens(tokenizer)
        if (before, after) != ([roles.cls], [roles.sep]):
            own, read = ([tokenizer.id_to_token(token) for token in row] for row in (before + after, roles[2:4]))
            warnings.warn(
                f"{self.path}: the tokenizer puts {own} around a text, and this model reads texts between {read}; "
                "correct its post_processor where transformers gave other answers",
                stacklevel=3,
            )

    def _user_errors(self) -> contextlib.AbstractContextManager[None]:
        """Turns the library's errors about the folder into UserError."""
        return user_errors(str(self.path))


def _lower_cased(tokenizer: Any) -> Any:
    """The tokenizer with a normalizer that makes lower case of a text first."""
    from tokenizers import normalizers

    rest = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *rest])
    return tokenizer

"""Folders of models that class pixels, of transformers: the processor of SegFormer, whose labels may be reduced."""

from dataclasses import dataclass
from pathlib import Path

from tfm.options.choices import check_type
from train import UserError
from train.data.labels import class_fields
from train.data.processors import read_folder
from train.images.model_processor import size_values
from train.images.palette import IMAGE_PROCESSOR, write_fields
from train.images.processor import ImageProcessor
from train.settings.gate import user_errors
from train.settings.schema import Run
from train.tasks.record import Facts, HfSource
from train.tasks.segment.options import PixelClasses
from train.text.hf_tokenizer import MarksTexts

# No value of a mask.
_NOTHING = -100


@dataclass(frozen=True)
class _Labels:
    """Whether a processor takes 1 from the values of masks."""

    reduces: bool

    @classmethod
    def of(cls, fields: dict[str, object]) -> "_Labels":
        """From the fields of its file; the second name is of older ones."""
        names = [name for name in ("do_reduce_labels", "reduce_labels") if fields.get(name) is not None]
        values = [check_type(name, fields[name], bool) for name in names]
        return cls(any(values))


def run_values(head: str, folder: HfSource) -> dict[str, object]:
    """Options of a run that could have trained such a model, whose pictures are as large as its processor makes them:
    transformers reads them of any size. Raises UserError for a model of a single class."""
    if folder.hf_model.classes < 2:
        raise UserError(
            f"{folder.path} tells one class from nothing, by the sign of its output; give a folder with two classes or "
            "more in id2label"
        )
    with user_errors(str(folder.path / "config.json")):
        ignore = check_type("semantic_loss_ignore_index", folder.fields.get("semantic_loss_ignore_index", 255), int)
    values = {"task.ignore": ignore if 0 <= ignore < 256 else None}
    values["task.reduce_labels"] = read_folder(folder.path, "image_processor", _Labels.of).reduces
    if isinstance(folder.processor, ImageProcessor):
        values |= size_values(folder.processor)
    return values


def fields(run: Run[PixelClasses], processor: ImageProcessor, facts: Facts) -> dict[str, object]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    ignored = _NOTHING if run.task.ignore is None else run.task.ignore
    return {**class_fields(facts["classes"]), "semantic_loss_ignore_index": ignored}


def save_processor(processor: ImageProcessor, task: MarksTexts, run: Run[PixelClasses], folder: Path):
    """Writes preprocessor_config.json: the class of SegFormer, which crops nothing, where nothing is cropped."""
    of_class = {"image_processor_type": "SegformerImageProcessor"} if processor.crop is None else {}
    write_fields(processor, folder, do_reduce_labels=run.task.reduce_labels, **of_class)


PROCESSOR = IMAGE_PROCESSOR._replace(save_hf=save_processor)

"""Folders of detectors, of transformers: DETR's."""

from pathlib import Path

from train.data.labels import class_fields
from train.data.processors import has_file
from train.images.model_processor import size_values
from train.images.palette import IMAGE_PROCESSOR, write_fields
from train.images.processor import ImageProcessor
from train.settings.schema import Run
from train.tasks.detect.options import Detection
from train.tasks.record import Facts, HfSource
from train.text.hf_tokenizer import MarksTexts


def run_values(head: str, folder: HfSource) -> dict[str, object]:
    """The queries and the layers of the decoder of a folder; where config.json says no size of pictures, that of its
    processor."""
    if head != "objects":
        return {}
    sizes = folder.hf_model.head
    values: dict[str, object] = {"task.queries": sizes.queries, "task.layers": sizes.query_layers}
    if "image_size" in folder.fields or not has_file(folder.path):
        return values
    return values | size_values(folder.processor)


def fields(run: Run[Detection], processor: ImageProcessor, facts: Facts) -> dict[str, object]:
    """The names of classes in config.json."""
    return class_fields(facts["classes"])


def save_processor(processor: ImageProcessor, task: MarksTexts, run: Run[Detection], folder: Path):
    """Writes preprocessor_config.json: the class of DETR, which makes boxes of what the model says."""
    write_fields(processor, folder, image_processor_type="DetrImageProcessor", do_pad=False)


PROCESSOR = IMAGE_PROCESSOR._replace(save_hf=save_processor)

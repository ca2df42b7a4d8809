"""The options of classification of pictures."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_rates, frozen, tag
from train.settings.images import Augment, Pixels, video_frames
from train.settings.schema import Run
from train.settings.sounds import Sound, reads_frames
from train.settings.task_options import PICTURE_INPUTS, TaskOptions, check_generative, parsed_weights


@frozen
class Image(TaskOptions):
    """Classes of pictures (Dosovitskiy et al. 2021), of sounds, with --model.input=frames or spectrogram, or
    of videos, with --model.input=tubes.

    smoothing: probability that is divided among all classes in training (Szegedy et al. 2016)
    class_weights: none | balanced (the inverse of their frequency) | w1,w2,...: weights of the classes in training
    generative: factor of the loss of the next pixels, which training adds, of ImageGPT; 1 in its paper; 0: none
    pixels: how a picture becomes pixels
    augment: random changes of training pictures
    sound: how a sound becomes frames
    """

    reads_pictures: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = (*PICTURE_INPUTS, "tokens", "frames", "spectrogram", "tubes")

    name: Literal["image"] = tag("image")
    smoothing: float = 0.0
    class_weights: str = "none"
    generative: float = 0.0
    pixels: Pixels = Pixels()
    augment: Augment = Augment()
    sound: Sound = Sound()

    def __post_init__(self):
        check_fields(self)
        check_rates(self, "smoothing", usual="0.1 is usual")
        if parsed_weights(self.class_weights) is not None and self.augment.mixes:
            raise ValueError(f"class_weights={self.class_weights} is for pictures of one class; leave mixing out")

    def check_task(self, run: Run) -> None:
        check_generative(self.generative, run.model)
        if (reads_frames(run.model.input) or video_frames(run.model.input)) and self.augment != Augment():
            raise ValueError(f"task.augment changes pictures, and model.input={run.model.input.name} reads none")
        if run.model.input.array_shape:
            return
        name = run.model.input.name
        if not run.model.head.causal:
            raise ValueError(f"model.input={name} does not read the pictures of task=image; say --model.input=patches")
        if self.augment.mixes or self.augment.erase:
            raise ValueError(
                f"model.input={name} reads colours of a palette, which do not mix; leave mixes and erase out"
            )

"""Rows of pictures with questions."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from train.images.rows import ImageRows
from train.tasks.captions.rows import CaptionRows
from train.tasks.record import Facts


class AnswerRows:
    """The pictures and the questions of `CaptionRows`, whose labels are answers. `hide` says which of both a model does
    not see."""

    buckets, batches_ahead, independent_rows = None, 2, True

    def __init__(self, asked: CaptionRows, hide: Literal["none", "picture", "question"]):
        self.asked, self.hide = asked, hide
        self.tokens, self.padding = asked.tokens, asked.padding

    def __len__(self):
        return len(self.asked)

    @property
    def images(self) -> ImageRows:
        """The pictures, with the answers as labels."""
        return self.asked.images

    def overview(self, facts: Facts) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        questions = {"picture": "the model sees them alone", "question": "hidden from the model"}.get(self.hide)
        lines = self.asked.overview(facts)
        lines["questions"] = lines.pop("captions") + (f"; {questions}" if questions else "")
        lines["pictures"] = lines["pictures"].replace("captions", "questions")
        return lines | {"answers": f"{len(facts['classes']):,}"}

    def example_ids(self) -> Iterator[np.ndarray]:
        """The tokens of every question."""
        return self.asked.example_ids()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.answer_picture.task`."""
        fields = self.images.batch(rows, rng)
        texts = self.asked.frame.fill(self.asked.captions, rows, self.asked.length)
        if self.hide == "question":
            texts["valid"][:, 1:] = 0  # the state of the first token stands for the row
        return fields | texts | {"seen": np.full((len(rows), self.images.length), self.hide != "picture", np.int32)}

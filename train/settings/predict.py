"""The options of train.predict, of which a task reads those that say what to predict for."""

import dataclasses
from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train.settings.limits import MAX_ROWS

# What `--weights` may say: as they were trained, or kernels and tables in eight bits.
Weights = Literal["trained", "int8"]


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """What to predict.

    run: the run folder
    text: a text
    pair: the second text of a pair (classify)
    choices: the continuations to choose from, with | between (choice)
    question: the question about the text (span)
    file: a file of texts
    to: the file to write to; by default stdout
    field: the text column of the file, if it has another name than in the training data
    source: of a translation model with several languages: that of the texts; by default as its folder says
    target: of such a model: the language to translate into
    attention: a page FILE.html or a picture FILE.png of where the model looks in the text; a folder of pictures (image)
    pictures: a folder for the pictures that the model makes of those of --file, such as masks (segment)
    labels: labels to choose from, with commas between, or a .txt with a line each (contrast of pictures and captions)
    template: a text with {} in the place of a label; several with | between, or in a .txt: their vectors are averaged
    batch: texts at a time
    weights: trained | int8: kernels and tables in eight bits; train.evaluate says what it costs
    top_k: tokens for each blank (mlm)
    """

    run: str = ""
    text: str = ""
    pair: str = ""
    choices: str = ""
    question: str = ""
    file: str = ""
    to: str = ""
    field: str = ""
    source: str = ""
    target: str = ""
    attention: str = ""
    pictures: str = ""
    labels: str = ""
    template: str = ""
    batch: int = 32
    weights: Weights = "trained"
    top_k: int = 5

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name the run folder of a model that predicts")
        if bool(self.text) == bool(self.file):
            raise ValueError("text=TEXT or --file=IN must say what to predict for, one of the two")
        check_fields(self)
        check_minimum(self, batch=1, top_k=1)
        check_maximum(self, "its rows must fit into memory", batch=MAX_ROWS)

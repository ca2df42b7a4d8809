"""What a run learns from a teacher, a larger model of the same task: --teacher=FOLDER."""

import dataclasses
from typing import Literal

from tfm.options.choices import check_fields, check_maximum, frozen


@frozen
class Teacher:
    """A model that the run learns from, beside its labels (Hinton et al. 2015).

    folder: the teacher, a run folder or a Hugging Face folder of the same task; empty: labels alone
    kind: soft | hard: the teacher's probabilities, or what it holds for the most probable
    weight: share of the teacher in the loss; the labels have the rest
    temperature: by which logits are divided before soft probabilities are taken
    hidden: weight of 1 - cosine of the last states of both, which are then equally wide; 0: not
    copy: the run starts from the teacher's weights, its layers at equal distances (Sanh et al. 2019)
    """

    folder: str = ""
    kind: Literal["soft", "hard"] = "soft"
    weight: float = 0.5
    temperature: float = 2.0
    hidden: float = 0.0
    copy: bool = False

    def __post_init__(self):
        check_fields(self)
        if not 0 < self.weight <= 1:
            raise ValueError(f"weight={self.weight} must be more than 0 and at most 1; DeiT has 0.5")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature} must be more than 0; 2 is usual")
        if self.hidden < 0:
            raise ValueError(f"hidden={self.hidden} must not be negative; 0 compares no states")
        check_maximum(self, "probabilities would all be equal", temperature=1e4)
        check_maximum(self, "nothing else would count", hidden=1e4)
        changed = [field.name for field in dataclasses.fields(self) if getattr(self, field.name) != field.default]
        if changed and not self.folder:
            raise ValueError(f"{changed[0]}={getattr(self, changed[0])} asks for a teacher; add --teacher=FOLDER")

"""The settings of SentEval's classifiers (Conneau and Kiela 2018; README of facebookresearch/SentEval)."""

import dataclasses
from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train.settings.limits import MAX_ROWS, MAX_SEED


@dataclasses.dataclass(frozen=True)
class Settings:
    """How classifiers on vectors are trained.

    solver: minibatch | exact: SentEval's path with torch, or its path with scikit-learn: no steps but the optimum
    kfold: folds of tasks without a test set
    nhid: units of a hidden layer; 0: logistic regression
    optim: adam | rmsprop | sgd: with the rates of torch, 0.001, 0.01 and, of sgd, 0.1
    batch: rows of a batch
    tenacity: how often the accuracy of the development rows may fail to rise before training stops, minus one
    epoch_size: epochs between two looks at it
    max_epoch: the last epoch after which training goes on
    dropout: of the hidden layer
    seed: of starts and orders; folds have 1111, as there
    """

    solver: Literal["minibatch", "exact"] = "minibatch"
    kfold: int = 10
    nhid: int = 0
    optim: Literal["adam", "rmsprop", "sgd"] = "adam"
    batch: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    max_epoch: int = 200
    dropout: float = 0.0
    seed: int = 1111

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, kfold=2, nhid=0, batch=1, tenacity=0, epoch_size=1, max_epoch=0, seed=0)
        check_maximum(self, "no batch is as large", batch=MAX_ROWS, nhid=MAX_ROWS)
        check_maximum(self, "seeds are numbers of 31 bits", seed=MAX_SEED)
        check_maximum(self, "each fold is a training of its own", kfold=1000)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be at least 0 and less than 1")
        if self.dropout and not self.nhid:
            raise ValueError(f"dropout={self.dropout} is of the hidden layer; add --nhid=50")
        if self.solver == "exact" and self.nhid:
            raise ValueError(f"solver=exact is for logistic regression; leave --nhid={self.nhid} out")


# What the README of SentEval calls comparable to the literature, and what it suggests for prototypes.
PROTOCOLS: dict[str, dict[str, int | str]] = {
    "comparable": {},
    "prototype": {"kfold": 5, "optim": "rmsprop", "batch": 128, "tenacity": 3, "epoch_size": 2},
}

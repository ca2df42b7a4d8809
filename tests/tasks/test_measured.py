"""The metrics that evaluations have under the options and data of a run, which --eval.best may name."""

from types import SimpleNamespace

import numpy as np
import pytest

from train.settings.schema import Eval
from train.tasks.classify.task import CLASSIFY
from train.tasks.contrast.task import CONTRAST
from train.tasks.image.task import IMAGE
from train.tasks.tag.task import TAG
from train.training.early_stopping import EarlyStopping, UserError

F1 = {"accuracy", "f1_macro"}
ENTITIES = {"precision", "recall", "f1"}


def classes(count, labels=None):
    rows = SimpleNamespace(labels=np.zeros(3, np.int32) if labels is None else labels)
    return SimpleNamespace(sizes={"classes": count}, valid=rows)


def texts(sides, kind="pairs"):
    run = SimpleNamespace(task=SimpleNamespace(kind=kind))
    return SimpleNamespace(run=run, valid=SimpleNamespace(texts=[None] * sides))


def tags(*names, lexicon=None):
    return SimpleNamespace(facts=lambda: {"classes": names}, valid=SimpleNamespace(lexicon=lexicon))


@pytest.mark.parametrize(
    ("task", "corpus", "names"),
    [
        (CLASSIFY, classes(2), {*F1, "f1", "matthews"}),
        (CLASSIFY, classes(3), {*F1, "matthews"}),
        (CLASSIFY, classes(3, np.zeros((2, 3), np.float32)), {*F1, "f1"}),
        (CLASSIFY, classes(1, np.zeros(2, np.float32)), {"pearson", "spearman"}),
        (IMAGE, classes(3), {*F1, "matthews"}),
        (IMAGE, classes(6), {*F1, "matthews", "top5"}),
        (CONTRAST, texts(1), {"accuracy"}),
        (CONTRAST, texts(2), {"accuracy", "retrieval_1", "retrieval_5"}),
        (CONTRAST, texts(2, "scores"), {"pearson", "spearman"}),
        (TAG, tags("NOUN", "VERB"), {"accuracy"}),
        (TAG, tags("O", "B-X"), {"accuracy", *ENTITIES}),
        (TAG, tags("O", "B-X", lexicon=True), {"accuracy", *ENTITIES, "f1_seen", "f1_unseen"}),
    ],
)
def test_metrics_that_the_data_leave(task, corpus, names):
    measured = task.measured(corpus)
    assert {"loss", *names} == {name for name in task.goals if name in measured}
    for name in task.goals:
        if name in measured:
            EarlyStopping(task.goals, Eval(best=name), measured)
        else:
            with pytest.raises(UserError, match=f"--eval.best={name} is not measured with these options and data; "):
                EarlyStopping(task.goals, Eval(best=name), measured)

"""Labels as numbers."""

import numpy as np
import pytest

from train import UserError
from train.data.labels import Labels


def rows(*labels):
    return [{"label": label} for label in labels]


def labels_of(kind, *labels, columns=("label",)):
    examples = rows(*labels)
    classes = Labels.of(kind, examples, columns)
    return classes.names, classes.encode(examples, columns).tolist()


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        (["b", "a", "b"], ["a", "b"], [1, 0, 1]),
        (["10", "9", "2"], ["2", "9", "10"], [2, 1, 0]),
        ([1, 0, 1], ["0", "1"], [1, 0, 1]),
        ([True, False], ["false", "true"], [1, 0]),
        ([" x ", "y"], ["x", "y"], [0, 1]),
        (["b", "1"], ["1", "b"], [1, 0]),
    ],
)
def test_one_class_each(labels, names, classes):
    assert labels_of("single", *labels) == (names, classes)


def test_several_classes_in_a_list_or_joined_by_commas():
    wanted = (["a", "b", "c"], [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert labels_of("multi", ["b", "a"], [], ["c"]) == wanted
    assert labels_of("multi", "b, a", "", "c") == wanted


def test_several_classes_in_columns_of_their_own():
    examples = [{"rude": "1", "kind": "0"}, {"rude": 0, "kind": 0}]
    labels = Labels.of("multi", examples, ("rude", "kind"))
    assert labels.names == ["rude", "kind"]
    np.testing.assert_array_equal(labels.encode(examples, ("rude", "kind")), np.float32([[1, 0], [0, 0]]))


def test_values():
    labels = Labels.of("regression", rows("0.5", 3), ("label",))
    assert (labels.names, labels.outputs) == ([], 1)
    values = labels.encode(rows("0.5", 3), ("label",))
    assert values.dtype == np.float32
    assert values.tolist() == [0.5, 3.0]


@pytest.mark.parametrize(
    ("kind", "train", "valid", "sentence"),
    [
        ("single", ["a", "a"], [], "every row is labelled 'a'; there must be two classes or more"),
        ("single", ["a", "b"], ["c"], r"the label 'c' never occurs in the training data \(it has a, b\)"),
        ("multi", ["a", "b"], [["a", "d"]], "the label 'd' never occurs in the training data"),
        ("multi", ["", ""], [], "no row has a label in the column 'label'"),
        ("regression", ["1", "much"], [], "the label 'much' is not a number"),
    ],
)
def test_labels_that_cannot_be(kind, train, valid, sentence):
    with pytest.raises(UserError, match=sentence):
        Labels.of(kind, rows(*train), ("label",)).encode(rows(*train, *valid), ("label",))


def test_several_columns_are_for_several_classes():
    with pytest.raises(UserError, match=r"--data.label=a,b names 2 columns; --task.kind=single has one label a text"):
        Labels.of("single", rows("x"), ("a", "b"))

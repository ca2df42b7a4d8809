"""Labels as numbers."""

import warnings

import numpy as np
import pytest

from train import UserError
from train.data.labels import Labels, LossFields, class_weights, in_order_of_head, label_checker
from train.tasks.classify.options import Classify


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
    ],
)
def test_labels_that_cannot_be(kind, train, valid, sentence):
    with pytest.raises(UserError, match=sentence):
        Labels.of(kind, rows(*train), ("label",)).encode(rows(*train, *valid), ("label",))


@pytest.mark.parametrize(
    ("kind", "columns", "good", "bad"),
    [
        ("single", "a", ["x", 0, True, 1.5, "0"], ["", "  ", "nan", "NaN", None, {"x": 1}, ["x"]]),
        ("multi", "a", ["", "x,y", ["x", "y"], [], 3], ["nan", {"x": 1}, [["x"]], [None]]),
        ("multi", "ab", ["0", "1", 0, 1, 1.0, True], ["7", 2, -1, "nan", "", None, [1], {"x": 1}, "yes"]),
        (
            "regression",
            "a",
            ["1.5", -3, 0, 1e9],
            ["much", "1_5", "0,5", "nan", "inf", "1e300", 10**400, "", None, [1], {"x": 1}],
        ),
    ],
)
def test_values_that_are_labels(kind, columns, good, bad):
    check = label_checker(kind, columns)
    for label in good:
        check(label)
    for label in bad:
        with pytest.raises(ValueError, match="^the label "):
            check(label)


def test_several_columns_are_for_several_classes():
    with pytest.raises(UserError, match=r"--data.label=a,b names 2 columns; --task.kind=single has one label a text"):
        Labels.of("single", rows("x"), ("a", "b"))


@pytest.mark.parametrize("seed", range(3))
def test_balanced_weights(seed):
    """All classes weigh the same, and a row weighs 1 on average; as scikit-learn says in the parity tier."""
    labels = np.random.default_rng(seed).choice(3, 200, p=[0.7, 0.2, 0.1])
    weights = class_weights("balanced", labels, ["a", "b", "c"])
    totals = [sum(weights[label] for label in labels if label == c) for c in range(3)]
    np.testing.assert_allclose(totals, 200 / 3, rtol=1e-5)
    assert weights[labels].mean() == pytest.approx(1)


@pytest.mark.parity
def test_balanced_weights_of_scikit_learn():
    from sklearn.utils import class_weight

    labels = np.random.default_rng(0).choice(3, 200, p=[0.7, 0.2, 0.1])
    expected = class_weight.compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(class_weights("balanced", labels, ["a", "b", "c"]), expected, rtol=1e-6)


def test_weights_of_classes():
    labels = np.array([0, 1, 1])
    assert class_weights("none", labels, ["a", "b"]) is None
    assert class_weights("1,2.5", labels, ["a", "b"]).tolist() == [1, 2.5]
    with pytest.raises(UserError, match=r"--task.class-weights=1 has 1 weights for 2 classes \(a, b\); write one for"):
        class_weights("1", labels, ["a", "b"])
    for bad in ("1,-1", "0,0", "heavy", "1,", "nan,1"):
        with pytest.raises(ValueError, match="must be none, balanced, or a number for each class"):
            Classify(class_weights=bad)


def test_loss_fields():
    fields = LossFields(np.float32([1, 3]), smoothing=0.1).fields(np.array([1, 0, 1]), np.array([True, True, False]))
    assert {name: field.tolist() for name, field in fields.items()} == {
        "weights": [3, 1, 0],
        "smoothing": [np.float32(0.1)] * 3,
    }
    assert LossFields().fields(np.zeros((2, 4)), np.array([True, False])).keys() == {"weights"}


def columns(names, *values):
    return [dict(zip(names, row, strict=True)) for row in values]


def test_whole_numbers_are_one_class():
    """As tables with empty cells turn 0 and 1 into 0.0 and 1.0."""
    assert Labels.of("single", rows(0, 1, 0.0, 1.0, "0", "1", 2.5, True), ["label"]).names == ["0", "1", "2.5", "true"]


@pytest.mark.parametrize(
    "names",
    [
        ("True", "true"),
        ("1", "1.0"),
        ("01", "1"),
        ("1e3", "1000"),
        ("pos", "pos\u200b"),
        ("a b", "a  b"),
        ("ﬁn", "fin"),
    ],
)
def test_classes_that_may_be_one_are_said(names):
    with pytest.warns(UserWarning, match="count as two; write them in one way if they are one"):
        assert len(Labels.of("single", rows(*names, "x"), ["label"]).names) == 3


def test_classes_of_names_that_are_not_equal_are_not_said():
    big = 2**53
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Labels.of("single", rows("a", "ab", "1", "-1", "1.5", "é", "e", str(big), str(big + 1)), ["label"])


def test_columns_are_classes_by_their_names():
    labels = Labels("multi", ["b", "a"])
    assert labels.encode(columns("ab", (1, 0), (0, 1)), ["a", "b"]).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(UserError, match="the columns a, c are not the classes of the model, b, a; name those with"):
        labels.encode(columns("ac", (1, 0)), ["a", "c"])


@pytest.mark.parametrize(
    ("names", "head", "order", "said"),
    [
        (["a", "b", "c"], ["c", "a", "b"], ["c", "a", "b"], 0),
        (["a", "b"], ["c", "b", "a"], ["c", "b", "a"], 1),
        (["a", "b"], ["x", "y"], ["a", "b"], 0),
        (["a", "b"], [], ["a", "b"], 0),
        ([], ["LABEL_0"], [], 0),
        (["O", "B-X"], ["B-PER", "O"], ["O", "B-X"], 0),
    ],
)
def test_classes_stand_in_the_order_of_the_head(names, head, order, said):
    lines = []
    assert in_order_of_head(names, head, lines.append, "O") == order
    assert len(lines) == said


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        (["a", "c"], "the head of --init lacks the classes b of the data and has c in their place; rename them, or"),
        (["a"], "the head of --init lacks the classes b of the data; rename them, or start a new head with --init-hea"),
    ],
)
def test_a_head_with_some_of_the_classes_is_refused(head, sentence):
    with pytest.raises(UserError, match=sentence):
        in_order_of_head(["a", "b"], head, print)

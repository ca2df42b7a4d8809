"""Roles of tokens, read off batches that are written by hand."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from train.data.fields import Field
from train.lab import roles

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mats".split()
IDS = {word: index for index, word in enumerate(WORDS)}


@pytest.fixture(scope="module")
def tokenizer():
    words = Tokenizer(models.WordLevel(IDS, unk_token="[UNK]"))
    words.add_special_tokens(WORDS[:5])
    return words


def ids(*texts):
    return np.array([[IDS[word] for word in text.split()] for text in texts], np.int32)


def shown(row):
    """Of every text: word/role/target."""
    return {
        name: [f"{place.text}/{place.role}" + f"/{place.target}" * bool(place.target) for place in places]
        for name, places in row.texts.items()
    }


def field(axes, dtype=np.int32, **options):
    return Field(axes, dtype, **options)


TOKENS = field("BT", counts_tokens=True)


def test_hidden_places_of_masked_language_modelling(tokenizer):
    spec = {"tokens": TOKENS, "segments": field("BT"), "where": field("BM"), "targets": field("BM", predicts="V")}
    spec["weights"] = field("BM", np.float32, weighs=True)
    batch = {
        "tokens": ids("[CLS] the [MASK] sat cat [SEP] [PAD]"),
        "segments": np.array([[1, 1, 1, 2, 2, 2, 0]]),
        "where": np.array([[2, 3, 4, 0]]),
        "targets": np.array([[IDS["cat"], IDS["sat"], IDS["mats"], IDS["[CLS]"]]]),
        "weights": np.array([[1.0, 1, 1, 0]]),
    }
    (row,) = roles.RoleReader(spec, tokenizer).rows(batch)
    expected = "[CLS]/special the/text [MASK]/masked/cat sat/target/kept cat/target/mats [SEP]/special [PAD]/padding"
    assert shown(row) == {"tokens": expected.split()}
    assert row.texts["tokens"][3].details == {"place": 3, "id": IDS["sat"], "segments": 2}
    assert roles.shares([row]) == {role: n / 7 for role, n in zip(roles.ROLES, (1, 2, 1, 2, 1), strict=True)}


def test_the_next_token_is_a_target_without_an_arrow(tokenizer):
    """The last target of a document is a mark that does not stand in the row; the first half counts for nothing."""
    spec = {"tokens": TOKENS, "targets": field("BT", predicts="V"), "weights": field("BT", np.float32, weighs=True)}
    batch = {
        "tokens": ids("[SEP] the cat sat [PAD]"),
        "targets": ids("the cat sat [SEP] [PAD]"),
        "weights": np.array([[0.0, 1, 1, 1, 0]]),
    }
    (row,) = roles.RoleReader(spec, tokenizer).rows(batch)
    assert shown(row) == {"tokens": "[SEP]/special the/text cat/target sat/target/[SEP] [PAD]/padding".split()}


def test_the_targets_of_a_translation_belong_to_its_second_text(tokenizer):
    spec = {"tokens": TOKENS, "valid": field("BT"), "target": TOKENS, "targets": field("BT", predicts="V")}
    spec["weights"] = field("BT", np.float32, weighs=True)
    batch = {
        "tokens": ids("the cat [SEP]"),
        "valid": np.array([[1, 1, 1]]),
        "target": ids("[SEP] mats [PAD]"),
        "targets": ids("mats [SEP] [PAD]"),
        "weights": np.array([[1.0, 1, 0]]),
    }
    (row,) = roles.RoleReader(spec, tokenizer).rows(batch)
    assert shown(row) == {
        "tokens": ["the/text", "cat/text", "[SEP]/special"],
        "target": ["[SEP]/special", "mats/target/[SEP]", "[PAD]/padding"],
    }


def test_labels_of_tokens_of_rows_and_of_places(tokenizer):
    names = ("O", "B-LOC")
    tags = {"tokens": TOKENS, "valid": field("BT"), "labels": field("BT", predicts="C")}
    tags["weights"] = field("BT", np.float32, weighs=True)
    batch = {
        "tokens": ids("[CLS] cat on mats"),
        "valid": np.ones((1, 4), int),
        "labels": np.array([[0, 1, 0, 0]]),
        "weights": np.array([[0.0, 1, 1, 0]]),
    }
    (row,) = roles.RoleReader(tags, tokenizer, names).rows(batch)
    assert shown(row) == {"tokens": ["[CLS]/special", "cat/target/B-LOC", "on/target/O", "mats/text"]}

    rows = {
        "tokens": TOKENS,
        "valid": field("BT"),
        "labels": field("B", predicts="C"),
        "starts": field("B", predicts="T"),
    }
    batch = {"tokens": batch["tokens"], "valid": batch["valid"], "labels": np.array([1]), "starts": np.array([3])}
    (row,) = roles.RoleReader(rows, tokenizer, names).rows(batch)
    assert row.values == {"labels": "B-LOC", "starts": 3}
    assert shown(row)["tokens"][-1] == "mats/target/starts"


def test_a_row_of_several_texts(tokenizer):
    spec = {"tokens": field("BnT", counts_tokens=True), "valid": field("BnT")}
    batch = {"tokens": ids("the cat", "on [PAD]")[None], "valid": np.array([[[1, 1], [1, 0]]])}
    (row,) = roles.RoleReader(spec, tokenizer).rows(batch)
    assert shown(row) == {"tokens 0": ["the/text", "cat/text"], "tokens 1": ["on/text", "[PAD]/padding"]}

"""What classes of transformers read: the pictures and texts of batches of this project, in their fields."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from train.data import text_rows
from train.data.text_rows import TextFields
from train.lab.timing.timing import HostBatch

# Padded texts are as long as a multiple of this, which matrix units like (`pad_to_multiple_of` of transformers).
_MULTIPLE = 8

Fields = dict[str, np.ndarray]


class FolderModel(NamedTuple):
    """The class of transformers that trains a kind of model, and how batches become its own; with `group`, its batches
    hold texts of similar lengths."""

    auto_class: str
    batches: Callable[[Sequence[HostBatch], bool], list[Fields]]


def pictures(batches: Sequence[HostBatch], group: bool) -> list[Fields]:
    """pixels [B,h,w,c] -> [B,c,h,w]."""
    return [
        {"pixel_values": np.ascontiguousarray(np.moveaxis(batch["pixels"], -1, 1)), "labels": batch["labels"]}
        for batch in batches
    ]


def pairs(batches: Sequence[HostBatch], group: bool) -> list[Fields]:
    """Sources, what the decoder reads, and what it predicts."""
    names = {"input_ids": "tokens", "decoder_input_ids": "target", "labels": "targets"}
    return [{name: batch[field] for name, field in names.items()} for batch in batches]


def texts(batches: Sequence[HostBatch], group: bool) -> list[Fields]:
    """The texts of packed rows (`train.data.text_rows`), dealt anew to as many batches, which are padded to their
    longest text."""
    names = TextFields()
    longest = max(int(batch["positions"].max()) for batch in batches) + 1
    rows = [text_rows.separated(batch, names, longest) for batch in batches]
    fields = {
        name: np.concatenate([batch[name][batch["rows"] >= 0] for batch in rows])
        for name in ("tokens", "types", "segments", "labels")
    }
    rng = np.random.default_rng(0)
    order = rng.permutation(len(fields["labels"]))
    if group:
        order = order[np.argsort(fields["segments"][order].sum(1), kind="stable")]
    dealt = [_padded(fields, members) for members in np.array_split(order, len(batches))]
    return [dealt[n] for n in rng.permutation(len(dealt))]


def _padded(fields: Mapping[str, np.ndarray], members: np.ndarray) -> Fields:
    """A batch of some texts."""
    valid = fields["segments"][members]
    length = -(-int(valid.sum(1).max()) // _MULTIPLE) * _MULTIPLE
    by_token = {
        "input_ids": fields["tokens"][members],
        "attention_mask": valid,
        "token_type_ids": fields["types"][members],
    }
    width = max(0, length - valid.shape[1])
    return {
        **{name: np.pad(values, ((0, 0), (0, width)))[:, :length] for name, values in by_token.items()},
        "labels": fields["labels"][members],
    }


# By the task of a preset, or the kind of a plain model.
MODELS = {
    "image": FolderModel("AutoModelForImageClassification", pictures),
    "classify": FolderModel("AutoModelForSequenceClassification", texts),
    "seq2seq": FolderModel("AutoModelForSeq2SeqLM", pairs),
}

# The tasks whose presets have a peer.
TASKS = ("image", "classify")

"""The features of a TensorFlow dataset, and their values in plain Python."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tensorflow_datasets.core.features import FeatureConnector, FeaturesDict


def without_media(feature: "FeatureConnector") -> "FeatureConnector | None":
    """A feature without its images, audio and video, which are then not decoded; None if nothing is left."""
    from tensorflow_datasets import features as kinds

    if isinstance(feature, kinds.Image | kinds.Audio | kinds.Video):
        return None
    if isinstance(feature, kinds.FeaturesDict):
        kept = {name: inner for name, member in feature.items() if (inner := without_media(member))}
        if len(kept) == len(feature) and all(kept[name] is member for name, member in feature.items()):
            return feature
        return kinds.FeaturesDict(kept) if kept else None
    if isinstance(feature, kinds.Sequence):
        inner = without_media(feature.feature)
        return feature if inner is feature.feature else inner and type(feature)(inner)
    return feature


def with_encoded_images(feature: "FeaturesDict") -> "FeaturesDict":
    """The members of a FeaturesDict without media, but for images, which stay bytes: a PNG, a JPEG."""
    from tensorflow_datasets import features as kinds

    members = {
        name: kinds.Tensor(shape=(), dtype=np.object_) if isinstance(member, kinds.Image) else without_media(member)
        for name, member in feature.items()
    }
    return kinds.FeaturesDict({name: member for name, member in members.items() if member})


def converter(feature: "FeatureConnector") -> Callable[[Any], Any]:
    """The function that turns a decoded value of a feature into plain Python."""
    from tensorflow_datasets import features as kinds

    if isinstance(feature, kinds.FeaturesDict):
        inner = {name: converter(member) for name, member in sorted(feature.items())}  # TFDS keeps no order
        return lambda value: {name: convert(value[name]) for name, convert in inner.items()}
    if isinstance(feature, kinds.Dataset):
        convert = converter(feature.feature)
        return lambda values: [convert(value) for value in values]
    if isinstance(feature, kinds.Sequence):  # its dictionaries are decoded into a dictionary of arrays
        return converter(feature.feature)
    names = feature.names if isinstance(feature, kinds.ClassLabel) else None
    return functools.partial(_plain, names=names)


def _plain(value: object, names: list[str] | None) -> object:
    """An array, a scalar or bytes -> lists, numbers and text; with `names`, numbers are classes."""
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(member, names) for member in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if names is not None and isinstance(value, int):
        return names[value] if value >= 0 else None
    return value

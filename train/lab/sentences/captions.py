"""Captions of images whose features are given: SentEval's pickles, or arrays beside texts."""

import pickle
from pathlib import Path
from typing import TypedDict

import numpy as np

from train import UserError
from train.lab.sentences.rows import Dataset, SentenceRows, lines, sentence

# What a pickle of arrays may ask for: numpy's own names, of version 1 and 2, and text as bytes.
_ALLOWED = {
    *(
        (module, name)
        for module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
        for name in ("_reconstruct", "scalar", "ndarray", "dtype")
    ),
    ("_codecs", "encode"),
}


class _Pickle(TypedDict):
    """What SentEval's pickles hold: captions by id, the ids of the captions of every image, and its features."""

    captions: dict[int, dict[str, str]]
    image_to_caption_ids: dict[int, list[int]]
    features: np.ndarray


def read_coco(train: Path, dev: Path, test: Path) -> Dataset:
    """SentEval's pickles of features of images, and the first five captions of each."""

    def rows(path: Path) -> SentenceRows:
        data = _read_pickle(path)
        try:
            captions = [
                data["captions"][caption]["cleaned_caption"] + " ."
                for ids in (data["image_to_caption_ids"][image] for image in range(len(data["features"])))
                for caption in ids[:5]
            ]
            features = np.asarray(data["features"], np.float32)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} lacks features, captions or image_to_caption_ids ({error!r}); fetch it again"
            ) from error
        return _captions([sentence(text) for text in captions], features, path)

    return Dataset({"train": rows(train), "dev": rows(dev), "test": rows(test)}, 0)


def read_captions(*paths: Path) -> Dataset:
    """For each part a .txt with five captions of every image, and a .npy with the features of the images [N,D]."""
    parts = {}
    for name, (texts, images) in zip(("train", "dev", "test"), zip(*[iter(paths)] * 2, strict=True), strict=True):
        try:
            features = np.load(images, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise UserError(f"{images} is no whole .npy of features ({error}); make it again") from error
        parts[name] = _captions([sentence(text) for _, text in lines(texts)], features, texts)
    sizes = {rows.images.shape[1] for rows in parts.values() if rows.images is not None}
    if len(sizes) > 1:
        raise UserError(
            f"{paths[1]} and the other features have {sorted(sizes)} numbers an image; they must have as many"
        )
    return Dataset(parts, 0)


def _captions(texts: list[str], features: np.ndarray, path: Path) -> SentenceRows:
    if features.ndim != 2 or len(texts) != 5 * len(features):
        raise UserError(
            f"{path} has {len(texts):,} captions for features {list(features.shape)}; it must have 5 an image"
        )
    return SentenceRows(texts, np.arange(len(texts)) // 5, None, np.asarray(features, np.float32))


class _Unpickler(pickle.Unpickler):
    """Reads plain containers and arrays of numbers, and calls nothing else: a pickle may hold any program."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def _read_pickle(path: Path) -> _Pickle:
    try:
        with path.open("rb") as file:
            return _Unpickler(file, encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, ImportError, IndexError, KeyError) as error:
        raise UserError(f"{path} is no pickle of features and captions ({error}); fetch it again") from error

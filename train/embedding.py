"""`from train.embedding import embed`: texts as vectors, by `train.lab.embedding`."""

from train.lab.embedding import embed

__all__ = ["embed"]

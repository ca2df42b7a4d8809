"""The work of a peer: what `train.bench` writes as JSON, and the process of the peer reads."""

from typing import TypedDict


class PatternShape(TypedDict, total=False):
    """The options of a pattern that peers know."""

    name: str
    window: int


class MixerShape(TypedDict, total=False):
    """The options of a mixer that peers know."""

    name: str
    features: int | None
    pattern: PatternShape


class PlainShape(TypedDict):
    """A plain model, and the sizes of its batches."""

    model: str
    layers: int
    heads: int
    width: int
    ffn: int
    vocab: int
    batch: int
    length: int
    dtype: str
    mixer: MixerShape


class PictureShape(TypedDict):
    """A classifier of pictures in a folder of transformers, and its batches."""

    folder: str
    batch: int
    dtype: str


class Process(TypedDict):
    """What every process is told: cpu | cuda, and whether torch compiles the model."""

    device: str
    compile: bool


class PlainWork(PlainShape, Process):
    """Steps of a plain model."""


class PictureWork(PictureShape, Process):
    """Steps of a classifier of pictures."""


class TokenBatch(TypedDict):
    """Rows of tokens to continue or to translate, and the most tokens to add."""

    rows: list[list[int]]
    max_new_tokens: int


class BeamShape(TypedDict):
    """A beam search of transformers."""

    width: int
    length_penalty: float


class TextShape(TypedDict, total=False):
    """Texts to continue, to translate or to label.

    batches: of tokens
    beam, pad, end: of translations: the search, and the tokens that pad and end them
    texts, batch, length: of labels: a text, or both of a pair; texts at a time; tokens of a row
    """

    batches: list[TokenBatch]
    beam: BeamShape
    pad: int
    end: int
    texts: list[list[str]]
    batch: int
    length: int


class TextWork(TextShape, Process):
    """Passes over texts by the model of a folder; `peer` is --against, `weights` is --weights."""

    folder: str
    peer: str
    weights: str

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
    dropout: float
    mixer: MixerShape


class FolderShape(TypedDict):
    """A model in a folder of transformers, which `auto_class` reads; batches.npz there has its batches, a field of the
    first as `0.input_ids`."""

    folder: str
    auto_class: str
    dtype: str


class Process(TypedDict):
    """What every process is told: cpu | cuda, and whether torch compiles the model."""

    device: str
    compile: bool


class PlainWork(PlainShape, Process):
    """Steps of a plain model."""


class FolderWork(FolderShape, Process):
    """Steps of the model of a folder."""


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
    """Passes over texts by the model of a folder; `peer` is --against, `dtype` that of our side, `weights` is
    --weights."""

    folder: str
    peer: str
    dtype: str
    weights: str

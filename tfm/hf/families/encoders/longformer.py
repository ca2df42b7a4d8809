"""Longformer (Beltagy et al. 2020): RoBERTa with windows, and projections of their own for queries of global tokens.

In transformers, `global_attention_mask` chooses the global tokens of each text. Those of tfm are the first ones, as
many as the field `global_tokens` says, which tfm writes and transformers does not read. Without the field, they are
those that transformers chooses without a mask: the first token for classes of texts, none for states, words and tags.
For answers and choices it takes one of two texts; tfm takes the first token.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, TypeVar

from tfm.catalogue.options.patterns import Global
from tfm.config.mixers import Mixer, Softmax
from tfm.config.model import Config, Kind, Layer
from tfm.hf.families.encoders import bert, roberta
from tfm.hf.families.encoders.roberta import UNUSED_ROWS
from tfm.hf.families.period import period_values
from tfm.hf.family import Family, Reading
from tfm.hf.fields import CODE, UNREAD, Fields, Size, because
from tfm.hf.parameters import HfTensor
from tfm.options.choices import Hint, Range
from tfm.options.dotted import flatten
from tfm.options.json_text import Json
from tfm.params import PyTree

M = TypeVar("M", bound=Mixer | None)

SELF = "longformer.encoder.layer.{}.attention.self"
WINDOW = 512  # transformers' default
TYPES: Mapping[str, Hint] = {
    "attention_window": Size | list[Size],
    "global_tokens": Annotated[int, Range(0, 1 << 24)],
}
# What reads whole texts has a global token, if the folder does not say otherwise.
GLOBAL_HEADS = ("SequenceClassification", "QuestionAnswering", "MultipleChoice")


def read(fields: Fields) -> Reading:
    """The length, without unused rows, and the kinds of layers."""
    architecture = (fields.get("architectures") or [""])[0]
    tokens = fields.get("global_tokens", int(architecture.endswith(GLOBAL_HEADS)))
    values = {"length": fields.get("max_position_embeddings", 512) - UNUSED_ROWS}
    mixers = read_mixers(fields, "num_hidden_layers", tokens)
    if len({*mixers}) == 1:
        values |= flatten(mixers[0], "mixer.")
    else:
        values |= period_values([Layer(mixer=mixer) for mixer in mixers])
    return values, {"max_position_embeddings", "attention_window", "global_tokens"}


def read_mixers(fields: Fields, count: str, tokens: int) -> list[Softmax]:
    """The mixer of every layer, with `tokens` global ones; `count` is the field that says how many layers there are.

    Raises ValueError for windows that transformers refuses.
    """
    layers = fields.get(count, 12)
    windows = fields.get("attention_window", WINDOW)
    windows = [windows] * layers if isinstance(windows, int) else list(windows)
    if len(windows) != layers or any(window % 2 for window in windows):
        raise ValueError(
            f"config.json has attention_window={fields['attention_window']}; "
            f"only an even number, or {layers} even ones for the layers of {count}={layers}, are supported"
        )
    return [Softmax(pattern=Global(window=window, tokens=tokens, projections=True)) for window in windows]


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    fields = {"max_position_embeddings": config.length + UNUSED_ROWS, "pad_token_id": 1}
    return fields | write_windows(config)


def write_windows(config: Config) -> dict[str, Json]:
    """The windows of all layers, a list as transformers writes it, and the number of global tokens."""
    patterns = [_pattern(kind) for kind in config.layer_plan.layers]
    return {
        "attention_window": [pattern.window // 2 * 2 or 2 for pattern in patterns],
        "global_tokens": patterns[0].tokens,
    }


def _pattern(kind: Kind) -> Global:
    """The pattern of a layer; the default where it has another one, which does not fit."""
    pattern = kind.mixer.pattern if isinstance(kind.mixer, Softmax) else None
    return pattern if isinstance(pattern, Global) else Global()


def canonicalize(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The model with even windows."""
    config, params = bert.canonicalize(config, params)
    period = tuple(dataclasses.replace(layer, mixer=even_window(layer.mixer)) for layer in config.period)
    return dataclasses.replace(config, mixer=even_window(config.mixer), period=period), params


def even_window(mixer: M) -> M:
    """A mixer with an even window: half of a window, rounded down, is on either side of a token."""
    if not isinstance(mixer, Softmax) or not isinstance(mixer.pattern, Global) or mixer.pattern.window < 2:
        return mixer
    pattern = dataclasses.replace(mixer.pattern, window=mixer.pattern.window // 2 * 2)
    return dataclasses.replace(mixer, pattern=pattern)


def global_names(path: str, hf_path: str) -> dict[str, str | HfTensor]:
    """The tensors of the projections for queries of global tokens."""
    return {f"{path}.pattern.{name}": f"{hf_path}.{name}_global" for name in ("query", "key", "value")}


LONGFORMER = Family(
    name="longformer",
    prefix="longformer.",
    base=Config(),
    fields=roberta.FIELDS,
    allowed=roberta.ALLOWED,
    ignored=because(CODE, "onnx_export") | because(UNREAD, "attention_mode attention_dilation ignore_attention_mask"),
    types=TYPES,
    read=read,
    write=write,
    canonicalize=canonicalize,
    names=bert.names("longformer")
    | {"encoder.embed.positions": HfTensor("longformer.embeddings.position_embeddings.weight", skip_rows=UNUSED_ROWS)}
    | global_names("encoder.layers.mixer", SELF),
    heads=roberta.heads("longformer", "Longformer"),
    unused=roberta.UNUSED,
    copies=bert.copies("longformer", "lm_head"),
)

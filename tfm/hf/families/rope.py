"""Rotary positions in config.json: the fields of Llama, GPT-NeoX and those after them."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from tfm.catalogue.options.positions.scaling import Llama3, LongRope, Yarn
from tfm.config.positions import Rotary
from tfm.hf.family import Reading
from tfm.hf.fields import Fields
from tfm.options.json_text import Json

T = TypeVar("T")


class _Lengths(NamedTuple):
    """The longest text, and the longest one of training, where config.json says so."""

    longest: int | None
    original: int | None

    def factor(self) -> float:
        """How much longer texts are than those of training."""
        longest, original = (_known("max_position_embeddings", self.longest), _known(_ORIGINAL, self.original))
        return max(1.0, longest / original)


_ORIGINAL = "original_max_position_embeddings"


def read_rotary(fields: Fields) -> Reading:
    """The options of `Rotary` by dotted name, and the fields that say them. Raises ValueError for other types."""
    rope = {**(fields.get("rope_scaling") or {}), **(fields.get("rope_parameters") or {})}
    rope_type = rope.get("rope_type") or rope.get("type") or "default"
    if rope_type != "default" and rope_type not in _READERS:
        raise ValueError(
            f"config.json has rotary positions of type {rope_type}; supported are default, {', '.join(_READERS)}"
        )
    base = fields.get("rope_theta", fields.get("rotary_emb_base", rope.get("rope_theta") or 10_000.0))
    fraction = fields.get("partial_rotary_factor", fields.get("rotary_pct", rope.get("partial_rotary_factor") or 1.0))
    values: dict[str, object] = {
        "position.base": float(base),
        "position.fraction": float(fraction),
        "position.scaling": None,
    }
    if rope_type != "default":
        longest = fields.get("max_position_embeddings")
        lengths = _Lengths(longest, fields.get(_ORIGINAL) or rope.get(_ORIGINAL) or longest)
        values["position.scaling"] = rope_type
        options = _READERS[rope_type](rope, lengths)
        values |= {f"position.scaling.{name}": value for name, value in options.items()}
    used = {
        *("rope_scaling", "rope_parameters", "rope_theta", "rotary_emb_base", "partial_rotary_factor", "rotary_pct"),
        _ORIGINAL,
    }
    return values, used


def _known(name: str, value: T | None) -> T:
    """A field of scaled positions. Raises ValueError where there is none."""
    if value is None or value == []:
        raise ValueError(f"config.json: rope_parameters lacks {name}; add it")
    return value


def _read_linear(rope: Fields, lengths: _Lengths) -> dict[str, object]:
    return {"factor": float(_known("factor", rope.get("factor")))}


def _read_dynamic(rope: Fields, lengths: _Lengths) -> dict[str, object]:
    """transformers counts from `max_position_embeddings` on."""
    return _read_linear(rope, lengths) | {"original_length": _known("max_position_embeddings", lengths.longest)}


def _read_yarn(rope: Fields, lengths: _Lengths) -> dict[str, object]:
    factor = float(rope.get("factor") or lengths.factor())
    attention_factor, scales = rope.get("attention_factor"), (rope.get("mscale"), rope.get("mscale_all_dim"))
    if attention_factor is None and all(scales):
        above, below = (0.1 * scale * math.log(factor) + 1 for scale in scales if scale)
        attention_factor = above / below
    return {
        "factor": factor,
        "original_length": _known(_ORIGINAL, lengths.original),
        "beta_fast": float(rope.get("beta_fast") or 32.0),
        "beta_slow": float(rope.get("beta_slow") or 1.0),
        "attention_factor": attention_factor,
        "truncate": bool(rope.get("truncate", True)),
    }


def _read_longrope(rope: Fields, lengths: _Lengths) -> dict[str, object]:
    return {
        "factor": float(rope.get("factor") or lengths.factor()),
        "original_length": _known(_ORIGINAL, lengths.original),
        "short_factors": ",".join(map(repr, _known("short_factor", rope.get("short_factor")))),
        "long_factors": ",".join(map(repr, _known("long_factor", rope.get("long_factor")))),
        "attention_factor": rope.get("attention_factor"),
    }


def _read_llama3(rope: Fields, lengths: _Lengths) -> dict[str, object]:
    return _read_linear(rope, lengths) | {
        "original_length": _known(_ORIGINAL, lengths.original),
        "low_freq_factor": float(_known("low_freq_factor", rope.get("low_freq_factor"))),
        "high_freq_factor": float(_known("high_freq_factor", rope.get("high_freq_factor"))),
    }


# The options of a scaling by its type: (rope_parameters, lengths) -> options by name.
_READERS: Mapping[str, Callable[[Fields, _Lengths], dict[str, object]]] = {
    "linear": _read_linear,
    "dynamic": _read_dynamic,
    "yarn": _read_yarn,
    "longrope": _read_longrope,
    "llama3": _read_llama3,
}


def rope_parameters(options: Rotary, head_size: int) -> dict[str, Json]:
    """The field `rope_parameters`, without the fraction that is rotated."""
    scaling = options.scaling
    rope: dict[str, Json] = {"rope_type": "default", "rope_theta": options.base}
    if scaling is None:
        return rope
    rope |= {"rope_type": scaling.name, "factor": scaling.factor}
    match scaling:
        case Yarn():
            rope |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow, "truncate": scaling.truncate}
        case LongRope():
            pairs = options.rotary_dim(head_size) // 2
            lengths = scaling.original_length, scaling.original_length + 1
            rope["short_factor"], rope["long_factor"] = (scaling.factors(length, pairs) for length in lengths)
        case Llama3():
            rope |= {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
    if isinstance(scaling, Yarn | LongRope) and scaling.attention_factor is not None:
        rope["attention_factor"] = scaling.attention_factor
    if isinstance(scaling, Yarn | LongRope | Llama3):
        rope[_ORIGINAL] = scaling.original_length
    return rope

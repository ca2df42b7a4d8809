"""Rotary positions in config.json: the fields of Llama, GPT-NeoX and those after them."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from tfm.catalogue.options.positions.scaling import Llama3, LongRope, Yarn
from tfm.config.positions import Rotary
from tfm.hf.facts import agreed
from tfm.hf.family import Reading
from tfm.hf.fields import Fields
from tfm.options.json_text import Json

T = TypeVar("T")
_ORIGINAL = "original_max_position_embeddings"


class _Lengths(NamedTuple):
    """The longest text, and the longest one of training, where config.json says so."""

    longest: int | None
    original: int | None

    def factor(self) -> float:
        """How much longer texts are than those of training."""
        longest, original = (_known("max_position_embeddings", self.longest), _known(_ORIGINAL, self.original))
        return max(1.0, longest / original)


# The objects, and the fields beside them that say the same as one of theirs.
OBJECTS = ("rope_scaling", "rope_parameters")
BESIDE = {
    "rope_theta": ("rope_theta", "rotary_emb_base"),
    "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct"),
    _ORIGINAL: (_ORIGINAL,),
}


def read_rotary(fields: Fields, default: Rotary = Rotary()) -> Reading:  # noqa: B008
    """The options of `Rotary` by dotted name, and the fields that say them. Raises ValueError for other types.

    default: of the family, the base and the fraction of a folder that names none
    """
    rope = _rope(fields)
    rope_type = rope.get("rope_type") or "default"
    if rope_type != "default" and rope_type not in _READERS:
        raise ValueError(
            f"config.json has rotary positions of type {rope_type}; supported are default, {', '.join(_READERS)}; "
            f"correct {' or '.join(name for name in OBJECTS if fields.get(name))}"
        )
    values: dict[str, object] = {
        "position.base": float(rope.get("rope_theta") or default.base),
        "position.fraction": float(rope.get("partial_rotary_factor") or default.fraction),
        "position.scaling": None,
    }
    if rope_type != "default":
        longest = fields.get("max_position_embeddings")
        lengths = _Lengths(longest, rope.get(_ORIGINAL) or longest)
        values["position.scaling"] = rope_type
        options = _READERS[rope_type](rope, lengths)
        values |= {f"position.scaling.{name}": value for name, value in options.items()}
    return values, {*OBJECTS, *(name for names in BESIDE.values() for name in names)}


def _rope(fields: Fields) -> dict[str, Any]:
    """What both objects and the fields beside them say. Raises ValueError where two differ.

    transformers 5 reads `rope_scaling` in place of `rope_parameters`, so that the first must say all that the second
    says.
    """
    objects = {name: {**fields[name]} for name in OBJECTS if fields.get(name)}
    for rope in objects.values():
        rope["rope_type"] = agreed({"rope_type": rope.get("rope_type"), "type": rope.pop("type", None)})
    facts = {}
    for key in dict.fromkeys([*BESIDE, *(key for rope in objects.values() for key in rope)]):
        siblings = {name: fields.get(name) for name in BESIDE.get(key, ())}
        inside = {f"{name}.{key}": rope.get(key) for name, rope in objects.items()}
        facts[key] = agreed(siblings | inside)
        if len(objects) == 2 and agreed(siblings) is None and None in inside.values() and facts[key] is not None:
            (place,) = (place for place, value in inside.items() if value is not None)
            missing = next(place for place, value in inside.items() if value is None)
            raise ValueError(
                f"config.json has {place}={facts[key]!r} and no {missing}; say it in both, or in one object"
            )
    return facts


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


def rope_scaling(rope: Mapping[str, Json]) -> dict[str, Json]:
    """`rope_parameters` as transformers 4 reads it: `rope_theta` stands beside, and plain positions are null.

    So does the length of training, where short and long texts have factors of their own.
    """
    scaling = {name: value for name, value in rope.items() if name not in ("rope_theta", "partial_rotary_factor")}
    fields: dict[str, Json] = {"rope_scaling": None if rope["rope_type"] == "default" else scaling}
    return fields | ({_ORIGINAL: rope[_ORIGINAL]} if rope["rope_type"] == "longrope" else {})

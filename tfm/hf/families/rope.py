"""Rotary positions in config.json: the fields of Llama, GPT-NeoX and those after them."""

from collections.abc import Mapping
from typing import Any

from tfm.config.positions import Rotary


def read_rotary(fields: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The options of `Rotary` by dotted name, and the fields that say them. Raises ValueError for other types."""
    rope = {**(fields.get("rope_scaling") or {}), **(fields.get("rope_parameters") or {})}
    rope_type = rope.get("rope_type") or rope.get("type") or "default"
    if rope_type not in ("default", "linear", "llama3"):
        raise ValueError(
            f"config.json has rotary positions of type {rope_type}; only default, linear and llama3 ones are supported"
        )
    base = fields.get("rope_theta", fields.get("rotary_emb_base", rope.get("rope_theta") or 10_000.0))
    fraction = fields.get("partial_rotary_factor", fields.get("rotary_pct", rope.get("partial_rotary_factor") or 1.0))
    values: dict[str, Any] = {
        "position.base": float(base),
        "position.fraction": float(fraction),
        "position.scaling_factor": 1.0 if rope_type == "default" else float(_required(rope, "factor")),
        "position.low_freq_wavelength": None,
        "position.high_freq_wavelength": None,
    }
    if rope_type == "llama3":
        length = _required(rope, "original_max_position_embeddings")
        values["position.low_freq_wavelength"] = length / _required(rope, "low_freq_factor")
        values["position.high_freq_wavelength"] = length / _required(rope, "high_freq_factor")
    used = {
        "rope_scaling",
        "rope_parameters",
        "rope_theta",
        "rotary_emb_base",
        "partial_rotary_factor",
        "rotary_pct",
    }
    return values, used


def _required(rope: Mapping[str, Any], name: str) -> Any:
    """A field of scaled positions. Raises ValueError where there is none."""
    if rope.get(name) is None:
        raise ValueError(f"config.json: rope_parameters lacks {name}; add it")
    return rope[name]


def rope_parameters(options: Rotary) -> dict[str, Any]:
    """The field `rope_parameters`, without the fraction that is rotated."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": options.base}
    low, high = options.low_freq_wavelength, options.high_freq_wavelength
    if options.scaling_factor > 1:
        rope |= {"rope_type": "linear", "factor": options.scaling_factor}
    if options.scaling_factor > 1 and low is not None and high is not None:
        rope |= {"rope_type": "llama3", "original_max_position_embeddings": round(low)}
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": low / high}
    return rope

"""Which family and architecture hold a model: the first one whose config.json says all that its weights mean."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from tfm.config.layers import Kind, Layer
from tfm.config.model import COMPUTE, Config
from tfm.hf import FAMILIES, family
from tfm.hf.family import Family, HfHead, resolved_fields
from tfm.hf.fields import Fields
from tfm.options.dotted import flatten, override
from tfm.params import PyTree


def match_family(config: Config, params: PyTree, like: Fields) -> tuple[Family, str, Config, PyTree]:
    """The family and architecture that hold a model, and the model as it is written there, which computes the same.

    `like` are fields of config.json: `model_type` and `architectures` narrow the choice. Raises ValueError where there
    is none.
    """
    rejected: list[tuple[int, str]] = []
    for hf_family in [family(like, "like")] if "model_type" in like else FAMILIES.values():
        canonical_config, hf_params = hf_family.canonicalize(config, params)
        shapes = jax.tree.map(jnp.shape, hf_params)
        for architecture, head in hf_family.heads.items():
            if architecture not in (like.get("architectures") or [architecture]):
                continue
            hf_config = without_unread(hf_family, canonical_config, head)
            conflicts = conflicts_of(hf_family, hf_config, architecture)
            if not conflicts and shapes == jax.tree.map(lambda spec: spec.shape, head.of(hf_params).specs(hf_config)):
                return hf_family, architecture, hf_config, hf_params
            rejected.append((len(conflicts), f"{hf_family.name}: {', '.join(conflicts) or 'another head'}"))
    if not rejected:
        raise ValueError(f"{like.get('model_type')} has no architecture {like.get('architectures')}")
    raise ValueError(f"no such folder can hold this model; what does not fit the nearest, {min(rejected)[1]}")


def without_unread(hf_family: Family, config: Config, head: HfHead) -> Config:
    """The configuration, with the base's values of fields that the head does not read.

    These are the pooling, where nothing is predicted of a text, and the activation of a pooler, where there is none and
    no field holds it.
    """
    name, activation = "head.pool_activation", config.head.pool_activation
    is_held = any(field.name == name and field.holds(activation) for field in hf_family.fields.values())
    unread = {} if "pooler" in head.names or is_held else {name: hf_family.base.head.pool_activation}
    return override(
        config, unread | ({"head.pool": hf_family.base.head.pool} if head.kind in ("model", "objects") else {})
    )


def conflicts_of(hf_family: Family, config: Config, architecture: str) -> list[str]:
    """`name=value` of the fields of `Config` that a folder of this family cannot hold."""
    head = hf_family.heads[architecture]
    config = without_unread(hf_family, config, head)
    settable = {field.name for field in hf_family.fields.values()} | set(hf_family.read({})[0]) | set(head.overrides)
    fixed = [
        name
        for name in _differing(_weight_fields(config), _weight_fields(hf_family.base))
        if not any(name == prefix or name.startswith(f"{prefix}.") for prefix in settable)
    ]
    values = resolved_fields(config)
    fields = [field for field in hf_family.fields.values() if field.name in values]
    unsupported = fixed + [field.name for field in fields if not field.holds(values[field.name])]
    if unsupported:
        return [f"{name}={values[name]}" for name in unsupported]
    restored = hf_family.config(hf_family.config_json(config, architecture), head)
    return differences(config, without_unread(hf_family, restored, head))


def differences(config: Config, restored: Config) -> list[str]:
    """`name=value` of the fields that say what weights mean and are others in the restored configuration."""
    values, restored_values = _weight_fields(config), _weight_fields(restored)
    if values == restored_values:
        kinds, restored_kinds = _stack_kinds(config), _stack_kinds(restored)
        for name in kinds:
            if kinds[name] != restored_kinds[name]:
                values, restored_values = (flatten(Layer(*kind[name]), name) for kind in (kinds, restored_kinds))
                break
    return [f"{name}={values[name]}" for name in _differing(values, restored_values)]


def _stack_kinds(config: Config) -> dict[str, Kind]:
    """The kinds of all layers, and of those of the encoder of a translation model, by the beginnings of names."""
    stacks = {"layers": config, "encoder": config.in_encoder()}
    return {f"{stack}.{n}.": kind for stack, model in stacks.items() for n, kind in enumerate(model.layer_plan.layers)}


def _weight_fields(config: Config) -> dict[str, object]:
    """The fields that say what weights mean, except for kinds of layers; sizes are None where that means the same."""
    implied = {
        "encoder.layers": config.layers,
        "encoder.length": config.length,
        "kv_heads": config.heads,
        "head_size": config.width / config.heads,
        "ffn": 4 * config.width,
        "images.activation": config.activation,
        "images.norm_eps": config.norm_eps,
        "images.ffn": 4 * config.images.width if config.images else None,
    }
    for index, before in enumerate(config.stage_configs[:-1]):
        implied |= {f"stages.{index}.{name}": 2 * getattr(before, name) for name in ("width", "heads")}
    values = flatten(
        dataclasses.replace(
            config, prefix=(), period=(Layer(),), encoder=dataclasses.replace(config.encoder, period=())
        )
    )
    return {
        name: None if value == implied.get(name) else value
        for name, value in values.items()
        if name not in (*COMPUTE, "classes", *config.input.ignores)
    }


def _differing(values: Mapping[str, object], restored: Mapping[str, object]) -> list[str]:
    """The names whose restored value differs; the options of another variant are left out."""
    names = [name for name, value in values.items() if name not in restored or restored[name] != value]
    return [name for name in names if not any(name.startswith(f"{slot}.") for slot in names)]

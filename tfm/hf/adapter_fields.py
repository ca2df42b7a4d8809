"""The fields of adapter_config.json: read, refused where they change what is computed, or without a meaning here."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from tfm.hf.fields import CODE, TRAINING, Fields, because
from tfm.options.choices import Hint, Range, check_object
from tfm.options.json_text import Json

# The types of the fields that are read.
TYPES: Mapping[str, Hint] = {
    "r": Annotated[int, Range(1, 1 << 20)],
    "lora_alpha": Annotated[float, Range(0, 1e6)],
    "lora_dropout": Annotated[float, Range(0, 0.999)] | None,
    "use_rslora": bool | None,
    "task_type": str | None,
    "target_modules": str | list[str] | None,
    "exclude_modules": str | list[str] | None,
}

# Fields that would change what is computed, and the values with which they do not.
PLAIN: Mapping[str, tuple[Json, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "layers_to_transform": (None, []),
    "layer_replication": (None, []),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "arrow_config": (None,),
    "kasa_config": (None,),
    "monteclora_config": (None,),
    "use_bdlora": (None, False),
    "use_qalora": (False, None),
    "megatron_config": (None, {}),
    # With others PEFT takes the first values of the updates out of the base.
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva", "mica"),
}

# What changes no result here, and why.
MEANINGLESS: Mapping[str, str] = (
    because(CODE, "auto_mapping inference_mode megatron_core runtime_config")
    | because(TRAINING, "corda_config eva_config loftq_config lora_ga_config velora_config")
    | because("it says where the file is from", "base_model_name_or_path peft_version revision")
    | because("the tensors say it", "ensure_weight_tying fan_in_fan_out modules_to_save")
    | because("it says how a field that is refused is meant", "layers_pattern qalora_group_size")
)


def check_fields(path: Path, fields: Fields) -> Fields:
    """The fields of the file, those that are read in their types.

    Raises ValueError for another type, and for a field that changes what is computed or is unknown.
    """
    fields = {**fields, **check_object(f"{path}: ", fields, TYPES)}
    for name, values in PLAIN.items():
        if fields.get(name, values[0]) not in values:
            raise ValueError(f"{path} has {name}={fields[name]!r}; only {values[0]!r} is supported")
    for name in fields.keys() - TYPES.keys() - PLAIN.keys() - MEANINGLESS.keys():
        if fields[name] not in (None, False, {}, []):
            raise ValueError(f"{path} has {name}={fields[name]!r}, which is unknown; remove it if it changes nothing")
    return fields


def check_modules(path: Path, fields: Fields, modules: Iterable[str]):
    """Raises ValueError for updates of a module that PEFT would leave out, or that a tie adds.

    Without target_modules a folder may hold any.
    """
    targets, excluded = fields.get("target_modules"), fields.get("exclude_modules")
    for module in sorted(modules):
        for name, is_wrong in (
            ("target_modules", targets not in (None, "all-linear") and not _names(targets, module)),
            ("exclude_modules", bool(excluded) and _names(excluded, module)),
        ):
            if is_wrong and fields.get("ensure_weight_tying") and name == "target_modules":
                raise ValueError(_outside(path, "ensure_weight_tying", module))
            if is_wrong:
                raise ValueError(
                    f"{path} has {name}={fields[name]!r}, and the folder updates {module}; correct one of them"
                )


def _names(modules: str | list[str] | None, module: str) -> bool:
    """Whether a pattern matches a module, or a list has its name or the end of it."""
    if isinstance(modules, str):
        return re.fullmatch(modules, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in modules or ())


def check_places(path: Path, fields: Fields, updated: Mapping[str, list[str]]):
    """Raises ValueError for updates of a module that is neither in the layers nor a table of tokens, as of a head.

    updated: the modules by the paths of their parameters
    """
    for place, modules in updated.items():
        if ".layers." not in place and not place.endswith(".embed.tokens"):
            ties = "ensure_weight_tying and " if fields.get("ensure_weight_tying") else ""
            raise ValueError(_outside(path, f"{ties}target_modules", modules[0]))


def _outside(path: Path, names: str, module: str) -> str:
    return (
        f"{path}: {module} has updates by {names}, and is outside of the layers; merge the adapter into its base "
        "(PEFT's merge_and_unload), and give the merged folder as the model"
    )

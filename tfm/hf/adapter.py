"""Adapter folders of PEFT (adapter_config.json, adapter_model.safetensors): low-rank updates of a model's kernels.

For a module of torch, lora_A.weight [r, inputs] is `LowRank.down` and lora_B.weight [outputs, r] `LowRank.up`; for a
table, lora_embedding_A and lora_embedding_B are. Where one tensor holds several kernels (c_attn of GPT-2), the updates
share a module: it reads every `down`, and each `up` writes its part of the outputs.
"""

import dataclasses
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from tfm.config.model import Config
from tfm.hf import FAMILIES
from tfm.hf.adapter_fields import check_fields, check_modules, check_places
from tfm.hf.family import Family, HfHead
from tfm.hf.fields import Fields
from tfm.hf.match import match_family
from tfm.hf.parameters import Leaf, assemble, leaves
from tfm.hf.tensors import read_file, write
from tfm.hf.updates import down_leaf, module_of, untied, up_leaf, update_names
from tfm.low_rank import LowRank, low_rank_base, merge_low_rank
from tfm.models.heads import Tagger
from tfm.options.json_text import Json, read_object
from tfm.params import PyTree

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."

# What PEFT calls what a head predicts.
TASK_TYPES = {
    "classify": "SEQ_CLS",
    "tag": "TOKEN_CLS",
    "span": "QUESTION_ANS",
    "lm": "CAUSAL_LM",
    "seq2seq": "SEQ_2_SEQ_LM",
}

# The tensors of a module that hold `LowRank.down`.
_DOWN = re.compile(r"(.+)\.(?:lora_A\.weight|lora_embedding_A)")


class LowRankOptions(TypedDict):
    """Arguments of `tfm.low_rank_specs`."""

    rank: int
    scale: float
    dropout: float


class Adapter(NamedTuple):
    """An adapter folder.

    fields: of adapter_config.json
    tensors: of the safetensors file, by name without PREFIX
    """

    path: Path
    fields: Fields
    tensors: Mapping[str, np.ndarray]

    @property
    def options(self) -> LowRankOptions:
        """Rank, scale and dropout, by the names of `tfm.low_rank_specs`."""
        rank, alpha = int(self.fields["r"]), float(self.fields.get("lora_alpha", 8))
        stabilized = bool(self.fields.get("use_rslora"))
        dropout = float(self.fields.get("lora_dropout") or 0.0)
        return {"rank": rank, "scale": alpha / (rank**0.5 if stabilized else rank), "dropout": dropout}


def read_adapter(folder: str | Path) -> Adapter:
    """An adapter folder. Raises ValueError where it is damaged, or is of a kind that is not supported."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{folder} has no {CONFIG}; give the folder of an adapter that PEFT saved")
    fields = {"r": 8, **check_fields(folder / CONFIG, read_object(folder / CONFIG))}
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in read_file(folder / TENSORS).items()}
    downs = {match[1]: name for name in tensors if (match := _DOWN.fullmatch(name))}
    check_modules(folder / CONFIG, fields, downs)
    if fields.get("target_modules") is None:
        warnings.warn(f"{folder / CONFIG} has no target_modules; all updates in the folder are read", stacklevel=2)
    for name in downs.values():
        if (rank := len(tensors[name])) != fields["r"]:
            raise ValueError(f"{folder / CONFIG} has r={fields['r']}, and {name} has the rank {rank}; correct r")
    return Adapter(folder, fields, tensors)


def targets_of(adapter: Adapter, config: Config) -> set[str]:
    """The kernels that an adapter of such a model updates. Raises ValueError as `check_places` does."""
    updated = _updated(adapter, config)[1]
    check_places(adapter.path / CONFIG, adapter.fields, updated)
    return {path.rpartition(".")[2] for path in updated}


def _updated(adapter: Adapter, config: Config) -> tuple[Family, dict[str, list[str]]]:
    """The family that has all updated modules, and these by the paths of the parameters in them."""
    modules = {match[1] for name in adapter.tensors if (match := _DOWN.fullmatch(name))}
    for family in FAMILIES.values():
        names = family.names(config) if callable(family.names) else family.names
        patterns = {path: _pattern(entry if isinstance(entry, str) else entry.name) for path, entry in names.items()}
        updated = {path: list(filter(pattern.fullmatch, modules)) for path, pattern in patterns.items()}
        if modules and modules == set().union(*updated.values()):
            return family, {path: members for path, members in updated.items() if members}
    example = ", ".join(sorted(modules)[:3])
    raise ValueError(f"{adapter.path} updates {example or 'nothing'}, which no family that is known here has all of")


def _pattern(module: str) -> re.Pattern[str]:
    """What matches a module of any layer; the name of a table is that of its tensor."""
    return re.compile(re.escape(module.removesuffix(".weight")).replace(r"\{\}", r"\d+"))


def load_adapter(adapter: Adapter, config: Config, params: PyTree) -> PyTree:
    """`params` with the updates of an adapter, and the heads that it holds. Raises ValueError for another base."""
    family, _ = _updated(adapter, config)
    # Heads of tags and of spans may have the same shapes.
    may_be = ("tag", "span") if isinstance(params, Tagger) else ()
    kinds = {kind for kind in may_be if TASK_TYPES[kind] == adapter.fields.get("task_type")}
    names = [name for name, head in family.heads.items() if head.kind in kinds]
    like = {"model_type": family.name, **({"architectures": names} if names else {})}
    _, architecture, *_ = match_family(config, low_rank_base(params), like)
    head = family.heads[architecture]
    table = _leaves(family, head, config)
    used: set[str] = set()

    def load(path, node):
        leaf = table[jax.tree_util.keystr(path, simple=True, separator=".")]
        if isinstance(node, LowRank):
            return _read_update(adapter, leaf, node, used)
        if not set(leaf.names) <= set(adapter.tensors):
            return node
        used.update(leaf.names)
        rows = [leaf.view(_checked(adapter, name, leaf.shape)) for name in leaf.names]
        return _padded(jnp.asarray(_stack(leaf, rows)), node.shape)

    params = jax.tree_util.tree_map_with_path(load, params, is_leaf=lambda node: isinstance(node, LowRank))
    if tie := untied(adapter.tensors, [*table.values()], family, head):
        raise ValueError(
            f"{adapter.path} changes {tie[0]} and not {tie[1]}, which the base ties to it and PEFT unties then; "
            "merge the adapter into its base, or train it with modules_to_save and ensure_weight_tying"
        )
    unused = adapter.tensors.keys() - used
    copies = {copy: name for name, twins in family.copies.items() for copy in twins if name in used}
    for copy in copies.keys() & unused:
        if not np.array_equal(adapter.tensors[copy], adapter.tensors[copies[copy]]):
            both = f"{copies[copy]} and {copy} with different values"
            raise ValueError(f"{adapter.path} has {both}, which the base ties; take a base that does not tie them")
    if unused := unused - copies.keys():
        raise ValueError(f"{adapter.path} has {min(unused)}, which this model lacks; is it an adapter of another base?")
    return params


def _read_update(adapter: Adapter, leaf: Leaf, node: LowRank, used: set[str]) -> LowRank:
    """The updates of all layers of a kernel."""
    rank = node.down.shape[-1]
    lora_a, lora_b = down_leaf(leaf, rank), up_leaf(leaf, rank)
    names = [update_names(leaf, name) for name in leaf.names]
    absent = [name for name, (down, _) in zip(leaf.names, names, strict=True) if down not in adapter.tensors]
    if 0 < len(absent) < len(names):
        raise ValueError(f"{adapter.path} updates {module_of(absent[0])} not, as it does in other layers; all must be")
    used.update(name for pair in names for name in pair)
    downs = [lora_a.view(_checked(adapter, name, lora_a.shape)) for name, _ in names]
    ups = [lora_b.view(_checked(adapter, name, lora_b.shape)) * leaf.tensor.factor for _, name in names]
    down, up = (jnp.asarray(_stack(leaf, rows), jnp.float32) for rows in (downs, ups))
    down = _padded(down, node.down.shape)
    if (name := f"{module_of(leaf.names[0])}.base_layer.weight") in adapter.tensors:  # PEFT keeps tables with updates
        used.add(name)
        base = jnp.asarray(leaf.view(_checked(adapter, name, leaf.shape)), node.base.dtype)
        node = dataclasses.replace(node, base=_padded(base, node.base.shape))
    return dataclasses.replace(node, down=down.astype(node.down.dtype), up=up.astype(node.up.dtype))


def _padded(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """An array with the rows that pad the vocabulary, which are zeros."""
    return jnp.pad(array, [(0, size - unpadded) for size, unpadded in zip(shape, array.shape, strict=True)])


def _checked(adapter: Adapter, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A tensor. Raises ValueError where it is missing or has another shape."""
    tensor = adapter.tensors.get(name)
    if tensor is None or tensor.shape != shape:
        fault = "lacks" if tensor is None else f"has the shape {list(tensor.shape)} in"
        raise ValueError(
            f"{adapter.path}: {fault} {name}, where this model has {list(shape)}; is it an adapter of another base?"
        )
    return np.asarray(tensor, np.float32)


def _stack(leaf: Leaf, rows: list[np.ndarray]) -> np.ndarray:
    return np.stack(rows) if leaf.stacked else rows[0]


def to_adapter(config: Config, params: PyTree, folder: str | Path, base: str, like: Fields) -> Path:
    """Writes the low-rank updates and the head of a model as a folder that PEFT loads over the model in `base`.

    like: fields of config.json that say which family and architecture it is, as for `tfm.to_hf`

    Raises ValueError where no family holds the model, or where it has no updates.
    """
    folder = Path(folder)
    family, architecture, hf_config, _ = match_family(config, merge_low_rank(params), like)
    specs = family.heads[architecture].specs(hf_config)
    if jax.tree.map(jnp.shape, low_rank_base(params)) != jax.tree.map(lambda spec: spec.shape, specs):
        raise ValueError(f"{family.name} keeps this model in another form, over which its updates do not fit")
    head = family.heads[architecture]
    table = _leaves(family, head, config)
    nodes = [
        (table[jax.tree_util.keystr(path, simple=True, separator=".")], node)
        for path, node in jax.tree_util.tree_leaves_with_path(params, is_leaf=lambda node: isinstance(node, LowRank))
    ]
    updates = [(leaf, node) for leaf, node in nodes if isinstance(node, LowRank)]
    if not updates:
        raise ValueError("the model has no low-rank updates; train it with --tune=lora")
    modules = _modules(updates)
    names = [update_names(leaf, name)[0] for name, ((leaf, *_), *_) in modules.items()]
    if tie := untied(names, [*table.values()], family, head):
        raise ValueError(f"PEFT unties {tie[0]} and {tie[1]} where the former has updates; use --merge")
    heads = [(leaf, node) for leaf, node in nodes if not leaf.path.startswith(("encoder.", "decoder."))]
    _check_heads([leaf for leaf, _ in heads], family)
    tensors = {f"{PREFIX}{name}": tensor for name, tensor in _update_tensors(modules)}
    for leaf, values in heads:
        for row, name in enumerate(leaf.names):
            tensors[f"{PREFIX}{name}"] = assemble([(leaf, values, row)])
    fields = _fields(modules, updates[0][1], head.kind, base) | {
        "fan_in_fan_out": not updates[0][0].tensor.transposed,
        "modules_to_save": sorted({module_of(name) for leaf, _ in heads for name in leaf.names}) or None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n")
    write(folder / TENSORS, [(name, array.dtype, array.shape, array.copy) for name, array in tensors.items()])
    return folder


def _check_heads(heads: list[Leaf], family: Family):
    """Raises ValueError for a head that shares a tensor with the base: PEFT keeps whole modules alone."""
    names = {name for leaf in heads for name in leaf.names}
    shared = [name for name in names if name.endswith(".bias") and f"{module_of(name)}.weight" not in names]
    if shared:
        raise ValueError(f"PEFT cannot hold {min(shared)} of {family.name} without the table of the base; use --merge")


# By name of a tensor of the base: the updates of the kernels in it, and the row of each that is this layer's.
Modules = dict[str, list[tuple[Leaf, LowRank, int]]]


def _modules(updates: list[tuple[Leaf, LowRank]]) -> Modules:
    modules: Modules = {}
    for leaf, node in updates:
        for row, name in enumerate(leaf.names):
            modules.setdefault(name, []).append((leaf, node, row))
    return modules


def _update_tensors(modules: Modules) -> Iterator[tuple[str, np.ndarray]]:
    """Names and tensors of all updates."""
    for name, members in modules.items():
        downs, ups = [], []
        for leaf, node, row in members:
            rank = node.down.shape[-1]
            downs.append(assemble([(down_leaf(leaf, rank), node.down, row)]))
            ups.append(assemble([(up_leaf(leaf, rank), node.up, row)]))
        down_name, up_name = update_names(members[0][0], name)
        yield down_name, np.concatenate(downs)
        yield up_name, np.concatenate(ups, 1)


def _fields(modules: Modules, node: LowRank, kind: str, base: str) -> dict[str, Json]:
    """The fields of adapter_config.json. The rank of a module is the sum over its kernels."""
    ranks = {module_of(name): sum(node.down.shape[-1] for _, node, _ in members) for name, members in modules.items()}
    rank = min(ranks.values())
    larger = {name: size for name, size in ranks.items() if size != rank}
    return {
        "peft_type": "LORA",
        "task_type": TASK_TYPES.get(kind, "FEATURE_EXTRACTION"),
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": node.scale * rank,
        "lora_dropout": node.dropout,
        "target_modules": sorted(ranks),
        "rank_pattern": larger,
        "alpha_pattern": {name: node.scale * size for name, size in larger.items()},
        "bias": "none",
        "use_rslora": False,
        "inference_mode": True,
        "init_lora_weights": True,
    }


def _leaves(family: Family, head: HfHead, config: Config) -> dict[str, Leaf]:
    """Every parameter of the base by its path."""
    return {leaf.path: leaf for leaf in leaves(head.specs(config), family.table(config, head))}

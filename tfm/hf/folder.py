"""Hugging Face folders: `from_hf` reads one, `to_hf` writes one that transformers loads. Neither needs torch."""

import json
import shutil
import warnings
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from tfm import params as specs_of
from tfm.config.model import Config
from tfm.hf import FAMILIES, family
from tfm.hf.config import Family, Head
from tfm.hf.flax_layout import weights
from tfm.hf.names import Leaf, entries, leaves
from tfm.hf.tensors import Tensors, write_folder

# What a tokenizer may consist of.
TOKENIZER_FILES = (
    *(
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.txt",
        "vocab.json",
        "merges.txt",
    ),
    *("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "source.spm", "target.spm", "chat_template.jinja"),
)


class Opened(NamedTuple):
    """A folder, not yet read: its config.json, the family and head that it is of, our configuration, and where each parameter stands;
    `fresh` are the paths of those that do not, and start anew."""

    fields: Mapping[str, Any]
    family: Family
    head: Head
    config: Config
    specs: Any
    leaves: list[Leaf]
    tensors: Tensors
    fresh: frozenset[str] = frozenset()


def from_hf(folder: str | Path, mesh: Mesh | None = None) -> tuple[Config, Any]:
    """The configuration and the float32 parameters in a folder: what they are (`MaskedLM`, `Classifier`, `Tagger`, `CausalLM`, `Seq2Seq`)
    depends on the architecture that config.json names.

    With a mesh, each device reads its own part. Raises ValueError, in one sentence and before anything is allocated, for what is missing,
    damaged or not supported; warns of fields of config.json that change nothing here.
    """
    opened = open_folder(folder)
    return opened.config, load(opened, mesh)


def open_folder(folder: str | Path, fields: Mapping[str, Any] | None = None, fresh: Iterable[str] = ()) -> Opened:
    """Checks everything that can be checked without reading weights. Raises ValueError as `from_hf` does.

    fields: instead of those of config.json: another head, or more classes
    fresh: "missing", "other shape": parameters of a head, of which the folder has none or others, are to start anew
    """
    fields = read_config(Path(folder)) if fields is None else fields
    kind = family(fields, folder)
    head = kind.heads[kind.architecture(fields)]
    config = kind.config(fields, head)
    specs = head.specs(config)
    tensors = weights(folder)
    found = [_named(leaf, kind.prefix, tensors) for leaf in leaves(specs, kind.table(config, head))]
    anew = _fresh(found, tensors, fresh, folder)
    _check(found, anew, tensors, kind, folder)
    return Opened(fields, kind, head, config, specs, found, tensors, anew)


def read_config(folder: Path) -> dict[str, Any]:
    """The fields of config.json. Raises ValueError where there is none."""
    path = folder / "config.json"
    if not path.is_file():
        what = "does not exist" if not folder.exists() else "has no config.json"
        raise ValueError(
            f"{folder} {what}; give the folder of a model that was saved with save_pretrained or downloaded whole"
        )
    try:
        fields = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); download it again") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{path} holds no fields; download it again")
    return fields


def _named(leaf: Leaf, prefix: str, tensors: Tensors) -> Leaf:
    """The leaf with the names that this folder uses: without the family's prefix, or gamma and beta for the parts of a norm, as older
    folders have it."""
    name = leaf.theirs.name
    last = {"weight": "gamma", "bias": "beta"}.get(name.rpartition(".")[2], "")
    for known in (name, name.removeprefix(prefix), leaf.theirs.other):
        for other in (known, f"{known.rpartition('.')[0]}.{last}"):
            if other.replace("{}", str(leaf.theirs.first)) in tensors:
                return leaf._replace(theirs=leaf.theirs._replace(name=other))
    return leaf


def _fresh(found: list[Leaf], tensors: Tensors, allowed: Iterable[str], folder: str | Path) -> frozenset[str]:
    """The parameters of a head that start anew, which a warning names."""
    head = [leaf for leaf in found if not leaf.path.startswith(("encoder.", "decoder."))]
    missing = [leaf for leaf in head if "missing" in allowed and leaf.names[0] not in tensors]
    other = [leaf for leaf in head if leaf.names[0] in tensors and tensors.shape(leaf.names[0]) != leaf.shape]
    anew = missing + (other if "other shape" in allowed else [])
    if anew:
        names = _some(leaf.names[0] for leaf in anew)
        warnings.warn(
            f"{folder} has no such {names}: they start anew, so train the model before you rely on it", stacklevel=4
        )
    return frozenset(leaf.path for leaf in anew)


def _check(found: list[Leaf], anew: frozenset[str], tensors: Tensors, kind: Family, folder: str | Path):
    """Raises ValueError where a tensor is missing or has another shape; warns where one is left over."""
    wanted = {name: leaf.shape for leaf in found if leaf.path not in anew for name in leaf.names}
    known = {name for leaf in found for name in leaf.names}
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise ValueError(
            f"{folder} lacks {_some(missing)}; config.json promises them, so download the folder again or correct it"
        )
    wrong = [
        f"{name} of shape {tensors.shape(name)} instead of {shape}"
        for name, shape in wanted.items()
        if tensors.shape(name) != shape
    ]
    if wrong:
        raise ValueError(f"{folder} has {_some(wrong)}; config.json and the weights are not of the same model")
    left = [name for name in tensors if name not in known and not kind.knows(name)]
    if left:
        warnings.warn(f"{folder} also has {_some(left)}, which this model does not use", stacklevel=4)


def _some(names: Iterable[str]) -> str:
    """The first few of some names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def load(opened: Opened, mesh: Mesh | None = None, seed: int = 0) -> Any:
    """The parameters, one after the other: besides them, no more than one is in memory. What starts anew depends on the seed."""
    shardings = specs_of.shardings(opened.specs, mesh) if mesh else None
    places = jax.tree.leaves(shardings) if mesh else [None] * len(opened.leaves)

    def read(leaf, place):
        if leaf.path in opened.fresh:
            return leaf.spec.init(
                jax.random.fold_in(jax.random.key(seed), zlib.crc32(leaf.path.encode())), leaf.spec.shape, place
            )
        return _read(leaf, opened.tensors, place)

    found = [read(leaf, place) for leaf, place in zip(opened.leaves, places, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(opened.specs), found)


def _read(leaf: Leaf, tensors: Tensors, sharding) -> jax.Array:
    """One parameter, on one device or on those of a sharding."""
    part = lambda index: _part(leaf, tensors, index)
    if sharding is None:
        found = jax.device_put(part((slice(None),) * len(leaf.spec.shape)))  # jnp.asarray would copy
    else:
        found = jax.make_array_from_callback(leaf.spec.shape, sharding, part)
    return found.block_until_ready()


def _part(leaf: Leaf, tensors: Tensors, index: tuple[slice, ...]) -> np.ndarray:
    """The part of a parameter that one device holds, float32; rows that pad the vocabulary are zeros."""
    bounds = [each.indices(size)[:2] for each, size in zip(index, leaf.spec.shape, strict=True)]
    part = _empty(tuple(stop - start for start, stop in bounds), zeros=bool(leaf.spec.padding))
    layers = range(*bounds[0]) if leaf.stacked else range(1)
    inner = tuple(slice(*each) for each in bounds[leaf.stacked :])

    def copy(number: int, layer: int):
        view = leaf.view(tensors.view(leaf.names[layer]))[inner]
        target = part[number] if leaf.stacked else part
        _copy(view, target[tuple(slice(0, size) for size in view.shape)])
        tensors.release(leaf.names[layer])

    if part.nbytes < 1 << 20 or len(layers) == 1:
        list(map(copy, range(len(layers)), layers))
    else:  # numpy copies without the interpreter's lock
        with ThreadPoolExecutor() as pool:
            list(pool.map(copy, range(len(layers)), layers))
    if leaf.theirs.factor != 1:
        part *= np.float32(leaf.theirs.factor)
    return part


def _empty(shape: tuple[int, ...], zeros: bool) -> np.ndarray:
    """A float32 array whose first byte stands where jax can take it over instead of copying it."""
    size = int(np.prod(shape, dtype=np.int64)) * 4
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + size].view(np.float32).reshape(shape)
    if zeros:
        array[...] = 0
    return array


def _copy(source: np.ndarray, target: np.ndarray, block: int = 8):
    """Copies source to target; a transposed source in blocks of columns, which stay in the processor's cache (M31: 2.5
    times faster)."""
    if source.ndim < 2 or source.flags.c_contiguous:
        target[...] = source
        return
    for start in range(0, source.shape[-1], block):
        target[..., start : start + block] = source[..., start : start + block]


def to_hf(
    config: Config,
    params: Any,
    folder: str | Path,
    tokenizer: Any = None,
    like: str | Path | Mapping[str, Any] | None = None,
) -> Path:
    """Writes config.json, model.safetensors (float32; several files above 5 GB) and tokenizer files that transformers loads.

    tokenizer: a `tokenizers.Tokenizer`, or a folder whose tokenizer files are copied
    like: fields of config.json, or a folder with them, that the model came from: they say which family and architecture it is, and what
        this configuration does not know (id2label, special tokens). By default, the first family that can hold the model.

    Raises ValueError where no family can, naming what it cannot hold.
    """
    folder, given = Path(folder), like if isinstance(like, Mapping) else read_config(Path(like)) if like else {}
    kind, architecture, config, params = fit(config, params, given)
    head = kind.heads[architecture]
    fields = {**kind.config_json(config, architecture), "dtype": "float32", **_others(config, given, kind)}
    found = leaves(head.specs(config), kind.table(config, head))
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, entries(found, params))
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    if hasattr(tokenizer, "save"):
        tokenizer.save(str(folder / "tokenizer.json"))
    elif tokenizer is not None:
        for name in TOKENIZER_FILES:
            if (Path(tokenizer) / name).is_file() and Path(tokenizer) != folder:
                shutil.copy(Path(tokenizer) / name, folder / name)
    return folder


def fit(config: Config, params: Any, given: Mapping[str, Any]) -> tuple[Family, str, Config, Any]:
    """The family and architecture that are asked for, or the first that can hold the model; and the model as it stands there, which
    computes the same. Raises ValueError where there is none."""
    found: list[str] = []
    for kind in [family(given, "like")] if "model_type" in given else FAMILIES.values():
        other, theirs = kind.adapt(config, params)
        structure = jax.tree.map(jnp.shape, theirs)
        for name, head in kind.heads.items():
            if name not in given.get("architectures", [name]):
                continue
            conflicts = kind.conflicts(other, name)
            if not conflicts and structure == jax.tree.map(lambda spec: spec.shape, head.specs(other)):
                return kind, name, other, theirs
            found.append(f"{kind.name}: {', '.join(conflicts) or 'another head'}")
    nearest = min(found, key=len, default=f"{given.get('model_type')}: nothing is called {given.get('architectures')}")
    raise ValueError(f"no such folder can hold this model; what does not fit the nearest, {nearest}")


def _others(config: Config, given: Mapping[str, Any], kind: Family) -> dict[str, Any]:
    """The fields that our configuration does not know, and those that say the same in another word."""
    known = (
        set(kind.only)
        | set(kind.same)
        | kind.read(given)[1]
        | {"architectures", "transformers_version", "dtype", "torch_dtype"}
    )

    def kept(name: str) -> bool:
        field = kind.fields.get(name)
        if field is None:
            return name not in known
        return field.values is not None and field.values.get(given[name]) == getattr(config, field.ours)

    return {name: given[name] for name in given if kept(name)}

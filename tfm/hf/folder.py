"""Hugging Face folders: `from_hf` reads one, `to_hf` writes one that transformers loads. Neither needs torch."""

import dataclasses
import json
import shutil
import warnings
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.sharding import Mesh, Sharding

from tfm.config.model import Config
from tfm.hf import family, ties
from tfm.hf.family import Family, HfHead, resolved_fields
from tfm.hf.fields import Fields, flat_fields, nested_fields
from tfm.hf.flax_layout import Msgpack
from tfm.hf.gguf_file import gguf_fields, gguf_weights
from tfm.hf.match import match_family
from tfm.hf.parameters import HfTensor, Leaf, counters, entries, leaves, read_parameter
from tfm.hf.promised import Promise, abbreviate, in_head, report
from tfm.hf.quantized import dequantized
from tfm.hf.tensors import Tensors, Weights, gguf_file, write_folder
from tfm.options.json_text import read_object
from tfm.params import PyTree, shardings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What a tokenizer, or a processor of images, may consist of.
TOKENIZER_FILES = tuple(
    """
    tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.txt vocab.json merges.txt
    spiece.model spm.model tokenizer.model sentencepiece.bpe.model source.spm target.spm target_tokenizer.json
    chat_template.jinja preprocessor_config.json video_preprocessor_config.json processor_config.json
    generation_config.json
    """.split()
)


class Opened(NamedTuple):
    """A folder whose weights are not yet read.

    fields: of its config.json
    leaves: its parameters, and the tensors that hold them
    reinitialized: paths of parameters that no tensor holds
    """

    fields: Fields
    family: Family
    head: HfHead
    config: Config
    specs: PyTree
    leaves: list[Leaf]
    tensors: Weights
    reinitialized: frozenset[str] = frozenset()


def from_hf(folder: str | Path, mesh: Mesh | None = None) -> tuple[Config, PyTree]:
    """The configuration and the float32 parameters in a folder.

    The architecture that config.json names says what they are: `MaskedLM`, `Classifier`, `Tagger`, `CausalLM`,
    `Seq2Seq`, `Towers` or `ObjectDetector`. With a mesh, each device reads its own part. Raises ValueError, before
    anything is allocated, for what is missing, damaged or not supported; warns of fields of config.json that change
    nothing here.
    """
    opened = open_folder(folder)
    return opened.config, load(opened, mesh)


def open_folder(
    folder: str | Path,
    fields: Fields | None = None,
    reinitialize: Collection[str] = (),
    hf_family: Family | None = None,
) -> Opened:
    """Checks everything that can be checked without reading weights. Raises ValueError as `from_hf` does.

    fields: instead of those of config.json: another head, or more classes
    reinitialize: which parameters start from new values: "missing head" and "missing", those of a head and all that
        the folder lacks; "other shape", those that it has in another shape
    hf_family: instead of the one that fields name
    """
    folder = Path(folder)
    fields = read_config(folder) if fields is None else fields
    hf_family = hf_family or family(fields, folder)
    head = hf_family.heads[hf_family.architecture(fields)]
    config = hf_family.config(fields, head)
    tensors = open_weights(folder, fields)
    head = head if reinitialize else _present(head, hf_family, tensors)
    config, model_leaves = _tied(config, head, hf_family, tensors, folder, is_fixed=bool(reinitialize))
    specs = head.specs(config)
    reinitialized = _reinitialized(model_leaves, tensors, reinitialize, folder) if reinitialize else frozenset()
    if not _is_promised(model_leaves, reinitialized, tensors, hf_family):
        report(config, model_leaves, reinitialized, tensors, Promise(fields, hf_family, head), folder)
    return Opened(fields, hf_family, head, config, specs, model_leaves, tensors, reinitialized)


def read_config(folder: Path) -> dict[str, Any]:
    """The fields of config.json. Raises ValueError where there is none, and for an adapter beside it: transformers
    reads the adapter's base in the place of the model, and applies the adapter to it."""
    path, adapter, gguf_path = folder / "config.json", folder / "adapter_config.json", gguf_file(folder)
    if gguf_path is not None:
        return gguf_fields(gguf_path, read_object(path) if path.is_file() else {})
    if not path.is_file():
        fault = "does not exist" if not folder.exists() else "has no config.json"
        raise ValueError(
            f"{folder} {fault}; give the folder of a model that was saved with save_pretrained or downloaded whole"
        )
    if adapter.is_file():
        base = read_object(adapter).get("base_model_name_or_path")
        raise ValueError(
            f"{adapter} lies beside a model: transformers reads base_model_name_or_path={base} there, and applies the "
            "adapter to it; put the adapter into a folder of its own and name it with --adapter, or remove the file"
        )
    return read_object(path)


def open_weights(folder: Path, fields: Fields) -> Weights:
    """The weights of a folder: safetensors, or where there are none, those of GGUF or of Flax."""
    if gguf_path := gguf_file(folder):
        return gguf_weights(gguf_path, fields)
    has_safetensors = any(folder.glob("*.safetensors")) or any(folder.glob("*.safetensors.index.json"))
    is_flax = not has_safetensors and any(folder.glob("flax_model.msgpack*"))
    stored = Msgpack(folder) if is_flax else Tensors(folder)
    return dequantized(stored, fields, folder) if fields.get("quantization_config") else stored


def _present(head: HfHead, hf_family: Family, tensors: Weights) -> HfHead:
    """The head of a bare model without a pooler, where the folder has none: no task needs it."""
    entry = head.names.get("pooler")
    if head.kind != "model" or entry is None:
        return head
    module = entry if isinstance(entry, str) else entry.name
    prefixes = tuple(f"{name}." for name in (module, module.removeprefix(hf_family.prefix)))
    return head if any(name.startswith(prefixes) for name in tensors) else head.without("pooler")


def _tied(
    config: Config, head: HfHead, hf_family: Family, tensors: Weights, folder: Path, is_fixed: bool
) -> tuple[Config, list[Leaf]]:
    """The configuration and the leaves, by the names of the folder.

    Where an output that config.json ties has a table of its own, it is read untied, as transformers 5 does, unless the
    model is fixed; some families tie one that is absent. Raises ValueError for other tensors that hold one parameter
    with different values.
    """
    table = hf_family.table(config, head)
    model_leaves = leaves(head.specs(config), table)
    read_leaves = ties.renamed(model_leaves, hf_family, tensors)
    is_absent = hf_family.optional_output and hf_family.optional_output not in tensors
    if is_absent and not (config.tie_embeddings or is_fixed):
        return _tied(dataclasses.replace(config, tie_embeddings=True), head, hf_family, tensors, folder, is_fixed)
    pairs = ties.differing(model_leaves, read_leaves, hf_family, head, tensors)
    if not pairs:
        return config, read_leaves
    first, second = pairs[0]
    fault = f"{folder} has {first} and {second} with different values, and config.json says that they are one parameter"
    outputs = {name for path in ("table", "head.table") for name in _tensor_names(table.get(path))}
    if is_fixed or len(pairs) > 1 or second not in outputs or not config.tie_embeddings:
        raise ValueError(f"{fault}; remove the one that is wrong")
    warnings.warn(f"{fault}; both are read, as with tie_word_embeddings=false", stacklevel=4)
    return _tied(dataclasses.replace(config, tie_embeddings=False), head, hf_family, tensors, folder, is_fixed)


def _tensor_names(entry: str | HfTensor | None) -> tuple[str, ...]:
    """The tensors that an entry of a table names."""
    return (entry.name, entry.fallback_name) if isinstance(entry, HfTensor) else (entry or "",)


def _reinitialized(
    model_leaves: list[Leaf], tensors: Weights, reinitialize: Collection[str], folder: Path
) -> frozenset[str]:
    """The parameters that start from new values, which a warning names."""
    missing: dict[str, str] = {}
    resized: dict[str, str] = {}
    for leaf in model_leaves:
        may_lack = "missing" in reinitialize or ("missing head" in reinitialize and in_head(leaf))
        for name in leaf.names:
            if name not in tensors and may_lack:
                missing[name] = name
            elif name in tensors and "other shape" in reinitialize and tensors.like(name).shape != leaf.shape:
                resized[name] = f"{name} of shape {tensors.like(name).shape} instead of {leaf.shape}"
    for names, reason in ((missing.values(), "has no such {}"), (resized.values(), "has {}; the shapes did not match")):
        if names:
            message = f"{folder} {reason.format(abbreviate(names))}: they start anew"
            warnings.warn(f"{message}, so train the model before you rely on it", stacklevel=4)
    absent = missing.keys() | resized.keys()
    return frozenset(leaf.path for leaf in model_leaves if not absent.isdisjoint(leaf.names))


def _is_promised(model_leaves: list[Leaf], reinitialized: frozenset[str], tensors: Weights, hf_family: Family) -> bool:
    """Whether the tensors are just those of the model, by their names and shapes, and no field says otherwise."""
    names: set[str] = set()
    for leaf in model_leaves:
        names.update(leaf.names)
        for name in leaf.names if leaf.path not in reinitialized else ():
            if name not in tensors or tensors.like(name).shape != leaf.shape or tensors.like(name).dtype.kind in "iub":
                return False
    return not (hf_family.spellings or hf_family.constants or set(tensors) - names)


def load(opened: Opened, mesh: Mesh | None = None, seed: int = 0) -> PyTree:
    """The parameters, read one after the other, so that memory holds no more than one beside them.

    Those that are reinitialized depend on the seed.
    """
    specs = opened.specs
    by_leaf = jax.tree.leaves(shardings(specs, mesh)) if mesh else [None] * len(opened.leaves)
    params = []
    for leaf, sharding in zip(opened.leaves, by_leaf, strict=True):
        if leaf.path in opened.reinitialized:
            params.append(initial_value(leaf, seed, sharding))
        else:
            params.append(read_parameter(leaf, opened.tensors, sharding))
    return jax.tree.unflatten(jax.tree.structure(specs), params)


def initial_value(leaf: Leaf, seed: int, sharding: Sharding | None = None) -> jax.Array:
    """A new value of a parameter, which depends on the seed and on its path."""
    key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(leaf.path.encode()))
    return leaf.spec.init(key, leaf.spec.shape, sharding)


def to_hf(
    config: Config,
    params: PyTree,
    folder: str | Path,
    tokenizer: "Tokenizer | str | Path | None" = None,
    like: str | Path | Fields | None = None,
) -> Path:
    """Writes config.json, model.safetensors (float32; several files above 5 GB) and tokenizer files for transformers.

    tokenizer: a `tokenizers.Tokenizer`, or a folder whose tokenizer files are copied
    like: fields of config.json, or a folder with them, that the model came from. They say which family and architecture
        it is, and what this configuration does not know (id2label, special tokens). By default, the first family that
        can hold the model.

    Raises ValueError where no family can, naming what it cannot hold.
    """
    folder = Path(folder)
    like_fields = _fields(like)
    hf_family, architecture, config, params = match_family(config, params, like_fields)
    head = hf_family.heads[architecture].of(params)
    fields = hf_family.config_json(config, architecture) | {"dtype": "float32"}
    kept_fields = _kept_fields(config, flat_fields(like_fields, hf_family.nested), hf_family)
    fields = nested_fields(flat_fields(fields, hf_family.nested) | kept_fields)
    model_leaves = leaves(head.specs(config), hf_family.table(config, head))
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, [*entries(model_leaves, params), *counters(model_leaves)])
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    if isinstance(tokenizer, str | Path):
        for name in TOKENIZER_FILES:
            if (Path(tokenizer) / name).is_file() and Path(tokenizer) != folder:
                shutil.copy(Path(tokenizer) / name, folder / name)
    elif tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _fields(like: str | Path | Fields | None) -> Fields:
    """The fields of config.json that `to_hf` starts from."""
    if like is None or isinstance(like, Mapping):
        return like or {}
    return read_config(Path(like))


def _kept_fields(config: Config, like: Fields, hf_family: Family) -> dict[str, Any]:
    """The fields of `like` that no configuration knows, and those that say its value in another word."""
    written = (
        set(hf_family.allowed)
        | set(hf_family.must_equal)
        | hf_family.read(like)[1]
        | {"architectures", "transformers_version", "dtype", "torch_dtype", "quantization_config"}
    )
    values = resolved_fields(config)

    def is_kept(name: str) -> bool:
        field = hf_family.fields.get(name)
        if field is None:
            return name not in written
        return field.values is not None and field.values.get(like[name]) == values[field.name]

    return {name: like[name] for name in like if is_kept(name)}

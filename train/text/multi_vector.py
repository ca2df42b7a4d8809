"""Folders of MultiVectorEncoder of sentence-transformers 6: a vector of each token of a text.

modules.json names a Transformer, Dense modules that project its states, a MultiVectorMask that says which tokens score,
and Normalize. sentence_bert_config.json says how queries are filled up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from tfm.config.model import Config
from tfm.hf.tensors import write_folder
from tfm.options.choices import Hint, Range, check_object
from tfm.options.json_text import parse, read_object, read_text
from train.files.strict_json import json_text
from train.text.module_list import MODULES, ModuleEntry, read_modules
from train.text.sentence_transformers import PROMPTS, ROLES
from train.text.transformer_module import read_transformer, transformer_file
from train.text.vector_layers import TOKENS, LinearMap, read_layer, refuse_unknown

_MASK = "MultiVectorMask"
_KINDS = ("Transformer", "Dense", _MASK, "Normalize")

# Fields of a Transformer that are of queries and passages.
_LENGTHS = ("query_length", "document_length", "query_expansion")


@dataclass(frozen=True)
class TokenVectors:
    """How a text becomes vectors of its tokens.

    kernel: the projection of states, float32 [D,C]; what comes out has length 1
    length: tokens that are read of a text, special tokens included; None: as many as the model reads
    skipped: words of passages that do not score
    query_length: tokens of a query, to which shorter ones are filled up; 0: none are
    cuts_queries: whether longer ones are cut at this length
    filler: the token that fills them up; None: [MASK]
    query_prompt, passage_prompt: texts before queries and before passages
    """

    kernel: np.ndarray
    length: int | None = None
    skipped: tuple[str, ...] = ()
    query_length: int = 0
    cuts_queries: bool = False
    filler: str | None = None
    query_prompt: str = ""
    passage_prompt: str = ""


def is_folder(root: Path) -> bool:
    """Whether the library saved a model with a vector of each token, or PyLate did."""
    try:
        if not (root / MODULES).is_file():
            return False
        saved = read_object(root / PROMPTS) if (root / PROMPTS).is_file() else {}
        entries = parse(read_text(root / MODULES), MODULES)
        kinds = [entry.get("type") for entry in entries if isinstance(entry, dict)]
    except (ValueError, TypeError):
        return False
    named = saved.get("model_type") in ("MultiVectorEncoder", "ColBERT")
    return named or any(str(kind).endswith(f".{_MASK}") for kind in kinds)


def read(root: Path, model: Config) -> TokenVectors:
    """The record of a folder. Raises ValueError for a module or a field that is not understood."""
    _refuse_pylate(root / PROMPTS)
    transformer, *modules = read_modules(root, _KINDS)
    kinds = [entry.kind for entry in modules]
    if transformer.kind != "Transformer" or transformer.folder != root or sorted({*kinds}) != sorted(_KINDS[1:]):
        raise ValueError(
            f"{root / MODULES} has modules of type {', '.join([transformer.kind, *kinds])}; a Transformer with "
            f"path='', Dense, {_MASK} and Normalize must stand there"
        )
    if kinds != sorted(kinds, key="Dense".__ne__) or kinds.count(_MASK) != 1:
        raise ValueError(
            f"{root / MODULES} has modules of type {', '.join(kinds)}; all Dense must stand first, and one {_MASK}"
        )
    query_prompt, passage_prompt = _prompts(root / PROMPTS)
    values = read_transformer(root, model, _LENGTHS)
    if values["lower"]:
        raise ValueError(f"{transformer_file(root)}: do_lower_case=true is not done before tokens; remove it")
    skipped = [_skipped(entry.folder / "config.json") for entry in modules if entry.kind == _MASK]
    record = TokenVectors(
        _kernel(modules, model.width), skipped=skipped[0], query_prompt=query_prompt, passage_prompt=passage_prompt
    )
    return _with_lengths(record, transformer_file(root), values["length"], model)


def _kernel(modules: Sequence[ModuleEntry], width: int) -> np.ndarray:
    """The product of all projections, float32 [D,C]. Raises ValueError for one that is no plain product."""
    kernels = []
    for entry in modules:
        layer = read_layer(entry.kind, entry.folder, TOKENS) if entry.kind != _MASK else None
        if not isinstance(layer, LinearMap):
            continue
        if layer.activation != "Identity" or layer.bias.any():
            raise ValueError(
                f"{entry.folder / 'config.json'}: vectors of tokens are products alone here, without activation and "
                f"bias, and it has activation_function={layer.activation}, or bias=true; such a folder cannot be used"
            )
        kernels.append(layer.kernel if layer.residual is None else layer.kernel + layer.residual)
    sizes = [width, *(kernel.shape[1] for kernel in kernels)]
    for size, kernel, entry in zip(sizes, kernels, modules, strict=False):
        if kernel.shape[0] != size:
            raise ValueError(
                f"{entry.folder / 'config.json'}: in_features={kernel.shape[0]}, and what it reads has {size} numbers; "
                "download the folder again"
            )
    return np.ascontiguousarray(reduce(np.matmul, kernels), np.float32)


def _skipped(path: Path) -> tuple[str, ...]:
    """The words that do not score. Raises ValueError for a rule that is not understood."""
    fields = read_object(path) if path.is_file() else {}
    hints: dict[str, Hint] = {"skiplist_words": list[str], "skiplist_tasks": list[str]}
    fields = {name: value for name, value in fields.items() if value is not None}
    refuse_unknown(path, fields, hints)
    values = check_object(f"{path}: ", fields, hints)
    if values.get("skiplist_tasks", ["document"]) != ["document"]:
        raise ValueError(f"{path}: skiplist_tasks={values['skiplist_tasks']} must be ['document']: queries skip none")
    return tuple(values.get("skiplist_words", ()))


def _with_lengths(record: TokenVectors, path: Path, length: int | None, model: Config) -> TokenVectors:
    """The record with the lengths of texts and of queries. Raises ValueError for another way to fill queries
    up, and for queries that are cut elsewhere than passages."""
    fields = read_object(path) if path.is_file() else {}
    size = Annotated[int, Range(1, 1 << 30)]
    hints = {"query_length": size | None, "document_length": size | None}
    values = check_object(f"{path}: ", {name: fields[name] for name in hints if name in fields}, hints)
    of_queries, of_passages = (values.get(name) or length for name in hints)
    _check_sizes(path, of_passages, model)
    expansion = fields.get("query_expansion")
    if expansion is None:
        _check_query_length(path, of_queries, of_passages)
        return replace(record, length=of_passages)
    if not isinstance(expansion, dict):
        raise ValueError(f"{path}: query_expansion={expansion!r} must be an object; download the folder again")
    kinds: dict[str, Hint] = {"strategy": Literal["fixed", "min"], "attend": bool, "token": str | None, "length": size}
    refuse_unknown(path, expansion, kinds)
    filled = check_object(f"{path}: query_expansion.", expansion, kinds)
    if missing := [name for name in ("strategy", "length") if name not in filled]:
        raise ValueError(f"{path}: query_expansion has no {missing[0]}; download the folder again")
    if filled.get("attend"):
        raise ValueError(f"{path}: query_expansion.attend=true: tokens that fill a query up are never read here")
    if filled["strategy"] == "min":
        _check_query_length(path, of_queries, of_passages)
    if of_passages is not None and filled["length"] > of_passages:
        raise ValueError(
            f"{path}: query_expansion.length={filled['length']} is more than the {of_passages} tokens of passages "
            "(document_length, max_seq_length); such a folder cannot be used"
        )
    is_fixed, filler = filled["strategy"] == "fixed", filled.get("token")
    return replace(record, length=of_passages, query_length=filled["length"], cuts_queries=is_fixed, filler=filler)


def _check_sizes(path: Path, length: int | None, model: Config):
    """Raises ValueError for passages of more tokens than the model reads, and of fewer than a row has."""
    name = "document_length, max_seq_length"
    if length is not None and model.max_length is not None and length > model.max_length:
        raise ValueError(f"{path}: passages of {length} tokens ({name}) are longer than the model reads; correct it")
    if length is not None and length < 8:
        raise ValueError(f"{path}: passages of {length} tokens ({name}) are less than 8; such a folder cannot be used")


def _check_query_length(path: Path, of_queries: int | None, of_passages: int | None):
    """Raises ValueError for queries that are cut elsewhere than passages."""
    if of_queries != of_passages:
        raise ValueError(
            f"{path}: query_length={of_queries} differs from the {of_passages} tokens of passages (document_length; "
            "either is max_seq_length, where it is absent); queries are cut there, or where query_expansion has the "
            "strategy fixed"
        )


def _refuse_pylate(path: Path):
    if path.is_file() and read_object(path).get("model_type") == "ColBERT":
        raise ValueError(
            f"{path} was written by PyLate; read the folder with MultiVectorEncoder of sentence-transformers 6, and "
            "save it again"
        )


def _prompts(path: Path) -> tuple[str, str]:
    """The prompts of queries and passages. Raises ValueError for a field that is not understood."""
    fields = read_object(path) if path.is_file() else {}
    hints: dict[str, Hint] = {
        "prompts": dict[str, str | None] | None,
        "default_prompt_name": str | None,
        "similarity_fn_name": Literal["maxsim", "MaxSim"] | None,
        "model_type": Literal["MultiVectorEncoder"],
    }
    refuse_unknown(path, fields, (*hints, "requirements"))
    values = check_object(f"{path}: ", fields, hints)
    prompts = {name: text or "" for name, text in (values.get("prompts") or {}).items()}
    if values.get("default_prompt_name") is not None:
        raise ValueError(
            f"{path}: default_prompt_name={values['default_prompt_name']} stands before texts that are neither queries "
            "nor passages, which are not read here; remove it"
        )
    query, passage = (prompts.get(role, "") for role in ROLES)
    return query, passage


def save(folder: Path, record: TokenVectors):
    """Writes modules.json and the modules beside a model, which lies in the folder with its tokenizer."""
    kinds = (
        *("base.modules.transformer.Transformer", "base.modules.dense.Dense"),
        *(f"multi_vector_encoder.modules.multi_vector_mask.{_MASK}", "base.modules.normalize.Normalize"),
    )
    paths = ["" if index == 0 else f"{index}_{kind.rpartition('.')[2]}" for index, kind in enumerate(kinds)]
    names = dict.fromkeys(("module_input_name", "module_output_name"), TOKENS)
    width, size = record.kernel.shape
    activation = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    contents: dict[str, object] = {
        MODULES: [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{kind}"}
            for index, (path, kind) in enumerate(zip(paths, kinds, strict=True))
        ],
        f"{paths[1]}/config.json": {"in_features": width, "out_features": size} | activation | names,
        f"{paths[2]}/config.json": {"skiplist_words": list(record.skipped), "skiplist_tasks": ["document"]},
        f"{paths[3]}/config.json": names,
        "sentence_bert_config.json": _transformer_fields(record),
        PROMPTS: {
            "model_type": "MultiVectorEncoder",
            "__version__": {},
            "prompts": {"query": record.query_prompt, "document": record.passage_prompt},
            "default_prompt_name": None,
            "similarity_fn_name": "maxsim",
        },
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json_text(content, indent=2) + "\n")
    weight = np.ascontiguousarray(record.kernel.T, np.float32)
    write_folder(folder / paths[1], [("linear.weight", weight.dtype, weight.shape, lambda: weight)])


def _transformer_fields(record: TokenVectors) -> dict[str, object]:
    """What sentence_bert_config.json says."""
    fields: dict[str, object] = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": TOKENS,
    }
    if not record.query_length:
        return fields
    strategy = "fixed" if record.cuts_queries else "min"
    expansion = {"strategy": strategy, "attend": False, "token": record.filler, "length": record.query_length}
    return fields | {"query_expansion": expansion}

"""What sentence-transformers does beside a model of transformers: how a text becomes a vector.

modules.json names the modules in their order: a Transformer, a Pooling, and what follows. One record, `Modules`, says
what they do; `train.embed`, `train.predict` and `--init` ask it.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np

from tfm.config.model import Config
from tfm.options.choices import Hint, Range, check_object
from tfm.options.json_text import parse, read_object, read_text
from train.files.strict_json import json_text
from train.text.module_list import MODULES, leaves_folder, read_entries
from train.text.transformer_module import TRANSFORMER_FILES, read_transformer
from train.text.vector_layers import Normalize, VectorLayer, naming, read_layer, refuse_unknown

PROMPTS, PARTS = "config_sentence_transformers.json", "1_Pooling"

# The prompts of queries and of passages: a folder that lacks one has an empty one, as in the library.
ROLES = ("query", "document")

# Kinds of pooling by their names there, in the order in which several are joined; then by their older fields.
POOLS = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
_OLDER_NAMES = "cls_token max_tokens mean_tokens mean_sqrt_len_tokens weightedmean_tokens lasttoken".split()
_OLDER = {f"pooling_mode_{older}": name for older, name in zip(_OLDER_NAMES, POOLS, strict=True)}

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]


@dataclass(frozen=True)
class Modules:
    """How a text becomes a vector.

    pools: how the states of its tokens do, as `tfm.pool` calls it; the vectors of several are joined
    length: tokens that are read, special tokens included, and the rest is cut off; None: windows of all tokens
    lower: in lower case before it is cut into tokens
    pools_prompt: whether the tokens of a prompt are pooled, too
    layers: what is applied to vectors
    prompts: texts that stand before it, by name; `prompt`: which of them does
    similarity: how vectors are compared
    size: the first numbers of a vector, which are kept; None: all
    source: the file that says all that; "": the task has it
    """

    pools: tuple[str, ...] = ("mean",)
    length: int | None = None
    lower: bool = False
    pools_prompt: bool = True
    layers: tuple[VectorLayer, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    prompt: str | None = None
    similarity: Similarity = "cosine"
    size: int | None = None
    source: str = ""

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Pooled states float32 [N,D] -> vectors float32 [N,d]. Raises ValueError for another D than a module reads."""
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors[:, : self.size].astype(np.float32)

    @property
    def prompt_text(self) -> str:
        """What stands before every text."""
        return self.prompts[self.prompt] if self.prompt else ""

    @property
    def trained_pool(self) -> str | None:
        """The pooling that a run of --task=contrast could have had; None where the modules do more than that.

        The cosine of such a run does not depend on lengths.
        """
        is_plain = all(isinstance(layer, Normalize) for layer in self.layers) and self.size is None
        is_trained = self.pools[0] in ("first", "max", "mean", "last") and len(self.pools) == 1
        return self.pools[0] if is_plain and is_trained and not self.prompt else None

    def __str__(self):
        """The modules as the log names them."""
        parts = [f"{' and '.join(self.pools)} of the states", *map(str, self.layers)]
        parts += [f"texts cut at {self.length} tokens"] if self.length else []
        parts += ["texts in lower case"] if self.lower else []
        parts += [f"{self.size} numbers are kept"] if self.size else []
        without = "" if self.pools_prompt else ", which is not pooled"
        parts += [f"the prompt {self.prompt!r} ({self.prompt_text!r}){without}"] if self.prompt else []
        return ", ".join(parts)


def is_folder(root: Path) -> bool:
    """Whether sentence-transformers saved a folder of modules that are known here."""
    if not (root / MODULES).is_file():
        return False
    try:
        return bool(read_entries(root))
    except ValueError:
        return False


def check_no_parts(root: Path):
    """Raises ValueError where a folder without modules.json has files that need one."""
    for name in (f"{PARTS}/config.json", PROMPTS, *TRANSFORMER_FILES):
        if (root / name).is_file():
            raise ValueError(f"{root} has {name} and no {MODULES}, which says how vectors are made; download it, too")


def transformer_folder(root: Path) -> Path:
    """Where the files of transformers lie: in the folder, or in one in it that the first module names, as in 2020."""
    if not (root / MODULES).is_file():
        return root
    try:
        path = parse(read_text(root / MODULES), MODULES)[0]["path"]
        is_model = not leaves_folder(path) and "model_type" in read_object(root / path / "config.json")
    except (ValueError, AttributeError, TypeError, KeyError, IndexError, OSError):
        return root
    return root / path if is_model else root


def check_model(root: Path, folder: Path):
    """Raises ValueError where the folder that modules.json names for the model has none."""
    if folder != transformer_folder(root):
        raise ValueError(
            f"{root / MODULES}: path={folder.relative_to(root)} of the Transformer has no config.json with a "
            "model_type; correct it, or download the folder again"
        )


def read(root: Path, model: Config) -> Modules:
    """The record of a folder. Raises ValueError for a module or a field that is not understood, and where they differ
    from the model's width and length."""
    transformer, pooling, *rest = read_entries(root)
    check_model(root, transformer.folder)
    fields = _prompts(root)
    with naming("Pooling", pooling.folder):
        pools = _pooling(pooling.folder / "config.json", model)
    layers = (read_layer(*entry) for entry in rest)
    return Modules(
        **read_transformer(transformer.folder, model),
        **pools,
        **fields,
        source=str(root / MODULES),
        layers=tuple(layer for layer in layers if layer is not None),
    )


def copy(root: Path, to: Path):
    """Copies the modules beside a model that is written into `to`; its own files then lie in `to` itself."""
    entries = parse(read_text(root / MODULES), str(root / MODULES))
    for entry in entries[1:]:
        source = root / entry["path"]
        shutil.copytree(source, to / entry["path"]) if source.is_dir() else (to / entry["path"]).mkdir()
    entries = [{**entries[0], "path": ""}, *entries[1:]]
    (to / MODULES).write_text(json_text(entries, indent=2) + "\n")
    paths = [root / PROMPTS, *(transformer_folder(root) / name for name in TRANSFORMER_FILES)]
    for path in paths:
        if path.is_file():
            shutil.copy(path, to / path.name)


def save(folder: Path, width: int, pool: str, length: int, prompts: Mapping[str, str] = MappingProxyType({})):
    """Writes modules.json and the configurations of both modules.

    width: of the vectors
    pool: first | mean | last | max
    length: tokens that are read of a text, special tokens included
    prompts: texts that stand before one, by name
    """
    modules = [("", "Transformer"), (PARTS, "Pooling")]
    contents = {
        MODULES: [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
        f"{PARTS}/config.json": {
            "word_embedding_dimension": width,
            **{older: POOLS[name] == pool for older, name in _OLDER.items()},
            "include_prompt": True,
        },
        TRANSFORMER_FILES[0]: {"max_seq_length": length, "do_lower_case": False},
        PROMPTS: {
            "__version__": {},
            "prompts": dict(prompts),
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json_text(content, indent=2) + "\n")


def _pooling(path: Path, model: Config) -> dict[str, Any]:
    """Kinds of pooling. Raises ValueError where fields differ, or say another width than the model has."""
    if not path.is_file():
        raise ValueError(f"{path} is absent, and {MODULES} names its folder; download it, too")
    fields = read_object(path)
    hints: dict[str, Hint] = {"pooling_mode": str | list[str], "include_prompt": bool}
    hints |= dict.fromkeys(_OLDER, bool) | dict.fromkeys(("embedding_dimension", "word_embedding_dimension"), int)
    refuse_unknown(path, fields, hints)
    values = check_object(f"{path}: ", fields, hints)
    older = {name: flag for flag, name in _OLDER.items() if values.get(flag)}
    modes = values.get("pooling_mode", [*older] or ["mean"])
    modes = [modes] if isinstance(modes, str) else modes
    if not modes or not POOLS.keys() >= set(modes):
        raise ValueError(f"{path}: pooling_mode={modes} must be of {', '.join(POOLS)}")
    if older and set(older) != set(modes):
        flags = ", ".join(older.values())
        raise ValueError(f"{path}: pooling_mode={modes} and the older fields ({flags}) differ; remove one")
    for name in ("embedding_dimension", "word_embedding_dimension"):
        if values.get(name, model.width) != model.width:
            raise ValueError(f"{path}: {name}={values[name]} differs from the width of config.json, {model.width}")
    return {"pools": tuple(POOLS[name] for name in modes), "pools_prompt": values.get("include_prompt", True)}


def _prompts(root: Path) -> dict[str, Any]:
    """Prompts, similarity and size. Raises ValueError for a default prompt that is not there."""
    path = root / PROMPTS
    fields = read_object(path) if path.is_file() else {}
    hints: dict[str, Hint] = {
        "prompts": dict[str, str | None] | None,
        "default_prompt_name": str | None,
        "similarity_fn_name": Similarity | None,
        "truncate_dim": Annotated[int, Range(1, 1 << 30)] | None,
        "model_type": Literal["SentenceTransformer"],
    }
    refuse_unknown(path, fields, (*hints, "requirements"))
    values = check_object(f"{path}: ", fields, hints)
    prompts = dict.fromkeys(ROLES, "") | {name: text or "" for name, text in (values.get("prompts") or {}).items()}
    prompt = values.get("default_prompt_name")
    if prompt is not None and prompt not in prompts:
        raise ValueError(f"{path}: default_prompt_name={prompt} is none of its prompts ({', '.join(prompts)})")
    similarity = values.get("similarity_fn_name") or "cosine"
    return {"prompts": prompts, "prompt": prompt, "similarity": similarity, "size": values.get("truncate_dim")}

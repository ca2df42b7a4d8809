"""The Transformer of a folder of sentence-transformers: how many tokens of a text it reads, and in which case."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from tfm.config.model import Config
from tfm.options.choices import Hint, Range, check_object
from tfm.options.json_text import read_object
from train.text.vector_layers import refuse_unknown

# What earlier versions called the fields of a Transformer.
TRANSFORMER_FILES = tuple(f"sentence_{kind}_config.json" for kind in "bert roberta distilbert camembert albert".split())
TRANSFORMER_FILES += ("sentence_xlm-roberta_config.json", "sentence_xlnet_config.json")


def transformer_file(folder: Path) -> Path:
    """The file of the fields of a Transformer, which may be absent."""
    return next(
        (folder / name for name in TRANSFORMER_FILES if (folder / name).is_file()), folder / TRANSFORMER_FILES[0]
    )


def read_transformer(
    folder: Path, model: Config, read_elsewhere: Collection[str] = (), task: str = "feature-extraction"
) -> dict[str, Any]:
    """Length and case, of the fields of a Transformer; the tokenizer's length, where these name none.

    Raises ValueError for another task, and for a field that is not understood, but for those that are read elsewhere.
    """
    path = transformer_file(folder)
    fields = read_object(path) if path.is_file() else {}
    output, name = _OUTPUTS[task]
    texts = {"method": "forward", "method_output_name": output}
    modalities = fields.get("modality_config", {"text": texts})
    if not isinstance(modalities, dict) or modalities.get("text") != texts:
        refuse_unknown(path, {"modality_config": modalities}, ())
    hints: dict[str, Hint] = {"transformer_task": Literal[task] | None, "module_output_name": Literal[name] | None}
    hints |= {"max_seq_length": Annotated[int, Range(1, 1 << 30)] | None, "do_lower_case": bool | None}
    values = check_object(f"{path}: ", fields, hints)
    filled = {name: value for name, value in fields.items() if value or name not in _EMPTY}
    refuse_unknown(path, filled, {*hints, *_MEANINGLESS, *read_elsewhere})
    length = values.get("max_seq_length")
    if length is None:
        length = min(filter(None, (tokenizer_length(folder), model.max_length)), default=None)
    if length is not None and model.max_length is not None and length > model.max_length:
        raise ValueError(
            f"{path}: max_seq_length={length} is more than the {model.max_length} positions of config.json; correct it"
        )
    return {"length": length, "lower": bool(values.get("do_lower_case"))}


def length_field(folder: Path) -> str:
    """The file and the field that say how many tokens are read."""
    path = transformer_file(folder)
    if path.is_file() and read_object(path).get("max_seq_length") is not None:
        return f"{path}: max_seq_length"
    return f"{folder / 'tokenizer_config.json'}: model_max_length"


def tokenizer_length(folder: Path) -> int | None:
    """The tokens that the tokenizer leaves of a text; None where it cuts nothing, for which transformers says 1e30."""
    path = folder / "tokenizer_config.json"
    length = read_object(path).get("model_max_length") if path.is_file() else None
    return int(length) if isinstance(length, int | float) and 0 < length < 1 << 30 else None


# What a Transformer writes, and its name in what follows, by the task; fields of it that must be empty, and that say
# nothing of vectors.
_OUTPUTS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "sequence-classification": ("logits", "scores"),
}
_EMPTY = (
    *("model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs"),
    *("processing_kwargs", "query_length", "document_length", "query_expansion", "tokenizer_name_or_path"),
)
_MEANINGLESS = ("modality_config", "unpad_inputs", "cache_dir", "backend")

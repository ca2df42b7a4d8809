"""A GGUF file (llama.cpp) in place of config.json and safetensors, read by the package `gguf` (tfm[gguf]).

Tensors become float32 by the names of transformers; the package says what the codes of a type mean. Of models that
llama.cpp calls llama, the rows of queries and keys stand in another order: pairs that turn together are neighbours.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tfm.hf.facts import agreed
from tfm.hf.fields import Fields
from tfm.hf.quantized import Dequantized, Quantized
from tfm.hf.tensors import Weights

FAMILIES = ("llama", "qwen2", "qwen3")
# Fields of config.json by the metadata of a file, whose names begin with that of the family.
FIELDS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
# Names of transformers by those of a file; {} stands for the layer.
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{}.attn_norm": "model.layers.{}.input_layernorm",
    "blk.{}.attn_q": "model.layers.{}.self_attn.q_proj",
    "blk.{}.attn_k": "model.layers.{}.self_attn.k_proj",
    "blk.{}.attn_v": "model.layers.{}.self_attn.v_proj",
    "blk.{}.attn_output": "model.layers.{}.self_attn.o_proj",
    "blk.{}.attn_q_norm": "model.layers.{}.self_attn.q_norm",
    "blk.{}.attn_k_norm": "model.layers.{}.self_attn.k_norm",
    "blk.{}.ffn_norm": "model.layers.{}.post_attention_layernorm",
    "blk.{}.ffn_gate": "model.layers.{}.mlp.gate_proj",
    "blk.{}.ffn_up": "model.layers.{}.mlp.up_proj",
    "blk.{}.ffn_down": "model.layers.{}.mlp.down_proj",
}


def gguf_fields(path: Path, stored: Fields) -> dict[str, Any]:
    """The fields of config.json that a file says, and those of a config.json beside it, which must agree.

    Raises ValueError for models of other families, and for positions that only config.json can say.
    """
    reader = _reader(path)
    family = _value(reader, "general.architecture")
    if family not in FAMILIES:
        raise ValueError(f"{path} is of architecture {family}; of GGUF, read are {', '.join(FAMILIES)}")
    said = {name: _value(reader, f"{family}.{key}") for key, name in FIELDS.items()}
    names = {tensor.name for tensor in reader.tensors}
    scaling = _value(reader, f"{family}.rope.scaling.type")
    if not stored and ("rope_freqs.weight" in names or scaling not in (None, "none")):
        raise ValueError(f"{path} has scaled positions; put the config.json of the model beside it, which says how")
    if said["vocab_size"] is None:
        said["vocab_size"] = next(
            tensor.shape[1].item() for tensor in reader.tensors if tensor.name == "token_embd.weight"
        )
    model_type = stored.get("model_type", family)
    fields = dict(stored) | {"model_type": model_type, "tie_word_embeddings": "output.weight" not in names}
    for name, value in said.items():
        if isinstance(value, float):  # float32 there, float64 here
            value = float(np.format_float_positional(np.float32(value)))
        fields[name] = agreed({name: stored.get(name), f"{name} of {path.name}": value})
    return {name: value for name, value in fields.items() if value is not None}


def gguf_weights(path: Path, fields: Fields) -> Weights:
    """The tensors of a file as float32, by the names of transformers. Raises ValueError for one without a name."""
    reader = _reader(path)
    is_permuted = _value(reader, "general.architecture") == "llama"
    heads = fields["num_attention_heads"]
    kv_heads = fields.get("num_key_value_heads") or heads
    weights = []
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        module, _, last = tensor.name.rpartition(".")
        layer = re.search(r"\d+", module)
        name = NAMES.get(re.sub(r"\d+", "{}", module))
        if name is None:
            raise ValueError(f"{path} has {tensor.name}, which no family of GGUF that is read here has")
        count = {"attn_q": heads, "attn_k": kv_heads}.get(module.rpartition(".")[2]) if is_permuted else None
        name = f"{name.replace('{}', layer[0] if layer else '')}.{last}"
        shape = tuple(int(size) for size in reversed(tensor.shape))
        weights.append(Quantized(name, shape, partial(_array, tensor, shape, count), set()))
    return Dequantized(_Stored(path), weights)


class _Stored(Weights):
    """No tensors but those that are made."""

    def __init__(self, path: Path):
        self.files = [path]

    def release(self, name: str) -> None:
        """Nothing: a tensor is made anew as it is read."""


def _array(tensor: Any, shape: tuple[int, ...], heads: int | None) -> np.ndarray:
    """A tensor as float32; of `heads`, the halves of a head that turn together are brought apart."""
    import gguf

    array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
    if heads is None:
        return array
    return array.reshape(heads, -1, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def _reader(path: Path) -> Any:
    """The reader of a file. Raises ValueError where the package is missing or the file is damaged."""
    try:
        import gguf
    except ImportError:
        raise ValueError(f"{path} is read by the package gguf; install tfm[gguf]") from None
    try:
        return gguf.GGUFReader(path)
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}); download it again") from error


def _value(reader: Any, key: str) -> Any:
    """A value of the metadata, or None."""
    field = reader.fields.get(key)
    return None if field is None else field.contents()

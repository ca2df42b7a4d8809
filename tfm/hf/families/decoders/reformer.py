"""Reformer (Kitaev et al. 2020): reversible layers of local attention and of attention among tokens with one hash.

transformers draws the matrices of hashes anew in every pass, unless `hash_seed` says from where on; a folder without a
seed is read with seed 0. In an encoder its local layers see the last tokens from the first ones, which tfm does not
do, so encoders have layers with hashes alone.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

from tfm.catalogue.options.mixers.clustered import Reformer
from tfm.catalogue.options.positions.absolute import Axial
from tfm.catalogue.options.residuals import Reversible
from tfm.config.inputs import Tokens
from tfm.config.mixers import Mixer, Softmax
from tfm.config.model import Config, Layer
from tfm.config.patterns import Local
from tfm.config.positions import Learned
from tfm.hf.facts import agreed
from tfm.hf.families.period import period_values
from tfm.hf.family import Family, HfField, HfHead, Reading, with_output_bias
from tfm.hf.fields import ACTIVATIONS, CODE, OTHER_LAYERS, TRAINING, Fields, LayerCount, Size, because
from tfm.hf.parameters import HfTensor
from tfm.models.heads import CausalLM
from tfm.options.choices import Hint, Range
from tfm.options.dotted import flatten, override
from tfm.options.json_text import Json
from tfm.params import PyTree

LAYER = "reformer.encoder.layers.{}"
LOCAL, LSH = "local", "lsh"
ATTN_LAYERS = (LOCAL, LSH) * 3
LM = "ReformerModelWithLMHead"
LM_BIAS = HfTensor("lm_head.decoder.bias", fallback_name="lm_head.bias")  # newer versions have both, and add the first
# What tfm has of the fields of layers; the others follow from them.
MIXER = Reformer(rounds=1, across=True, seed=0, bias=False)
NEAR = Softmax(pattern=Local(block=64, neighbours=1), qkv_bias=False, output_bias=False)

Sizes = list[Size]


def read(fields: Fields) -> Reading:
    """Layers, their chunks and hashes, positions, and whether tokens see later ones.

    Raises ValueError for layers that attend in another way.
    """
    chunk = fields.get("lsh_attn_chunk_length") or 64
    first, *second = _buckets(fields, chunk)
    mixer = dataclasses.replace(
        MIXER,
        buckets=first,
        factor=second[0] if second else None,
        rounds=fields.get("num_hashes", 1),
        chunk=chunk,
        seed=fields.get("hash_seed") or 0,
    )
    block, before = fields.get("local_attn_chunk_length", 64), fields.get("local_num_chunks_before", 1)
    layers = _attn_layers(fields, chunk, block)
    local = dataclasses.replace(NEAR, pattern=Local(block=block, neighbours=before))
    kinds = [Layer(mixer=local) if name == LOCAL else Layer() for name in layers]
    values = {"layers": len(layers), "head.causal": fields.get("is_decoder", False)}
    position = flatten(_positions(fields), "position.")
    values |= flatten(mixer, "mixer.") | period_values(kinds) | position | {"position": position.pop("position.name")}
    return values, set(TYPES) - (OF_LOCAL_LAYERS if LOCAL not in layers else set())


def _buckets(fields: Fields, chunk: int) -> Sequence[int]:
    """The values of one hash or two; without the field, those that transformers takes for the longest text."""
    buckets = fields.get("num_buckets")
    if buckets is None:
        length = fields.get("max_position_embeddings", 4096)
        power = max(2, 2 * (length // chunk)).bit_length() - 1
        is_large = 2**power > 2 * max(int((length // chunk) ** 0.5), chunk)
        return [2 ** (power // 2), 2 ** (power - power // 2)] if is_large else [2**power]
    buckets = [buckets] if isinstance(buckets, int) else buckets
    if len(buckets) not in (1, 2) or any(size % 2 for size in buckets):
        raise ValueError(
            f"config.json has num_buckets={buckets}; of reformer, only one or two even numbers are supported"
        )
    return buckets


def _attn_layers(fields: Fields, chunk: int, block: int) -> Sequence[str]:
    """The kind of every layer."""
    layers = fields.get("attn_layers", ATTN_LAYERS)
    if not layers or not set(layers) <= {LOCAL, LSH}:
        raise ValueError(f"config.json has attn_layers={layers}; of reformer, only {LOCAL} and {LSH} are supported")
    if set(layers) == {LOCAL, LSH} and chunk % block:
        raise ValueError(
            f"config.json has local_attn_chunk_length={block} and lsh_attn_chunk_length={chunk}; "
            "of reformer, only multiples are supported"
        )
    is_decoder = fields.get("is_decoder", False)
    if not is_decoder and LOCAL in layers and fields:
        raise ValueError(
            f"config.json has is_decoder=false and {LOCAL} layers, which see the end of a text from its beginning; "
            f"of reformer, only decoders, and encoders with attn_layers={LSH}, are supported"
        )
    if not is_decoder and LM in (fields.get("architectures") or []):
        raise ValueError(f"config.json has is_decoder=false; of reformer, {LM} needs is_decoder=true")
    agreed({"num_hidden_layers": fields.get("num_hidden_layers"), "the number of attn_layers": len(layers)})
    return layers


def _positions(fields: Fields) -> Axial | Learned:
    """Two tables, or one."""
    if not fields.get("axial_pos_embds", True):
        return Learned()
    shape, widths = fields.get("axial_pos_shape", [64, 64]), fields.get("axial_pos_embds_dim", [64, 192])
    width = fields.get("hidden_size", 256)
    if len(shape) != 2 or len(widths) != 2 or sum(widths) != width:
        raise ValueError(
            f"config.json has axial_pos_shape={shape} and axial_pos_embds_dim={widths}; "
            f"of reformer, only two of each are supported, the latter with the sum hidden_size={width}"
        )
    return Axial(rows=shape[0], columns=shape[1], row_width=widths[0])


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    kinds = config.layer_plan.layers
    blocks = [_local(kind.mixer) for kind in kinds]
    local = next((block for block in blocks if block), None) or Local(block=64, neighbours=1)
    mixer = config.mixer if isinstance(config.mixer, Reformer) else MIXER
    return {
        "attn_layers": [LOCAL if block else LSH for block in blocks],
        "num_buckets": mixer.buckets if mixer.factor is None else list(mixer.sizes),
        "num_hashes": mixer.rounds,
        "hash_seed": mixer.seed,
        "num_hidden_layers": config.layers,
        "lsh_attn_chunk_length": mixer.chunk,
        "local_attn_chunk_length": local.block,
        "local_num_chunks_before": local.neighbours,
        "is_decoder": config.head.causal,
        **_write_positions(config),
    }


def _local(mixer: Mixer) -> Local | None:
    """The blocks of a local layer; None for another one."""
    pattern = mixer.pattern if isinstance(mixer, Softmax) else None
    return pattern if isinstance(pattern, Local) else None


def _write_positions(config: Config) -> dict[str, Json]:
    """The fields of positions."""
    position = config.position
    if not isinstance(position, Axial):
        return {"axial_pos_embds": False}
    widths = list(position.widths(config.width))
    return {
        "axial_pos_embds": True,
        "axial_pos_shape": [position.rows, position.columns],
        "axial_pos_embds_dim": widths,
    }


def canonicalize(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The model with the size of the vectors of rows; a language model with causality, and with the bias of its output,
    zeros where it had none."""
    values: dict[str, object] = {}
    if isinstance(params, CausalLM):
        values["head.causal"] = True
        config, params = with_output_bias(config, params)
    if isinstance(config.position, Axial):
        values["position.row_width"] = config.position.widths(config.width)[0]
    return override(config, values), params


def names(root: str) -> dict[str, str | HfTensor]:
    """The tensors of an encoder or a decoder."""
    positions = "reformer.embeddings.position_embeddings"
    return {
        f"{root}.embed.tokens": "reformer.embeddings.word_embeddings.weight",
        f"{root}.embed.positions": f"{positions}.embedding.weight",
        f"{root}.embed.positions.rows": HfTensor(f"{positions}.weights.0", axes="r1u"),
        f"{root}.embed.positions.columns": HfTensor(f"{positions}.weights.1", axes="1cw"),
        f"{root}.layers.residual.mixer": f"{LAYER}.attention.layer_norm",
        f"{root}.layers.residual.feed_forward": f"{LAYER}.feed_forward.layer_norm",
        f"{root}.layers.feed_forward.up": f"{LAYER}.feed_forward.dense.dense",
        f"{root}.layers.feed_forward.down": f"{LAYER}.feed_forward.output.dense",
        f"{root}.layers.mixer.output": f"{LAYER}.attention.output.dense",
        **{f"{root}.layers.mixer.{name}": f"{LAYER}.attention.self_attention.{name}" for name in SOFTMAX},
        f"{root}.layers.mixer.attention.query": f"{LAYER}.attention.self_attention.query_key",
        f"{root}.layers.mixer.attention.value": f"{LAYER}.attention.self_attention.value",
        f"{root}.layers.mixer.attention.output": f"{LAYER}.attention.output.dense",
        f"{root}.norm": "reformer.encoder.layer_norm",
    }


SOFTMAX = ("query", "key", "value")
TYPES: Mapping[str, Hint] = {
    "attn_layers": list[str],
    "is_decoder": bool,
    "axial_pos_embds": bool,
    "axial_pos_shape": Sizes,
    "axial_pos_embds_dim": Sizes,
    "num_buckets": Size | Sizes | None,
    "num_hashes": Size,
    "num_hidden_layers": LayerCount | None,
    "hash_seed": Annotated[int, Range(0, 2**32 - 1)] | None,
    "lsh_attn_chunk_length": Size | None,
    "local_attn_chunk_length": Size,
    "local_num_chunks_before": Annotated[int, Range(0, 1 << 24)],
}
# Without local layers they say nothing.
OF_LOCAL_LAYERS = {"local_attn_chunk_length", "local_num_chunks_before"}

REFORMER = Family(
    name="reformer",
    prefix="reformer.",
    base=Config(
        input=Tokens(token_types=None, norm=False),
        mixer=MIXER,
        residual=Reversible(merge="concatenated"),
        tie_embeddings=False,
    ),
    fields={
        "vocab_size": HfField("vocab", 320),
        "hidden_size": HfField("width", 256),
        "num_attention_heads": HfField("heads", 12),
        "attention_head_size": HfField("head_size", 64),
        "feed_forward_size": HfField("ffn", 512),
        "max_position_embeddings": HfField("length", 4096),
        "hidden_act": HfField("activation", "relu", ACTIVATIONS | {"relu": "relu"}),
        "hidden_dropout_prob": HfField("dropout", 0.05),
        "lsh_attention_probs_dropout_prob": HfField("attn_dropout", 0.0),
        "layer_norm_eps": HfField("norm_eps", 1e-12),
    },
    must_equal={"local_attention_probs_dropout_prob": "lsh_attention_probs_dropout_prob"},
    allowed={
        "pad_token_id": (0,),  # a text is filled up to whole chunks
        "tie_word_embeddings": (False,),
        "lsh_num_chunks_before": (1,),
        "lsh_num_chunks_after": (0,),
        "local_num_chunks_after": (0,),
    },
    absent={
        "hash_seed": "transformers draws other hashes in every pass; here they are those of hash_seed=0",
        "num_buckets": "transformers takes them for the first text that it reads; here they are those of the longest",
    },
    ignored=because(TRAINING, "axial_norm_std")
    | because(CODE, "chunk_size_lm_head")
    | dict.fromkeys(OF_LOCAL_LAYERS, OTHER_LAYERS),
    types=TYPES,
    read=read,
    write=write,
    canonicalize=canonicalize,
    names=names("encoder") | names("decoder"),
    heads={
        LM: HfHead("lm", {"table": "lm_head.decoder.weight", "bias": LM_BIAS}, {"head.output_bias": True}),
        "ReformerModel": HfHead("model"),
        "ReformerForSequenceClassification": HfHead(
            "classify", {"pooler": "classifier.dense", "output": "classifier.out_proj"}
        ),
        "ReformerForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
    },
    unused=r"^lm_head\.bias$|\.(self_)?mask_value_float(16|32)$",
    spare=r"^lm_head\.bias$",  # the bias of the output is lm_head.decoder.bias
)

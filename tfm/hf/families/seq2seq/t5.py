"""T5 (Raffel et al. 2020), and T5 1.1: buckets of distances instead of positions.

Scores of T5 are not divided by the root of the head size: queries here are larger by it.
"""

from tfm.config import positions
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.facts import agreed
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
}
ACTIVATION_PARTS = ("dense_act_fn", "is_gated_act")
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}


def read(fields: Fields) -> Reading:
    """The sizes of heads and of the two stacks, and whether logits are scaled: by default where the output is tied.

    What config.json says of the scale counts before what it says of the tie, as in transformers 5.
    """
    _check_activation(fields)
    layers, width, heads = fields.get("num_layers", 6), fields.get("d_model", 512), fields.get("num_heads", 8)
    head_size, decoder_layers = fields.get("d_kv", 64), fields.get("num_decoder_layers") or layers
    scale_logits = fields.get("scale_decoder_outputs", fields.get("tie_word_embeddings", True))
    values = {
        "layers": decoder_layers,
        "encoder.layers": layers if layers != decoder_layers else None,
        "head_size": head_size if head_size * heads != width else None,
        "head.scale_logits": scale_logits,
    }
    return values, {"num_layers", "num_decoder_layers", "d_kv", "scale_decoder_outputs", *ACTIVATION_PARTS}


def _check_activation(fields: Fields):
    """Raises ValueError where the parts of `feed_forward_proj` that newer folders have say another one."""
    name = fields.get("feed_forward_proj", "relu")
    parts = "gelu_new" if name == "gated-gelu" else name.rpartition("-")[2], name.startswith("gated-")
    for field, part in zip(ACTIVATION_PARTS, parts, strict=True):
        agreed({field: fields.get(field), f"feed_forward_proj={name}, so {field}": part})


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    return {
        "num_layers": config.encoder.layers or config.layers,
        "num_decoder_layers": config.layers,
        "d_kv": config.sizes["H"],
        "scale_decoder_outputs": config.head.scale_logits,
        "is_encoder_decoder": True,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }


def names(config: Config) -> dict[str, str | HfTensor]:
    """The tensors of both stacks."""
    tensors: dict[str, str | HfTensor] = {
        "encoder.embed.tokens": "shared.weight",
        "encoder.norm": "encoder.final_layer_norm",
        "decoder.norm": "decoder.final_layer_norm",
        "table": "lm_head.weight",
    }
    for stack in ("encoder", "decoder"):
        block, layers = f"{stack}.block.{{}}.layer", f"{stack}.layers"
        tensors[f"{stack}.positions.0"] = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        tensors |= _attention(config, f"{layers}.mixer", f"{block}.0.SelfAttention")
        tensors[f"{layers}.residual.mixer"] = f"{block}.0.layer_norm"
        if stack == "decoder":
            tensors |= _attention(config, f"{layers}.cross", f"{block}.1.EncDecAttention")
            tensors[f"{layers}.residual.cross"] = f"{block}.1.layer_norm"
        last = f"{block}.{1 if stack == 'encoder' else 2}"
        tensors |= _feed_forward(config, f"{layers}.feed_forward", f"{last}.DenseReluDense")
        tensors[f"{layers}.residual.feed_forward"] = f"{last}.layer_norm"
    return tensors


def _attention(config: Config, path: str, hf_path: str) -> dict[str, str | HfTensor]:
    """The tensors of self-attention or cross-attention."""
    return {
        f"{path}.query": HfTensor(f"{hf_path}.q", factor=config.sizes["H"] ** 0.5),
        f"{path}.key": f"{hf_path}.k",
        f"{path}.value": f"{hf_path}.v",
        f"{path}.output": f"{hf_path}.o",
    }


def _feed_forward(config: Config, path: str, hf_path: str) -> dict[str, str | HfTensor]:
    """The tensors of a feed-forward layer."""
    gated = config.activation in ("geglu_tanh", "swiglu")
    return {
        f"{path}.up": f"{hf_path}.{'wi_1' if gated else 'wi'}",
        f"{path}.gate": f"{hf_path}.wi_0",
        f"{path}.down": f"{hf_path}.wo",
    }


T5 = Family(
    name="t5",
    prefix="",
    base=Config(
        input=Tokens(token_types=None, norm=False),
        position=positions.T5(),
        residual=PreNorm(),
        norm="rms",
        bias=False,
    ),
    fields={
        "vocab_size": HfField("vocab", 32128),
        "d_model": HfField("width", 512),
        "num_heads": HfField("heads", 8),
        "d_ff": HfField("ffn", 2048),
        "feed_forward_proj": HfField("activation", "relu", ACTIVATIONS),
        "relative_attention_num_buckets": HfField("position.buckets", 32),
        "relative_attention_max_distance": HfField("position.max_distance", 128),
        "dropout_rate": HfField("dropout", 0.1),
        "layer_norm_epsilon": HfField("norm_eps", 1e-6),
        "tie_word_embeddings": HfField("tie_embeddings", True),
    },
    allowed={"is_decoder": (False,)},
    aliases=ALIASES,
    ignored=because(UNREAD, "n_positions"),
    read=read,
    write=write,
    names=names,
    heads={"T5ForConditionalGeneration": HfHead("seq2seq"), "T5WithLMHeadModel": HfHead("seq2seq")},
    unused=r"embed_tokens\.weight$|^lm_head\.weight$|EncDecAttention\.relative_attention_bias",
    copies={"shared.weight": ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")},
    optional_output="lm_head.weight",
    types=dict(zip(ACTIVATION_PARTS, (str, bool), strict=True)),  # null says another activation to transformers
)

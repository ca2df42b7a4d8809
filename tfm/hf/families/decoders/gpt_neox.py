"""GPT-NeoX and Pythia (Black et al. 2022): rotary positions for a part of each head, parallel sublayers."""

from tfm.catalogue.options.residuals import Parallel
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.positions import Rotary
from tfm.hf.families.decoders.bare import bare, in_both
from tfm.hf.families.rope import read_rotary, rope_parameters, rope_scaling
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, Fields
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

LAYER = "gpt_neox.layers.{}"


def joined(part: int) -> HfTensor:
    """Queries, keys or values; the kernel holds all three, head by head."""
    return HfTensor(f"{LAYER}.attention.query_key_value", part=part, parts=3, by_head=True)


def read(fields: Fields) -> Reading:
    """Rotary positions; by default a quarter of each head is rotated."""
    width, heads, head_size = (
        fields.get("hidden_size", 6144),
        fields.get("num_attention_heads", 64),
        fields.get("head_dim"),
    )
    if head_size is not None and head_size * heads != width:
        raise ValueError(
            f"config.json has head_dim={head_size}, and hidden_size={width} of {heads} heads; "
            "of gpt_neox, only hidden_size / num_attention_heads is supported"
        )
    values, used = read_rotary(fields, Rotary(fraction=0.25))
    return values, used | {"head_dim"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    position = config.position
    assert isinstance(position, Rotary)
    rope = rope_parameters(position, config.sizes["H"])
    return {
        "rotary_emb_base": position.base,
        "rotary_pct": position.fraction,
        "rope_parameters": rope | {"partial_rotary_factor": position.fraction},
        **rope_scaling(rope),
    }


GPT_NEOX = Family(
    name="gpt_neox",
    prefix="gpt_neox.",
    base=Config(input=Tokens(token_types=None, norm=False), position=Rotary(), residual=Parallel()),
    fields={
        "vocab_size": HfField("vocab", 50432),
        "hidden_size": HfField("width", 6144),
        "num_hidden_layers": HfField("layers", 44),
        "num_attention_heads": HfField("heads", 64),
        "intermediate_size": HfField("ffn", 24576),
        "hidden_act": HfField("activation", "gelu", ACTIVATIONS),
        "hidden_dropout": HfField("dropout", 0.0),
        "attention_dropout": HfField("attn_dropout", 0.0),
        "max_position_embeddings": HfField("length", 2048),
        "layer_norm_eps": HfField("norm_eps", 1e-5),
        "use_parallel_residual": HfField("residual", True, {True: "parallel", False: "pre"}),
        "tie_word_embeddings": HfField("tie_embeddings", False),
    },
    allowed={"attention_bias": (True,), "is_decoder": (False, True)},
    read=read,
    write=write,
    names=in_both(
        {
            "decoder.embed.tokens": "gpt_neox.embed_in.weight",
            "decoder.layers.mixer.query": joined(0),
            "decoder.layers.mixer.key": joined(1),
            "decoder.layers.mixer.value": joined(2),
            "decoder.layers.mixer.output": f"{LAYER}.attention.dense",
            "decoder.layers.residual.mixer": f"{LAYER}.input_layernorm",
            "decoder.layers.feed_forward.up": f"{LAYER}.mlp.dense_h_to_4h",
            "decoder.layers.feed_forward.down": f"{LAYER}.mlp.dense_4h_to_h",
            "decoder.layers.residual.feed_forward": f"{LAYER}.post_attention_layernorm",
            "decoder.norm": "gpt_neox.final_layer_norm",
            "table": HfTensor("embed_out.weight", fallback_name="lm_head.weight"),
        }
    ),
    heads={"GPTNeoXForCausalLM": HfHead("lm")} | bare("GPTNeoXModel"),
    unused=r"attention\.(masked_)?bias$|rotary_emb\.inv_freq$",
    copies={
        "gpt_neox.embed_in.weight": ("embed_out.weight", "lm_head.weight"),
        "embed_out.weight": ("lm_head.weight",),
    },
)

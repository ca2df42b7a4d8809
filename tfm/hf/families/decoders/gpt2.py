"""GPT-2 (Radford et al. 2019)."""

from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.decoders.bare import bare, in_both
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, CODE, OTHER_HEAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

LAYER = "transformer.h.{}"


def joined(part: int) -> HfTensor:
    """Queries, keys or values; the kernel [in, out] holds all three."""
    return HfTensor(f"{LAYER}.attn.c_attn", part=part, parts=3, transposed=False)


def read(fields: Fields) -> Reading:
    """The size of the feed-forward layer, whose default depends on the width."""
    return {"ffn": fields.get("n_inner") or 4 * fields.get("n_embd", 768)}, {"n_inner"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    return {"n_inner": config.sizes["F"]}


NAMES = in_both(
    {
        "decoder.embed.tokens": "transformer.wte.weight",
        "decoder.embed.positions": "transformer.wpe.weight",
        "decoder.layers.mixer.query": joined(0),
        "decoder.layers.mixer.key": joined(1),
        "decoder.layers.mixer.value": joined(2),
        "decoder.layers.mixer.output": HfTensor(f"{LAYER}.attn.c_proj", transposed=False),
        "decoder.layers.residual.mixer": f"{LAYER}.ln_1",
        "decoder.layers.feed_forward.up": HfTensor(f"{LAYER}.mlp.c_fc", transposed=False),
        "decoder.layers.feed_forward.down": HfTensor(f"{LAYER}.mlp.c_proj", transposed=False),
        "decoder.layers.residual.feed_forward": f"{LAYER}.ln_2",
        "decoder.norm": "transformer.ln_f",
        "table": "lm_head.weight",
    }
)

GPT2 = Family(
    name="gpt2",
    prefix="transformer.",
    base=Config(input=Tokens(token_types=None, norm=False), residual=PreNorm()),
    fields={
        "vocab_size": HfField("vocab", 50257),
        "n_embd": HfField("width", 768),
        "n_layer": HfField("layers", 12),
        "n_head": HfField("heads", 12),
        "n_positions": HfField("length", 1024),
        "activation_function": HfField("activation", "gelu_new", ACTIVATIONS),
        "resid_pdrop": HfField("dropout", 0.1),
        "attn_pdrop": HfField("attn_dropout", 0.1),
        "layer_norm_epsilon": HfField("norm_eps", 1e-5),
        "tie_word_embeddings": HfField("tie_embeddings", True),
    },
    allowed={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    must_equal={"embd_pdrop": "resid_pdrop", "n_ctx": "n_positions"},
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    ignored=because(CODE, "reorder_and_upcast_attn")
    | because(
        OTHER_HEAD, "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout"
    ),
    read=read,
    write=write,
    names=NAMES,
    heads={"GPT2LMHeadModel": HfHead("lm")} | bare("GPT2Model"),
    unused=r"\.attn\.(masked_)?bias$|^lm_head\.weight$",
    copies={"transformer.wte.weight": ("lm_head.weight",)},
)

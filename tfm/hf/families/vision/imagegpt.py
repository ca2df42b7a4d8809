"""ImageGPT (Chen et al. 2020): a GPT-2 that reads the pixels of an image as tokens of a palette."""

from tfm.config.heads import Head
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.decoders import gpt2
from tfm.hf.family import Family, HfField, HfHead
from tfm.hf.fields import ACTIVATIONS, CODE, UNREAD, because

# Of a decoder, and of a classifier, which calls it encoder. The other names are those of GPT-2.
NAMES = {
    name.replace("decoder.", f"{part}."): tensor
    for name, tensor in gpt2.NAMES.items()
    for part in ("decoder", "encoder")
}

IMAGEGPT = Family(
    name="imagegpt",
    prefix="transformer.",
    base=Config(
        input=Tokens(token_types=None, norm=False),
        residual=PreNorm(),
        norm="rms",
        tie_embeddings=False,
        head=Head(pool="mean", dense=False, causal=True, input_only=1),
    ),
    fields={
        "vocab_size": HfField("vocab", 513),
        "n_embd": HfField("width", 512),
        "n_layer": HfField("layers", 24),
        "n_head": HfField("heads", 8),
        "n_positions": HfField("length", 1024),
        "activation_function": HfField("activation", "quick_gelu", {**ACTIVATIONS, "quick_gelu": "quick_gelu"}),
        "resid_pdrop": HfField("dropout", 0.1),
        "attn_pdrop": HfField("attn_dropout", 0.1),
        "layer_norm_epsilon": HfField("norm_eps", 1e-5),
    },
    allowed={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (False,),
    },
    must_equal={"embd_pdrop": "resid_pdrop"},
    ignored=because(CODE, "reorder_and_upcast_attn") | because(UNREAD, "n_ctx"),
    read=gpt2.read,
    write=gpt2.write,
    names=NAMES,
    heads={
        "ImageGPTForCausalImageModeling": HfHead("pixels"),
        "ImageGPTForImageClassification": HfHead("classify_pixels", {"output": "score"}),
    },
    unused=r"\.attn\.(masked_)?bias$|^lm_head\.weight$|^score\.",
)

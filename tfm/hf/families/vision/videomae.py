"""VideoMAE (Tong et al. 2022): a ViT of tubes with fixed sinusoids; it has learned from videos without most tubes."""

from tfm.catalogue.options.frames import Tubes
from tfm.config.heads import Head
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.config.positions import Sinusoidal
from tfm.config.residuals import PreNorm
from tfm.hf.families.vision import vit
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import OTHER_HEAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

ATTENTION = "videomae.encoder.layer.{}.attention.attention"


def read(fields: Fields) -> Reading:
    """The sizes, and what a class is read from: the normalized mean of the tubes, or the first of normalized states."""
    values, used = vit.read_sizes(fields)
    reads_mean = fields.get("use_mean_pooling", True)
    head = {"head.pool": "mean" if reads_mean else "first", "head.pool_norm": reads_mean}
    return values | head | {"residual.final_norm": not reads_mean}, used | {"use_mean_pooling"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    tubes = config.input
    assert isinstance(tubes, Tubes)
    assert isinstance(config.residual, PreNorm)
    height, width, _ = tubes.patches.pixels
    sides = height if height == width else [height, width]
    return {"image_size": sides, "patch_size": tubes.patch, "use_mean_pooling": not config.residual.final_norm}


def _bias(name: str, module: str) -> HfTensor:
    """A bias of attention as folders have it, and as transformers 5 calls it."""
    return HfTensor(f"{ATTENTION}.{name}", fallback_name=f"{ATTENTION}.{module}.bias")


VIDEOMAE = Family(
    name="videomae",
    prefix="videomae.",
    base=Config(
        input=Tubes(cls=False),
        position=Sinusoidal(),
        mixer=Softmax(key_bias=False),
        residual=PreNorm(),
        head=Head(pool="mean", dense=False),
    ),
    fields={name: field for name, field in vit.FIELDS.items() if name != "pooler_act"}
    | {"num_frames": HfField("input.frames", 16), "tubelet_size": HfField("input.tube", 2)},
    allowed={"qv_bias": (True,)},
    types=dict.fromkeys(("image_size", "patch_size"), vit.Pixels | list[vit.Pixels]) | {"use_mean_pooling": bool},
    read=read,
    write=write,
    names=vit.names("videomae")
    | {
        "encoder.embed.projection": HfTensor("videomae.embeddings.patch_embeddings.projection", axes="Dcthw"),
        "encoder.layers.mixer.query.bias": _bias("q_bias", "query"),
        "encoder.layers.mixer.value.bias": _bias("v_bias", "value"),
    },
    heads={
        "VideoMAEModel": HfHead("model"),
        "VideoMAEForVideoClassification": HfHead("classify", {"norm": "fc_norm", "output": "classifier"}),
        "VideoMAEForPreTraining": HfHead("model"),
    },
    unused=r"^(classifier|fc_norm|encoder_to_decoder|decoder)\.|mask_token$|position_embeddings$",
    ignored=because(
        OTHER_HEAD,
        """decoder_hidden_size decoder_intermediate_size decoder_num_attention_heads decoder_num_hidden_layers
        norm_pix_loss""",
    ),
)

"""ViViT (Arnab et al. 2021), model 1: a ViT whose patches have a length in time."""

from tfm.catalogue.options.frames import Tubes
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.vision import vit
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, Fields
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json


def read(fields: Fields) -> Reading:
    """The sizes of frames, and those of tubes, [frames, height, width]."""
    tube = fields.get("tubelet_size", [2, 16, 16])
    if len(tube) != 3:
        raise ValueError(f"config.json has tubelet_size={tube}; it must be [frames, height, width]")
    values, used = vit.read_sizes({"image_size": fields.get("image_size", 224), "patch_size": list(tube[1:])})
    return values | {"input.tube": tube[0]}, used - {"patch_size"} | {"tubelet_size"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    tubes = config.input
    assert isinstance(tubes, Tubes)
    height, width, _ = tubes.patches.pixels
    sides = height if height == width else [height, width]
    return {"image_size": sides, "tubelet_size": [tubes.tube, tubes.patch, tubes.patch]}


VIVIT = Family(
    name="vivit",
    prefix="vivit.",
    base=Config(input=Tubes(), residual=PreNorm()),
    fields=vit.FIELDS
    | {
        "num_frames": HfField("input.frames", 32),
        "hidden_act": HfField("activation", "gelu_fast", ACTIVATIONS),
        "layer_norm_eps": HfField("norm_eps", 1e-6),
    },
    allowed={"qkv_bias": (True,)},
    must_equal={"pooler_output_size": "hidden_size"},
    types={"image_size": vit.Pixels | list[vit.Pixels], "tubelet_size": list[vit.Pixels]},
    read=read,
    write=write,
    names=vit.names("vivit")
    | {"encoder.embed.projection": HfTensor("vivit.embeddings.patch_embeddings.projection", axes="Dcthw")},
    heads={
        "VivitModel": HfHead("model", {"pooler": "vivit.pooler.dense"}),
        "VivitForVideoClassification": HfHead("classify", {"output": "classifier"}, vit.WITHOUT_POOLER),
    },
    unused=r"(^|\.)pooler\.",
)

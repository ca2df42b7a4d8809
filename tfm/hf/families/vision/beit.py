"""BEiT (Bao et al. 2021): a ViT that has learned which visual tokens its masked patches are."""

from tfm.catalogue.options.inputs import Patches
from tfm.catalogue.options.positions.grid import Beit
from tfm.config.heads import Head
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.vision import vit
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import OTHER_HEAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

TABLE = "relative_position_bias.relative_position_bias_table"
FIELDS = {name: field for name, field in vit.FIELDS.items() if name != "pooler_act"} | {
    "vocab_size": HfField("vocab", 8192),
    "use_mask_token": HfField("input.mask_token", False),
    "use_absolute_position_embeddings": HfField("position.absolute", False),
    "use_relative_position_bias": HfField("position.by_layer", False),
    "use_shared_relative_position_bias": HfField("position.shared", False),
    "layer_scale_init_value": HfField("residual.layer_scale", 0.1, zero_is_none=True),
    "drop_path_rate": HfField("drop_path", 0.1),
}


def read(fields: Fields) -> Reading:
    """The sizes, and what a class is read from: the normalized mean of the patches, or [CLS] of normalized states.

    Raises ValueError for images that are no squares, whose tables transformers 5 reads in another order.
    """
    values, used = vit.read_sizes(fields)
    if values["input.image_width"] is not None:
        raise ValueError(f"config.json has image_size={fields['image_size']}; of beit, only squares are supported")
    reads_mean = fields.get("use_mean_pooling", True)
    head = {"head.pool": "mean" if reads_mean else "first", "head.pool_norm": reads_mean}
    return values | head | {"residual.final_norm": not reads_mean}, used | {"use_mean_pooling"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    assert isinstance(config.residual, PreNorm)
    return vit.write_sizes(config) | {"use_mean_pooling": not config.residual.final_norm}


BEIT = Family(
    name="beit",
    prefix="beit.",
    base=Config(
        input=Patches(),
        position=Beit(),
        mixer=Softmax(key_bias=False),
        residual=PreNorm(),
        head=Head(pool="mean", dense=False),
    ),
    fields=FIELDS,
    types=dict.fromkeys(("image_size", "patch_size"), vit.Pixels | list[vit.Pixels]) | {"use_mean_pooling": bool},
    read=read,
    write=write,
    names={
        **vit.names("beit"),
        "encoder.embed.mask_token": HfTensor("beit.embeddings.mask_token", axes="11D"),
        "encoder.layers.position": f"beit.encoder.layer.{{}}.attention.attention.{TABLE}",
        "encoder.positions.0": f"beit.encoder.{TABLE}",
        "encoder.layers.residual.scales.mixer": "beit.encoder.layer.{}.lambda_1",
        "encoder.layers.residual.scales.feed_forward": "beit.encoder.layer.{}.lambda_2",
    },
    heads={
        "BeitModel": HfHead("model", {"norm": "beit.pooler.layernorm"}),
        "BeitForImageClassification": HfHead("classify", {"norm": "beit.pooler.layernorm", "output": "classifier"}),
        "BeitForMaskedImageModeling": HfHead("masked_image", {"norm": "layernorm", "output": "lm_head"}),
    },
    unused=r"relative_position_index$|mask_token$|(^|\.)pooler\.|^(classifier|lm_head|layernorm)\.",
    # Of the head of segmentation, and of a backbone.
    ignored=because(
        OTHER_HEAD,
        """add_fpn auxiliary_channels auxiliary_concat_input auxiliary_loss_weight auxiliary_num_convs out_features
        out_indices pool_scales reshape_hidden_states segmentation_indices semantic_loss_ignore_index stage_names
        use_auxiliary_head""",
    ),
)

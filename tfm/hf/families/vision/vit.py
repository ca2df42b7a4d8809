"""ViT (Dosovitskiy et al. 2021); DeiT (Touvron et al. 2021), whose second vector learns from a teacher; and the
encoder of MAE (He et al. 2022), which has learned from pictures without most of their patches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from tfm.catalogue.options.inputs import Patches
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, OTHER_HEAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.choices import Range
from tfm.options.json_text import Json

Pixels = Annotated[int, Range(1, 1 << 16)]
FIELDS = {
    "hidden_size": HfField("width", 768),
    "num_hidden_layers": HfField("layers", 12),
    "num_attention_heads": HfField("heads", 12),
    "intermediate_size": HfField("ffn", 3072),
    "hidden_act": HfField("activation", "gelu", ACTIVATIONS),
    "hidden_dropout_prob": HfField("dropout", 0.0),
    "attention_probs_dropout_prob": HfField("attn_dropout", 0.0),
    "layer_norm_eps": HfField("norm_eps", 1e-12),
    "num_channels": HfField("input.channels", 3),
    "pooler_act": HfField("head.pool_activation", "tanh", {name: name for name in ("tanh", "relu", "gelu")}),
}


def read_sizes(fields: Fields) -> Reading:
    """The sizes of images and of patches, each a number or [height, width]."""
    height, width = _pair("image_size", fields.get("image_size", 224))
    side, side_across = _pair("patch_size", fields.get("patch_size", 16))
    if side != side_across:
        raise ValueError(f"config.json has patch_size=[{side}, {side_across}]; only square patches are supported")
    values: dict[str, object] = {
        "input.size": height,
        "input.image_width": None if width == height else width,
        "input.patch": side,
    }
    return values, {"image_size", "patch_size"}


def write_sizes(config: Config) -> dict[str, Json]:
    """The fields of config.json for the sizes of images and of patches."""
    patches = config.input
    assert isinstance(patches, Patches)
    height, width, _ = patches.pixels
    return {"image_size": height if height == width else [height, width], "patch_size": patches.patch}


def _pair(name: str, value: int | Sequence[int]) -> tuple[int, int]:
    """A number twice, or both numbers of a list."""
    pair = [value, value] if isinstance(value, int) else list(value)
    if len(pair) != 2:
        raise ValueError(f"config.json has {name}={value}; it must be a number, or [height, width]")
    return pair[0], pair[1]


def names(model: str) -> dict[str, str | HfTensor]:
    """The tensors of an encoder whose names begin with `model`."""
    embeddings, layer = f"{model}.embeddings", f"{model}.encoder.layer.{{}}"
    return {
        "encoder.embed.projection": HfTensor(f"{embeddings}.patch_embeddings.projection", axes="Dchw"),
        "encoder.embed.positions": HfTensor(f"{embeddings}.position_embeddings", axes="1PD"),
        "encoder.embed.cls": HfTensor(f"{embeddings}.cls_token", axes="11D"),
        "encoder.embed.distilled": HfTensor(f"{embeddings}.distillation_token", axes="11D"),
        "encoder.layers.mixer.query": f"{layer}.attention.attention.query",
        "encoder.layers.mixer.key": f"{layer}.attention.attention.key",
        "encoder.layers.mixer.value": f"{layer}.attention.attention.value",
        "encoder.layers.mixer.output": f"{layer}.attention.output.dense",
        "encoder.layers.residual.mixer": f"{layer}.layernorm_before",
        "encoder.layers.feed_forward.up": f"{layer}.intermediate.dense",
        "encoder.layers.feed_forward.down": f"{layer}.output.dense",
        "encoder.layers.residual.feed_forward": f"{layer}.layernorm_after",
        "encoder.norm": f"{model}.layernorm",
    }


WITHOUT_POOLER = {"head.dense": False}


def _family(name: str, base: Config, heads: dict[str, HfHead], model: str = "", decoder: str = "") -> Family:
    """A family whose tensors begin with `model`, by default its name; `decoder` names fields of another head."""
    model = model or name
    return Family(
        name=name,
        prefix=f"{model}.",
        base=base,
        fields=FIELDS,
        allowed={"qkv_bias": (True,)},
        must_equal={"pooler_output_size": "hidden_size"},
        ignored=because(OTHER_HEAD, f"encoder_stride {decoder}"),
        types=dict.fromkeys(("image_size", "patch_size"), Pixels | list[Pixels]),
        read=read_sizes,
        write=write_sizes,
        names=names(model),
        heads=heads,
        unused=r"(^|\.)pooler\.|mask_token$|^decoder\.",
    )


VIT = _family(
    "vit",
    Config(input=Patches(), residual=PreNorm()),
    {
        "ViTModel": HfHead("model", {"pooler": "vit.pooler.dense"}),
        "ViTForImageClassification": HfHead("classify", {"output": "classifier"}, WITHOUT_POOLER),
    },
)
DEIT = _family(
    "deit",
    Config(input=Patches(distilled=True), residual=PreNorm()),
    {
        "DeiTModel": HfHead("model", {"pooler": "deit.pooler.dense"}),
        "DeiTForImageClassificationWithTeacher": HfHead(
            "classify",
            {"output": "cls_classifier", "distilled": "distillation_classifier"},
            WITHOUT_POOLER | {"head.distilled": True},
        ),
        "DeiTForImageClassification": HfHead("classify", {"output": "classifier"}, WITHOUT_POOLER),
    },
)
VIT_MAE = replace(
    _family(
        "vit_mae",
        Config(input=Patches(), residual=PreNorm()),
        {"ViTMAEModel": HfHead("model"), "ViTMAEForPreTraining": HfHead("model")},
        model="vit",
        decoder="""decoder_hidden_size decoder_intermediate_size decoder_num_attention_heads decoder_num_hidden_layers
        norm_pix_loss""",
    ),
    chance={"mask_ratio": (0.0, "transformers leaves that share of the patches out, 0.75 where there is none")},
)

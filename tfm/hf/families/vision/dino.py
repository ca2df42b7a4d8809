"""DINOv2 (Oquab et al. 2024), a ViT whose branches are scaled; and DINOv3 (Simeoni et al. 2025), which has registers
and rotates queries and keys by the centres of patches."""

from tfm.catalogue.options.inputs import Patches
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.config.positions import Rotary
from tfm.config.residuals import PreNorm
from tfm.hf.families.vision import vit
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, GATED, OTHER_HEAD, TRAINING, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.ops import GATES
from tfm.options.json_text import Json

_SIZES = dict.fromkeys(("image_size", "patch_size"), vit.Pixels | list[vit.Pixels])
_BACKBONE = because(OTHER_HEAD, "apply_layernorm out_features out_indices reshape_hidden_states stage_names")
_TRAINING = because(TRAINING, "pos_embed_jitter pos_embed_rescale pos_embed_shift")
_SHARED = {
    name: vit.FIELDS[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_channels")
}
_SCALES = {"layerscale_value": HfField("residual.layer_scale", 1.0), "drop_path_rate": HfField("drop_path", 0.0)}


def _layers(layer: str) -> dict[str, str | HfTensor]:
    """What layers of both have; `layer` is where a layer is."""
    return {
        "encoder.layers.residual.mixer": f"{layer}.norm1",
        "encoder.layers.residual.feed_forward": f"{layer}.norm2",
        "encoder.layers.residual.scales.mixer": f"{layer}.layer_scale1.lambda1",
        "encoder.layers.residual.scales.feed_forward": f"{layer}.layer_scale2.lambda1",
    }


def read_v2(fields: Fields) -> Reading:
    """The sizes, and the feed-forward layer as a factor of the width.

    Raises ValueError for images that are no squares, whose table transformers cannot read.
    """
    values, used = vit.read_sizes(fields)
    if values["input.image_width"] is not None:
        raise ValueError(f"config.json has image_size={fields['image_size']}; of dinov2, only squares are supported")
    ratio = fields.get("mlp_ratio", 4)
    return values | {"ffn": int(fields.get("hidden_size", 768) * ratio)}, used | {"mlp_ratio"}


def write_v2(config: Config) -> dict[str, Json]:
    """See `read_v2`."""
    return vit.write_sizes(config) | {"mlp_ratio": config.sizes["F"] // config.width}


DINO_V2 = Family(
    name="dinov2",
    prefix="dinov2.",
    base=Config(input=Patches(), residual=PreNorm(layer_scale=1.0)),
    fields={name: vit.FIELDS[name] for name in vit.FIELDS if name not in ("intermediate_size", "pooler_act")}
    | _SCALES
    | {"layer_norm_eps": HfField("norm_eps", 1e-6), "use_mask_token": HfField("input.mask_token", True)},
    allowed={"qkv_bias": (True,), "use_swiglu_ffn": (False,)},
    ignored=_BACKBONE,
    types=_SIZES | {"mlp_ratio": float},
    read=read_v2,
    write=write_v2,
    names=vit.names("dinov2")
    | _layers("dinov2.encoder.layer.{}")
    | {
        "encoder.embed.mask_token": HfTensor("dinov2.embeddings.mask_token", axes="1D"),
        "encoder.layers.feed_forward.up": "dinov2.encoder.layer.{}.mlp.fc1",
        "encoder.layers.feed_forward.down": "dinov2.encoder.layer.{}.mlp.fc2",
    },
    heads={"Dinov2Model": HfHead("model")},
    unused=r"^classifier\.|mask_token$",
)


def read_v3(fields: Fields) -> Reading:
    """The sizes, and the activation, which may be that of a gate."""
    values, used = vit.read_sizes(fields)
    name, table = fields.get("hidden_act", "gelu"), GATED if fields.get("use_gated_mlp") else ACTIVATIONS
    if name not in table:
        raise ValueError(f"config.json has hidden_act={name!r}; of dinov3_vit, supported are {', '.join(table)}")
    return values | {"activation": table[name]}, used | {"hidden_act", "use_gated_mlp"}


def write_v3(config: Config) -> dict[str, Json]:
    """See `read_v3`."""
    is_gated = config.activation in GATES
    table = GATED if is_gated else ACTIVATIONS
    name = next(name for name, activation in table.items() if activation == config.activation)
    return vit.write_sizes(config) | {"hidden_act": name, "use_gated_mlp": is_gated}


DINO_V3 = Family(
    name="dinov3_vit",
    prefix="",
    base=Config(
        input=Patches(mask_token=True),
        position=Rotary(base=100.0, axes=2, coordinates="centres"),
        mixer=Softmax(key_bias=False),
        residual=PreNorm(layer_scale=1.0),
        dropout=0.0,
    ),
    fields=_SHARED
    | _SCALES
    | {
        "hidden_size": HfField("width", 384),
        "num_attention_heads": HfField("heads", 6),
        "intermediate_size": HfField("ffn", 1536),
        "attention_dropout": HfField("attn_dropout", 0.0),
        "layer_norm_eps": HfField("norm_eps", 1e-5),
        "num_register_tokens": HfField("input.registers", 0),
        "rope_theta": HfField("position.base", 100.0),
        "key_bias": HfField("mixer.key_bias", False),
    },
    allowed={"query_bias": (True,), "value_bias": (True,), "proj_bias": (True,), "mlp_bias": (True,)},
    ignored=_BACKBONE | _TRAINING,
    types=_SIZES | {"hidden_act": str, "use_gated_mlp": bool},
    read=read_v3,
    write=write_v3,
    names=_layers("layer.{}")
    | {
        "encoder.embed.projection": HfTensor("embeddings.patch_embeddings", axes="Dchw"),
        "encoder.embed.cls": HfTensor("embeddings.cls_token", axes="11D"),
        "encoder.embed.registers": HfTensor("embeddings.register_tokens", axes="1nD"),
        "encoder.embed.mask_token": HfTensor("embeddings.mask_token", axes="11D"),
        "encoder.layers.mixer.query": "layer.{}.attention.q_proj",
        "encoder.layers.mixer.key": "layer.{}.attention.k_proj",
        "encoder.layers.mixer.value": "layer.{}.attention.v_proj",
        "encoder.layers.mixer.output": "layer.{}.attention.o_proj",
        "encoder.layers.feed_forward.gate": "layer.{}.mlp.gate_proj",
        "encoder.layers.feed_forward.up": "layer.{}.mlp.up_proj",
        "encoder.layers.feed_forward.down": "layer.{}.mlp.down_proj",
        "encoder.norm": "norm",
    },
    heads={"DINOv3ViTModel": HfHead("model")},
    unused=r"register_tokens$",
)

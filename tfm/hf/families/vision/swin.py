"""Swin (Liu et al. 2021) and Swin V2 (Liu et al. 2022): attention in windows that are shifted in every second layer,
and stages of which each has half of the rows and columns of patches."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from tfm.catalogue.options.inputs import Patches
from tfm.catalogue.options.patterns import Windows
from tfm.catalogue.options.positions.grid import Swin, SwinV2
from tfm.catalogue.options.residuals import ResPostNorm
from tfm.config.heads import Head
from tfm.config.mixers import Softmax
from tfm.config.model import Config, Layer
from tfm.config.residuals import PreNorm
from tfm.config.stages import Stage
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, ELSEWHERE, OTHER_HEAD, TRAINING, UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.choices import Hint
from tfm.options.json_text import Json

DEPTHS, HEADS = (2, 2, 6, 2), (3, 6, 12, 24)
# Of every layer, behind the name of its stage and its own number; and what transformers 5 calls them in memory.
LAYER = {
    "mixer.query": ("attention.self.query", "attention.q_proj"),
    "mixer.key": ("attention.self.key", "attention.k_proj"),
    "mixer.value": ("attention.self.value", "attention.v_proj"),
    "mixer.output": ("attention.output.dense", "attention.o_proj"),
    "residual.mixer": ("layernorm_before", ""),
    "residual.feed_forward": ("layernorm_after", ""),
    "feed_forward.up": ("intermediate.dense", "mlp.fc1"),
    "feed_forward.down": ("output.dense", "mlp.fc2"),
}
TABLE = "relative_position_bias_table"


def _names(prefix: str, positions: Mapping[str, HfTensor]) -> Callable[[Config], dict[str, str | HfTensor]]:
    """The table of a family: its prefix, and tensors of positions behind the name of a layer, by paths."""

    def names(config: Config) -> dict[str, str | HfTensor]:
        table: dict[str, str | HfTensor] = {
            "encoder.embed.projection": HfTensor(f"{prefix}.embeddings.patch_embeddings.projection", axes="Dchw"),
            "encoder.embed.norm": f"{prefix}.embeddings.norm",
        }
        path = "encoder"
        for index in range(len(config.stage_configs)):
            if index:
                path, before = f"encoder.stages.{index - 1}", f"{prefix}.encoder.layers.{index - 1}.downsample"
                table |= {f"{path}.embed.projection": f"{before}.reduction", f"{path}.embed.norm": f"{before}.norm"}
            layer = f"{prefix}.encoder.layers.{index}.blocks.{{}}"
            for part, (name, fallback) in LAYER.items():
                fallback_name = fallback and f"{layer}.{fallback}"
                table[f"{path}.layers.{part}"] = HfTensor(f"{layer}.{name}", fallback_name=fallback_name)
            for part, tensor in positions.items():
                fallback_name = tensor.fallback_name and f"{layer}.{tensor.fallback_name}"
                tensor = tensor._replace(name=f"{layer}.{tensor.name}", fallback_name=fallback_name)
                table[f"{path}.layers.{part}"] = tensor
        return table | {f"{path}.norm": f"{prefix}.layernorm"}

    return names


def read(fields: Fields) -> Reading:
    """The sizes of the stages, and windows that are shifted by half of their side in every second layer.

    Raises ValueError where the stages have no equal number of depths and heads.
    """
    depths, heads = fields.get("depths", DEPTHS), fields.get("num_heads", HEADS)
    if not depths or len(depths) != len(heads):
        raise ValueError(f"config.json has depths={depths} and num_heads={heads}; give each stage one of both")
    window, ratio = fields.get("window_size", 7), fields.get("mlp_ratio", 4.0)
    values: dict[str, object] = {
        "layers": depths[0],
        "heads": heads[0],
        "ffn": None if ratio == 4 else int(ratio * fields.get("embed_dim", 96)),
        "stages": len(depths) - 1,
        "mixer.pattern.window": window,
        "period.1.mixer.pattern.window": window,
        "period.1.mixer.pattern.shift": window // 2,
    }
    for index, sizes in enumerate(zip(depths[1:], heads[1:], strict=True)):
        values |= dict(zip((f"stages.{index}.layers", f"stages.{index}.heads"), sizes, strict=True))
    return values, {"depths", "num_heads", "window_size", "mlp_ratio"}


def write(config: Config) -> dict[str, Json]:
    """See `read`; and what follows from it."""
    stages = config.stage_configs
    assert isinstance(config.mixer, Softmax)
    assert isinstance(config.mixer.pattern, Windows)
    return {
        "depths": [stage.layers for stage in stages],
        "num_heads": [stage.heads for stage in stages],
        "window_size": config.mixer.pattern.window,
        "mlp_ratio": 4.0 if config.ffn is None else config.ffn / config.width,
        "hidden_size": stages[-1].width,
        "num_layers": len(stages),
    }


def read_v2(fields: Fields) -> Reading:
    """As `read`; all stages merge patches before they are normalized. Raises ValueError for windows of other sides than
    in training."""
    values, used = read(fields)
    if any(fields.get("pretrained_window_sizes", [])):
        raise ValueError(
            f"config.json has pretrained_window_sizes={fields['pretrained_window_sizes']}; only zeros are supported"
        )
    return values | {"stages.norm": "last"}, used


def _base(mixer: Softmax, position: Swin | SwinV2, residual: PreNorm | ResPostNorm) -> Config:
    """The configuration of a family, with the stages that its classes have by default."""
    shifted = dataclasses.replace(mixer, pattern=Windows(window=7, shift=3))
    norm: Literal["last", "merged"] = "last" if isinstance(residual, ResPostNorm) else "merged"
    return Config(
        layers=DEPTHS[0],
        width=96,
        heads=HEADS[0],
        input=Patches(size=224, patch=4, cls=False, norm=True),
        mixer=mixer,
        period=(Layer(), Layer(mixer=shifted)),
        head=Head(pool="mean", dense=False),
        stages=tuple(Stage(depth, heads=heads, norm=norm) for depth, heads in zip(DEPTHS[1:], HEADS[1:], strict=True)),
        norm_eps=1e-5,
        position=position,
        residual=residual,
    )


FIELDS = {
    "image_size": HfField("input.size", 224),
    "patch_size": HfField("input.patch", 4),
    "num_channels": HfField("input.channels", 3),
    "embed_dim": HfField("width", 96),
    "hidden_act": HfField("activation", "gelu", ACTIVATIONS),
    "hidden_dropout_prob": HfField("dropout", 0.0),
    "attention_probs_dropout_prob": HfField("attn_dropout", 0.0),
}
ALLOWED: Mapping[str, tuple[Json, ...]] = {
    "qkv_bias": (True,),
    "use_absolute_embeddings": (False,),
    "layer_norm_eps": (1e-5,),  # that of two norms is fixed
}
IGNORED = {
    **because(TRAINING, "drop_path_rate"),
    **because(OTHER_HEAD, "encoder_stride out_features out_indices stage_names"),
    **because(ELSEWHERE, "hidden_size num_layers"),  # depths and embed_dim say them
    **because(UNREAD, "path_norm"),
}
HF_TYPES: Mapping[str, Hint] = {
    "depths": list[int],
    "num_heads": list[int],
    "window_size": int,
    "mlp_ratio": float,
    "pretrained_window_sizes": list[int],
}

SWIN = Family(
    name="swin",
    prefix="swin.",
    base=_base(Softmax(pattern=Windows()), position=Swin(), residual=PreNorm()),
    fields=FIELDS,
    names=_names(
        "swin",
        {"position": HfTensor(f"attention.self.{TABLE}", fallback_name=f"attention.relative_position_bias.{TABLE}")},
    ),
    heads={
        "SwinForImageClassification": HfHead("classify", {"output": "classifier"}),
        "SwinModel": HfHead("model"),
    },
    allowed=ALLOWED,
    unused=r"relative_position_index|mask_token|^classifier\.",
    ignored=IGNORED,
    types=HF_TYPES,
    read=read,
    write=write,
)

SWIN_V2 = Family(
    name="swinv2",
    prefix="swinv2.",
    base=_base(Softmax(pattern=Windows(), key_bias=False), position=SwinV2(), residual=ResPostNorm()),
    fields=FIELDS,
    names=_names(
        "swinv2",
        {
            "position.log_scale": HfTensor("attention.self.logit_scale", axes="KG1"),
            "position.up": HfTensor("attention.self.continuous_position_bias_mlp.0"),
            "position.down": HfTensor("attention.self.continuous_position_bias_mlp.2"),
        },
    ),
    heads={
        "Swinv2ForImageClassification": HfHead("classify", {"output": "classifier"}),
        "Swinv2Model": HfHead("model"),
    },
    allowed=ALLOWED,
    unused=r"relative_position_index|relative_coords_table|mask_token|^classifier\.",
    ignored=IGNORED | because(ELSEWHERE, "pretrained_window_sizes"),
    types=HF_TYPES,
    read=read_v2,
    write=write,
)

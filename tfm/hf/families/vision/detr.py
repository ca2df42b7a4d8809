"""DETR (Carion et al. 2020): a ResNet with frozen norms, an encoder of its last grid, and a decoder of object queries.

The ResNet has the names of transformers, or those of timm, which the first folders have."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated

from tfm.catalogue.options.pictures import ResNetV1
from tfm.catalogue.options.positions.grid import Detr
from tfm.config.heads import Head
from tfm.config.model import MAX_SIZES, Config
from tfm.hf.families.seq2seq.bart import ALIASES, stack_names
from tfm.hf.families.vision.vit import Pixels, read_sizes
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import CODE, OTHER_HEAD, TRAINING, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.choices import Range
from tfm.options.json_text import Json
from tfm.params import PyTree

_BACKBONE = "model.backbone.conv_encoder.model"

# Blocks of each stage of the networks of timm, whose widths are 256, 512, 1024 and 2048.
TIMM_DEPTHS: Mapping[str, list[Json]] = {
    "resnet50": [3, 4, 6, 3],
    "resnet101": [3, 4, 23, 3],
    "resnet152": [3, 8, 36, 3],
}
TIMM: Mapping[str, Json] = {"embedding_size": 64, "hidden_sizes": [256, 512, 1024, 2048], "layer_type": "bottleneck"}

# Height and width of pictures where config.json does not say them: what their shorter edge is resized to.
_SIDE = 800
Count = Annotated[int, Range(1, MAX_SIZES["width"])]


def _network(fields: Fields) -> dict[str, Json]:
    """The fields of `backbone_config`, also of a network of timm. Raises ValueError for another network."""
    own = {name.partition(".")[2]: value for name, value in fields.items() if name.startswith("backbone_config.")}
    kind = own.get("model_type")
    if kind == "resnet":
        return {"depths": [3, 4, 6, 3], **TIMM, **own}
    name = own.get("backbone") or fields.get("backbone") or "resnet50"
    if kind not in (None, "timm_backbone") or name not in TIMM_DEPTHS:
        raise ValueError(
            f"config.json has the backbone {kind or name}; only ResNets are supported: of transformers (model_type="
            f"resnet), or {', '.join(TIMM_DEPTHS)} of timm"
        )
    return {**TIMM, "depths": TIMM_DEPTHS[name]}


def _read(fields: Fields) -> Reading:
    """The sizes of pictures and of the network. Raises ValueError for a network without a depth for each width, and for
    another grid than its last one."""
    values, used = read_sizes({"image_size": _SIDE, **fields, "patch_size": 1})
    del values["input.patch"]
    network = _network(fields)
    widths, depths = network["hidden_sizes"], network["depths"]
    assert isinstance(widths, list)
    assert isinstance(depths, list)
    if len(widths) != len(depths):
        raise ValueError(f"config.json has hidden_sizes={widths} and depths={depths}; give each stage both")
    last, stage = f"stage{len(depths)}", network.get("out_features")
    if isinstance(stage, list) and stage[-1:] != [last]:
        raise ValueError(f"config.json has backbone_config.out_features={stage}; only {last}, the last, is supported")
    values |= {
        "input.stem": network["embedding_size"],
        "input.kind": network["layer_type"],
        "input.blocks": ",".join(f"{width}x{depth}" for width, depth in zip(widths, depths, strict=True)),
    }
    names = {name for name in fields if name.startswith("backbone_config.")}
    return values, (used - {"patch_size"}) | names | {"backbone", "use_timm_backbone", "backbone_kwargs"}


def _write(config: Config) -> dict[str, Json]:
    """See `_read`."""
    network = config.input
    assert isinstance(network, ResNetV1)
    height, width, channels = network.pixels
    last = len(network.stages)
    fields: dict[str, Json] = {
        "model_type": "resnet",
        "num_channels": channels,
        "embedding_size": network.stem,
        "hidden_sizes": [width for width, _ in network.stages],
        "depths": [depth for _, depth in network.stages],
        "layer_type": network.kind,
        "out_features": [f"stage{last}"],
        "out_indices": [last],
    }
    return {f"backbone_config.{name}": value for name, value in fields.items()} | {
        "use_timm_backbone": False,
        "image_size": height if height == width else [height, width],
    }


def _convolution(path: str, name: str, timm: tuple[str, str]) -> Iterator[tuple[str, HfTensor]]:
    """The tensors of a convolution and of its norm, by the names of transformers and of timm."""
    kernel, norm = (f"{_BACKBONE}.{part}" for part in timm)
    normalization = f"{_BACKBONE}.{name}.normalization"
    yield path, HfTensor(f"{_BACKBONE}.{name}.convolution", axes="dchw", fallback_name=kernel)
    yield f"{path}.norm", HfTensor(normalization, fallback_name=norm)
    for field, statistic in {"mean": "running_mean", "variance": "running_var"}.items():
        name_of_timm = f"{norm}.{statistic}"
        yield f"{path}.norm.stats.{field}", HfTensor(f"{normalization}.{statistic}", fallback_name=name_of_timm)


def _network_names(config: Config) -> dict[str, HfTensor]:
    """The tensors of the network."""
    network = config.input
    assert isinstance(network, ResNetV1)
    table = dict(_convolution("encoder.embed.stem", "embedder.embedder", ("conv1", "bn1")))
    convolutions = 3 if network.kind == "bottleneck" else 2
    blocks = [(stage, index) for stage, (_, count) in enumerate(network.stages) for index in range(count)]
    for place, (stage, index) in enumerate(blocks):
        path, timm = f"encoder.embed.blocks.{place}", f"layer{stage + 1}.{index}"
        name = f"encoder.stages.{stage}.layers.{index}"
        for part in range(convolutions):
            names = f"{timm}.conv{part + 1}", f"{timm}.bn{part + 1}"
            table |= dict(_convolution(f"{path}.branch.{part}", f"{name}.layer.{part}", names))
        names = f"{timm}.downsample.0", f"{timm}.downsample.1"
        table |= dict(_convolution(f"{path}.shortcut", f"{name}.shortcut", names))
    return table


def _names(config: Config) -> dict[str, str | HfTensor]:
    """The table."""
    decoder = {path.replace("decoder", "queries", 1): name for path, name in stack_names("model", "decoder").items()}
    return {
        **_network_names(config),
        **stack_names("model", "encoder"),
        **decoder,
        "encoder.embed.projection": HfTensor("model.input_projection", axes="Dc11"),
        "queries.norm": "model.decoder.layernorm",
        "queries.embed": "model.query_position_embeddings.weight",
    }


def _with_queries(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The model, whose configuration says how many queries and layers it has, and nothing else of heads."""
    decoder = getattr(params, "queries", None)
    if decoder is None:
        return config, params
    layers = decoder.layers.period[0].cross.query.kernel.shape[0]
    return replace(config, head=Head(queries=decoder.embed.shape[0], query_layers=layers)), params


DETR = Family(
    name="detr",
    prefix="model.",
    base=Config(
        input=ResNetV1(frozen=True, size=_SIDE),
        position=Detr(),
        activation="relu",
        norm_eps=1e-5,
        head=Head(queries=100, query_layers=6),
    ),
    fields={
        "d_model": HfField("width", 256),
        "encoder_layers": HfField("layers", 6),
        "encoder_attention_heads": HfField("heads", 8),
        "encoder_ffn_dim": HfField("ffn", 2048),
        "decoder_layers": HfField("head.query_layers", 6),
        "num_queries": HfField("head.queries", 100),
        "num_channels": HfField("input.channels", 3),
        "dropout": HfField("dropout", 0.1),
        "attention_dropout": HfField("attn_dropout", 0.0),
        "activation_dropout": HfField("ffn_dropout", 0.0),
    },
    names=_names,
    heads={
        "DetrForObjectDetection": HfHead(
            "objects",
            {"classes": "class_labels_classifier"} | {f"boxes.{n}": f"bbox_predictor.layers.{n}" for n in range(3)},
        )
    },
    allowed={
        "activation_function": ("relu",),
        "position_embedding_type": ("sine",),
        "dilation": (False,),
        # transformers 5 normalizes the states between layers where this is true, which the paper does not.
        "auxiliary_loss": (False,),
        "backbone_config.hidden_act": ("relu",),
        "backbone_config.downsample_in_first_stage": (False,),
        "backbone_config.downsample_in_bottleneck": (False,),
    },
    must_equal={
        "decoder_attention_heads": "encoder_attention_heads",
        "decoder_ffn_dim": "encoder_ffn_dim",
        "backbone_config.num_channels": "num_channels",
    },
    aliases=ALIASES,
    ignored={
        **because(
            TRAINING,
            """encoder_layerdrop decoder_layerdrop init_xavier_std class_cost bbox_cost giou_cost bbox_loss_coefficient
            giou_loss_coefficient eos_coefficient use_pretrained_backbone""",
        ),
        **because(OTHER_HEAD, "mask_loss_coefficient dice_loss_coefficient"),
        **because(CODE, "max_position_embeddings scale_embedding"),
    },
    nested=("backbone_config",),
    types={
        "image_size": Pixels | list[Pixels],
        "backbone": str | None,
        "use_timm_backbone": bool | None,
        "backbone_config.model_type": str | None,
        "backbone_config.backbone": str | None,
        "backbone_config.embedding_size": Count,
        **dict.fromkeys(("backbone_config.hidden_sizes", "backbone_config.depths"), list[Count]),
        "backbone_config.layer_type": str,
        "backbone_config.out_features": list[str] | None,
    },
    read=_read,
    write=_write,
    canonicalize=_with_queries,
)

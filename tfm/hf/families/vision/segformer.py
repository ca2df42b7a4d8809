"""SegFormer (Xie et al. 2021): stages of patches that overlap, with fewer keys than patches, a norm behind each, and
convolutions in place of positions; outputs of pixels are read from all stages."""

from collections.abc import Mapping, Sequence

from tfm.catalogue.options.feed_forwards import MixFfn
from tfm.catalogue.options.inputs import Patches
from tfm.catalogue.options.mixers.fewer_keys import SpatialReduction
from tfm.catalogue.options.positions.absolute import NoPosition
from tfm.config.heads import Head
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.vision.pvt import (
    DEFAULTS,
    FIELDS,
    HF_TYPES,
    LAYER,
    Count,
    explicit_stages,
    layer_names,
    read_stages,
    stage_lists,
    stage_paths,
    write_stages,
)
from tfm.hf.family import Family, HfHead, Reading
from tfm.hf.fields import CODE, OTHER_HEAD, TRAINING, UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

SEGFORMER_DEFAULTS: Mapping[str, Sequence[int]] = {
    **{name: numbers for name, numbers in DEFAULTS.items() if name != "sequence_reduction_ratios"},
    "hidden_sizes": (32, 64, 160, 256),
    "mlp_ratios": (4, 4, 4, 4),
    "sr_ratios": (8, 4, 2, 1),
    "patch_sizes": (7, 3, 3, 3),
}
SEGFORMER_LAYER: dict[str, str | HfTensor] = LAYER | {
    "mixer.reduction": HfTensor("attention.self.sr", axes="EDhw"),
    "feed_forward.convolution.weights": HfTensor("mlp.dwconv.dwconv.weight", axes="F1hw"),
    "feed_forward.convolution": "mlp.dwconv.dwconv",
}
# Of the decoder of all stages, beside the map of each stage.
_DECODER: dict[str, str | HfTensor] = {
    "fusion.kernel": HfTensor("decode_head.linear_fuse.weight", axes="wc11"),
    "fusion.norm": "decode_head.batch_norm",
    "fusion.norm.stats.mean": "decode_head.batch_norm.running_mean",
    "fusion.norm.stats.variance": "decode_head.batch_norm.running_var",
    "output": HfTensor("decode_head.classifier", axes="Cw11"),
}
# What reads the last stage alone.
_LAST = {"head.decoder_width": None}


def _names(config: Config) -> dict[str, str | HfTensor]:
    """The table."""
    table: dict[str, str | HfTensor] = {}
    for index, path in enumerate(stage_paths(config)):
        embeddings = f"segformer.encoder.patch_embeddings.{index}"
        table |= layer_names(path, f"segformer.encoder.block.{index}.{{}}", SEGFORMER_LAYER) | {
            f"{path}.embed.projection": HfTensor(f"{embeddings}.proj", axes="Dchw"),
            f"{path}.embed.{'norm' if index else 'patch_norm'}": f"{embeddings}.layer_norm",
            f"{path}.norm": f"segformer.encoder.layer_norm.{index}",
        }
        if config.head.decoder_width is not None:
            table[f"fusion.stages.{index}"] = f"decode_head.linear_c.{index}.proj"
    return table


def _read(fields: Fields) -> Reading:
    """See `read_stages`. Raises ValueError for squares of pixels, or of patches, without a middle, and for those that
    do not overlap."""
    lists = stage_lists(fields, SEGFORMER_DEFAULTS)
    kernels, strides = lists["patch_sizes"], lists["strides"]
    if any(kernel <= stride or kernel % 2 == 0 for kernel, stride in zip(kernels, strides, strict=True)):
        raise ValueError(
            f"config.json has patch_sizes={kernels} and strides={strides}; only odd patches that are larger than "
            "their strides are supported"
        )
    values, used = read_stages(fields, lists, "sr_ratios")
    values |= {"stages.norm": "last", "stages.bias": True, "stages.norm_before": True}
    values |= {"input.kernel": kernels[0], "input.patch": strides[0]}
    values |= {"head.decoder_width": fields.get("decoder_hidden_size", 256)}
    for index, sizes in enumerate(zip(kernels[1:], strides[1:], strict=True)):
        values |= dict(zip((f"stages.{index}.kernel", f"stages.{index}.stride"), sizes, strict=True))
    return values, used | {"decoder_hidden_size"}


def _write(config: Config) -> dict[str, Json]:
    """See `_read`."""
    patches = config.input
    assert isinstance(patches, Patches)
    width = config.head.decoder_width
    decoder: dict[str, Json] = {} if width is None else {"decoder_hidden_size": width}
    return (
        write_stages(config, "sr_ratios")
        | decoder
        | {
            "patch_sizes": [patches.kernel or patches.patch, *(stage.kernel for stage in config.stages)],
            "strides": [patches.patch, *(stage.stride for stage in config.stages)],
        }
    )


SEGFORMER = Family(
    name="segformer",
    prefix="segformer.",
    base=Config(
        input=Patches(patch=4, kernel=7, cls=False, patch_norm=True),
        mixer=SpatialReduction(),
        feed_forward=MixFfn(),
        position=NoPosition(),
        residual=PreNorm(),
        head=Head(pool="mean", dense=False),
        norm_eps=1e-5,
    ),
    fields=FIELDS,
    names=_names,
    heads={
        "SegformerForImageClassification": HfHead("classify", {"output": "classifier"}, _LAST),
        "SegformerForSemanticSegmentation": HfHead("segment", _DECODER),
        "SegformerModel": HfHead("model", overrides=_LAST),
    },
    unused=r"^(classifier|decode_head)\.",
    spare=r"^decode_head\.batch_norm\.num_batches_tracked$",
    ignored={
        **because(TRAINING, "drop_path_rate"),
        **because(OTHER_HEAD, "semantic_loss_ignore_index"),
        **because(CODE, "reshape_last_stage"),
        **because(UNREAD, "downsampling_rates layer_norm_eps"),
    },
    types={**HF_TYPES, "decoder_hidden_size": Count},
    read=_read,
    write=_write,
    canonicalize=explicit_stages,
)

"""PVT (Wang et al. 2021): stages of which each has fewer keys than patches, and positions of its own; [CLS] stands in
the last one alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from tfm.catalogue.options.inputs import Patches
from tfm.catalogue.options.mixers.fewer_keys import SpatialReduction
from tfm.config.heads import Head
from tfm.config.model import MAX_SIZES, Config
from tfm.config.residuals import PreNorm
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, TRAINING, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.choices import Hint, Range
from tfm.options.json_text import Json
from tfm.params import PyTree

# The lists of config.json, which have a number for each stage, and those of its classes by default.
SIZES = {"depths": "layers", "hidden_sizes": "width", "num_attention_heads": "heads"}
DEFAULTS: Mapping[str, Sequence[int]] = {
    "depths": (2, 2, 2, 2),
    "hidden_sizes": (64, 128, 320, 512),
    "num_attention_heads": (1, 2, 5, 8),
    "mlp_ratios": (8, 8, 4, 4),
    "sequence_reduction_ratios": (8, 4, 2, 1),
    "patch_sizes": (4, 2, 2, 2),
    "strides": (4, 2, 2, 2),
}
Side = Annotated[int, Range(1, 64)]
Count = Annotated[int, Range(1, MAX_SIZES["width"])]
HF_TYPES: Mapping[str, Hint] = {
    **dict.fromkeys(("num_encoder_blocks", "image_size"), Count),
    **dict.fromkeys(("depths", "hidden_sizes", "num_attention_heads", "mlp_ratios"), list[Count]),
    **dict.fromkeys(("sequence_reduction_ratios", "sr_ratios", "patch_sizes", "strides"), list[Side]),
}
FIELDS = {
    "image_size": HfField("input.size", 224),
    "num_channels": HfField("input.channels", 3),
    "hidden_act": HfField("activation", "gelu", ACTIVATIONS),
    "hidden_dropout_prob": HfField("dropout", 0.0),
    "attention_probs_dropout_prob": HfField("attn_dropout", 0.0),
}
# Of every layer, behind the name of its stage and its own number.
LAYER: dict[str, str | HfTensor] = {
    "mixer.attention.query": "attention.self.query",
    "mixer.attention.key": "attention.self.key",
    "mixer.attention.value": "attention.self.value",
    "mixer.attention.output": "attention.output.dense",
    "mixer.reduction": HfTensor("attention.self.sequence_reduction", axes="EDhw"),
    "mixer.norm": "attention.self.layer_norm",
    "residual.mixer": "layer_norm_1",
    "residual.feed_forward": "layer_norm_2",
    "feed_forward.up": "mlp.dense1",
    "feed_forward.down": "mlp.dense2",
}


def stage_lists(fields: Fields, defaults: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The lists of config.json, cut to the number of stages. Raises ValueError for shorter ones."""
    count, lists = fields.get("num_encoder_blocks", 4), {}
    for name, numbers in defaults.items():
        lists[name] = list(fields.get(name, numbers))[:count]
        if len(lists[name]) < count:
            raise ValueError(
                f"config.json has num_encoder_blocks={count} and {name}={lists[name]}; give each stage a number"
            )
    return lists


def read_stages(fields: Fields, lists: Mapping[str, Sequence[int]], reductions: str) -> Reading:
    """The sizes of the stages; `reductions` is what their list of reductions of keys is called.

    Raises ValueError for reductions that squares of patches do not fill: transformers leaves out the last places.
    """
    count, side = len(lists["depths"]), fields.get("image_size", 224)
    values: dict[str, object] = {"stages": count - 1, "stages.mixer": "spatial_reduction"}
    for index in range(count):
        stage = f"stages.{index - 1}." if index else ""
        values |= {f"{stage}{name}": lists[hf_name][index] for hf_name, name in SIZES.items()}
        values[f"{stage}ffn"] = lists["mlp_ratios"][index] * lists["hidden_sizes"][index]
        values[f"{stage}mixer.factor"] = factor = lists[reductions][index]
        side = -(-side // lists["strides"][index])
        if side % factor:
            raise ValueError(
                f"config.json has {reductions}={list(lists[reductions])}, and stage {index} has {side} x {side} "
                f"patches, which squares of {factor} x {factor} do not fill; only those that do are supported"
            )
    return values, {"num_encoder_blocks", *lists}


def write_stages(config: Config, reductions: str) -> dict[str, Json]:
    """See `read_stages`."""
    stages = config.stage_configs
    fields: dict[str, Json] = {hf_name: [getattr(stage, name) for stage in stages] for hf_name, name in SIZES.items()}
    return fields | {
        "num_encoder_blocks": len(stages),
        "mlp_ratios": [max(1, stage.sizes["F"] // stage.width) for stage in stages],
        reductions: [getattr(stage.mixer, "factor", 1) for stage in stages],
    }


def explicit_stages(config: Config, params: PyTree) -> tuple[Config, PyTree]:
    """The same model, with all sizes and mixers of its stages said."""
    stages = zip(config.stages, config.stage_configs[1:], strict=True)
    said = [
        replace(options, width=stage.width, heads=stage.heads, ffn=stage.sizes["F"], mixer=stage.mixer)
        for options, stage in stages
    ]
    return replace(config, stages=tuple(said)), params


def stage_paths(config: Config) -> list[str]:
    """Where the parameters of each stage are."""
    return ["encoder", *(f"encoder.stages.{index}" for index in range(len(config.stages)))]


def layer_names(path: str, layer: str, names: Mapping[str, str | HfTensor]) -> dict[str, HfTensor]:
    """The tensors of the layers of a stage at `path`, which are called `layer`, {} in it."""
    tensors = {part: name if isinstance(name, HfTensor) else HfTensor(name) for part, name in names.items()}
    return {f"{path}.layers.{part}": tensor._replace(name=f"{layer}.{tensor.name}") for part, tensor in tensors.items()}


def _names(config: Config) -> dict[str, str | HfTensor]:
    """The table."""
    table: dict[str, str | HfTensor] = {}
    for index, path in enumerate(stage_paths(config)):
        embeddings = f"pvt.encoder.patch_embeddings.{index}"
        table |= layer_names(path, f"pvt.encoder.block.{index}.{{}}", LAYER) | {
            f"{path}.embed.projection": HfTensor(f"{embeddings}.projection", axes="Dchw"),
            f"{path}.embed.{'norm' if index else 'patch_norm'}": f"{embeddings}.layer_norm",
            f"{path}.embed.positions": HfTensor(f"{embeddings}.position_embeddings", axes="1PD"),
            f"{path}.embed.cls": HfTensor(f"{embeddings}.cls_token", axes="11D"),
        }
    return table | {f"{path}.norm": "pvt.encoder.layer_norm"}


def _read(fields: Fields) -> Reading:
    """See `read_stages`. Raises ValueError for patches that transformers has no positions for, or cannot cut."""
    lists, size = stage_lists(fields, DEFAULTS), fields.get("image_size", 224)
    patches, count = lists["patch_sizes"], len(lists["patch_sizes"])
    if patches != lists["strides"] or patches != [4, *[2] * (count - 1)]:
        raise ValueError(
            f"config.json has patch_sizes={patches} and strides={lists['strides']}; only 4 in the first stage and 2 in "
            "later ones are supported, as transformers has positions for these"
        )
    if size % (side := 2 << count):
        raise ValueError(f"config.json has image_size={size}; only multiples of {side} are supported")
    values, used = read_stages(fields, lists, "sequence_reduction_ratios")
    values |= {"stages.norm": "last", "stages.bias": True, "stages.positions": True}
    if fields.get("num_labels") is None and not fields.get("id2label"):
        values["classes"] = 1000
    return values | {f"stages.{count - 2}.cls" if count > 1 else "input.cls": True}, used


def _write(config: Config) -> dict[str, Json]:
    """See `_read`."""
    patches: list[Json] = [4, *[2] * len(config.stages)]
    sizes: dict[str, Json] = {"patch_sizes": patches, "strides": patches, "num_labels": config.classes}
    return write_stages(config, "sequence_reduction_ratios") | sizes  # transformers counts no labels of this family


PVT = Family(
    name="pvt",
    prefix="pvt.",
    base=Config(
        input=Patches(patch=4, cls=False, patch_norm=True),
        mixer=SpatialReduction(),
        residual=PreNorm(),
        head=Head(dense=False),
    ),
    fields=FIELDS | {"layer_norm_eps": HfField("norm_eps", 1e-6)},
    names=_names,
    heads={
        "PvtForImageClassification": HfHead("classify", {"output": "classifier"}),
        "PvtModel": HfHead("model"),
    },
    allowed={"qkv_bias": (True,)},
    unused=r"^classifier\.",
    ignored=because(TRAINING, "drop_path_rate"),
    types=HF_TYPES,
    read=_read,
    write=_write,
    canonicalize=explicit_stages,
)

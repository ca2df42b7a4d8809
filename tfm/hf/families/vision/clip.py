"""CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023): a tower of texts and one of images; and each tower of CLIP
alone."""

import dataclasses
from typing import Any

from tfm.catalogue.options.inputs import Patches
from tfm.config.heads import Head
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.config.towers import ImageTower
from tfm.hf.facts import agreed
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, Fields, Size, because
from tfm.hf.parameters import HfTensor
from tfm.options.choices import check_type
from tfm.options.json_text import Json

CLIP_ACTIVATIONS = {"quick_gelu": "quick_gelu", **ACTIVATIONS}
# What older folders say in each of their objects: of other models, and of text generation.
OLDER = because(
    "older folders repeat what all configurations have",
    """add_cross_attention begin_suppress_tokens cross_attention_hidden_size diversity_penalty do_sample dropout
    encoder_no_repeat_ngram_size exponential_decay_length_penalty logit_scale_init_value num_beam_groups
    num_return_sequences output_scores projection_dim pruned_heads remove_invalid_values repetition_penalty
    return_dict_in_generate suppress_tokens temperature text_config_dict tf_legacy_loss tie_encoder_decoder
    tie_word_embeddings top_k top_p torchscript typical_p use_bfloat16 vision_config_dict""",
)


def _layers(part: str, tower: str) -> dict[str, str | HfTensor]:
    """The tensors of the layers of a tower, by paths that begin with `part`."""
    layer = f"{tower}.encoder.layers.{{}}"
    projections = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    return {
        **{f"{part}.layers.mixer.{name}": f"{layer}.self_attn.{hf_name}" for name, hf_name in projections.items()},
        f"{part}.layers.residual.mixer": f"{layer}.layer_norm1",
        f"{part}.layers.feed_forward.up": f"{layer}.mlp.fc1",
        f"{part}.layers.feed_forward.down": f"{layer}.mlp.fc2",
        f"{part}.layers.residual.feed_forward": f"{layer}.layer_norm2",
    }


def _text_names(part: str) -> dict[str, str | HfTensor]:
    """The tensors of a tower of texts."""
    return _layers(part, "text_model") | {
        f"{part}.embed.tokens": "text_model.embeddings.token_embedding.weight",
        f"{part}.embed.positions": "text_model.embeddings.position_embedding.weight",
        f"{part}.norm": "text_model.final_layer_norm",
    }


def _image_names(part: str) -> dict[str, str | HfTensor]:
    """The tensors of a tower of images."""
    return _layers(part, "vision_model") | {
        f"{part}.embed.projection": HfTensor("vision_model.embeddings.patch_embedding", axes="Dchw"),
        f"{part}.embed.positions": "vision_model.embeddings.position_embedding.weight",
        f"{part}.embed.cls": "vision_model.embeddings.class_embedding",
        f"{part}.embed.norm": "vision_model.pre_layrnorm",
        f"{part}.norm": "vision_model.post_layernorm",
    }


def _pooler_names(pooler: str) -> dict[str, str | HfTensor]:
    """The tensors of the attention that makes one vector of an image."""
    parts = {name: HfTensor(f"{pooler}.attention.in_proj_", n, 3) for n, name in enumerate(("query", "key", "value"))}
    return {
        "image_pooler.query": HfTensor(f"{pooler}.probe", axes="11D"),
        **{f"image_pooler.attention.{name}": tensor for name, tensor in parts.items()},
        "image_pooler.attention.output": f"{pooler}.attention.out_proj",
        "image_pooler.norm": f"{pooler}.layernorm",
        "image_pooler.feed_forward.up": f"{pooler}.mlp.fc1",
        "image_pooler.feed_forward.down": f"{pooler}.mlp.fc2",
    }


def _text_fields(prefix: str, width: int, heads: int, length: int) -> dict[str, HfField]:
    """The fields of a tower of texts; `prefix` is what their names begin with."""
    fields = {
        "hidden_size": HfField("width", width),
        "num_hidden_layers": HfField("layers", 12),
        "num_attention_heads": HfField("heads", heads),
        "intermediate_size": HfField("ffn", 4 * width),
        "max_position_embeddings": HfField("length", length),
        "attention_dropout": HfField("attn_dropout", 0.0),
    }
    return {prefix + name: field for name, field in fields.items()}


def _image_fields(prefix: str, part: str, patch: int) -> dict[str, HfField]:
    """The fields of a tower of images; their names in `Config` begin with `part`."""
    fields = {
        "hidden_size": HfField("width", 768),
        "num_hidden_layers": HfField("layers", 12),
        "num_attention_heads": HfField("heads", 12),
        "intermediate_size": HfField("ffn", 3072),
        "image_size": HfField("input.size", 224),
        "patch_size": HfField("input.patch", patch),
        "num_channels": HfField("input.channels", 3),
    }
    return {prefix + name: field._replace(name=part + field.name) for name, field in fields.items()}


def _shared_fields(prefix: str, part: str, activation: str, eps: float) -> dict[str, HfField]:
    """The fields that both towers have."""
    return {
        f"{prefix}hidden_act": HfField(f"{part}activation", activation, CLIP_ACTIVATIONS),
        f"{prefix}layer_norm_eps": HfField(f"{part}norm_eps", eps),
    }


TEXTS = Config(
    input=Tokens(token_types=None, norm=False),
    residual=PreNorm(),
    head=Head(pool="last", dense=False, causal=True),
)
CLIP_PATCHES = Patches(patch=32, bias=False, norm=True)
TOWERS = ("text_config", "vision_config")
UNUSED = r"position_ids$"
PROJECTIONS = {"text_projection": "text_projection", "image_projection": "visual_projection"}


def write_sizes(config: Config) -> dict[str, Json]:
    """What both towers say of the space that they share; and [EOS], whose state stands for a text: the last token of
    the vocabulary, as in the published folders, where nothing else is said."""
    size = config.images.size if config.images else None
    sizes = {f"{tower}.projection_dim": size for tower in TOWERS}
    return sizes | {"text_config.eos_token_id": config.vocab - 1} | write_dropout(config)


def write_dropout(config: Config) -> dict[str, Json]:
    """The rate of images, which is that of texts."""
    return {"vision_config.attention_dropout": config.attn_rate}


def read_older(fields: Fields) -> Reading:
    """Checks that the older objects, which transformers prefers, say the same; reads no field of `Config`."""
    for tower in TOWERS:
        older = check_type(f"config.json: {tower}_dict", fields.get(f"{tower}_dict"), dict[str, Any] | None)
        for name, field in CLIP.fields.items() if older else ():
            if name.startswith(f"{tower}."):
                last = name.rpartition(".")[2]
                value = field.default if fields.get(name) is None else fields[name]
                agreed({name: value, f"{tower}_dict.{last}": older.get(last, field.default)})
    return {}, {f"{tower}_dict" for tower in TOWERS}


CLIP = Family(
    name="clip",
    prefix="clip.",
    base=dataclasses.replace(TEXTS, images=ImageTower(input=CLIP_PATCHES)),
    fields={
        "text_config.vocab_size": HfField("vocab", 49408),
        **_text_fields("text_config.", 512, 8, 77),
        **_shared_fields("text_config.", "", "quick_gelu", 1e-5),
        **_image_fields("vision_config.", "images.", 32),
        **_shared_fields("vision_config.", "images.", "quick_gelu", 1e-5),
        "projection_dim": HfField("images.projection", 512),
    },
    must_equal={"vision_config.attention_dropout": "text_config.attention_dropout"},
    ignored=OLDER,
    read=read_older,
    write=write_sizes,
    names={**_text_names("text"), **_image_names("image"), **PROJECTIONS, "log_scale": "logit_scale"},
    heads={"CLIPModel": HfHead("towers")},
    nested=TOWERS,
    unused=UNUSED,
)


def read_space(fields: Fields) -> Reading:
    """Checks that texts are mapped to the width of images; reads no field of `Config`."""
    name = "text_config.projection_size"
    width = fields.get("vision_config.hidden_size", 768)
    size = fields.get(name) or fields.get("text_config.hidden_size", 768)
    if size != width:
        raise ValueError(f"config.json has {name}={size}; it must be vision_config.hidden_size={width}")
    return {}, {name}


def write_space(config: Config) -> dict[str, Json]:
    """The width of images."""
    size = config.images.size if config.images else None
    return {"text_config.projection_size": size} | write_dropout(config)


SIGLIP = Family(
    name="siglip",
    prefix="siglip.",
    base=dataclasses.replace(
        TEXTS,
        head=Head(pool="last", dense=False),
        images=ImageTower(
            input=Patches(cls=False),
            pool="attention",
            projection=None,
            projection_bias=True,
            loss="sigmoid",
            reads_padding=True,
        ),
    ),
    fields={
        "text_config.vocab_size": HfField("vocab", 32000),
        **_text_fields("text_config.", 768, 12, 64),
        **_shared_fields("text_config.", "", "gelu_pytorch_tanh", 1e-6),
        **_image_fields("vision_config.", "images.", 16),
        **_shared_fields("vision_config.", "images.", "gelu_pytorch_tanh", 1e-6),
    },
    allowed={"vision_config.vision_use_head": (True,)},
    must_equal={"vision_config.attention_dropout": "text_config.attention_dropout"},
    ignored=OLDER,
    types={"text_config.projection_size": Size | None},
    read=read_space,
    write=write_space,
    names={
        **_text_names("text"),
        **_image_names("image"),
        **_pooler_names("vision_model.head"),
        "text_projection": "text_model.head",
        "log_scale": HfTensor("logit_scale", axes="1"),
        "bias": HfTensor("logit_bias", axes="1"),
    },
    heads={"SiglipModel": HfHead("towers")},
    nested=TOWERS,
    unused=UNUSED,
)

CLIP_TEXT = Family(
    name="clip_text_model",
    prefix="text_model.",
    base=TEXTS,
    fields={
        "vocab_size": HfField("vocab", 49408),
        **_text_fields("", 512, 8, 77),
        **_shared_fields("", "", "quick_gelu", 1e-5),
    },
    ignored=OLDER,
    names=_text_names("encoder"),
    heads={"CLIPTextModel": HfHead("model")},
    unused=UNUSED,
)

CLIP_VISION = Family(
    name="clip_vision_model",
    prefix="vision_model.",
    base=Config(input=CLIP_PATCHES, residual=PreNorm(), head=Head(dense=False)),
    fields={
        **_image_fields("", "", 32),
        **_shared_fields("", "", "quick_gelu", 1e-5),
        "attention_dropout": HfField("attn_dropout", 0.0),
    },
    ignored=OLDER,
    names=_image_names("encoder"),
    heads={"CLIPVisionModel": HfHead("model")},
    unused=UNUSED,
)

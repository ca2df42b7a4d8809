"""One row a variant: what a small model is told to be it. `contracts.py` gives every row the whole suite.

Values are dotted names as in flags, on top of `BASE`.
"""

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import oracles
from oracles import clustered, convolution, fewer_keys, grid, kernels, patterns, recurrent, scores, static

import tfm

BASE = tfm.Config(
    layers=3, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, pad_vocab_to=64, length=16, dropout=0.0, init_std=0.3
)


@dataclasses.dataclass(frozen=True)
class Variant:
    """A row.

    values: dotted names and values
    encoder: the variant reads texts from both sides
    decoder: the variant reads texts from left to right
    generates: a decoder of it has a decode state
    packs: several documents may share a row
    ignores_padding: how long the padding behind a text is changes nothing
    prunes: its heads can be cut
    trains_deep: deep models with its residual scheme learn without warm-up what those with post-norm do not
    oracle: (parameters of a mixer, x [B,T,D]) -> what it returns without a mask, by numpy;
        where the variant has no encoder, under causality
    """

    values: dict[str, Any]
    encoder: bool = True
    decoder: bool = True
    generates: bool = True
    packs: bool = True
    ignores_padding: bool = True
    oracle: Callable[[Any, np.ndarray], np.ndarray] | None = None
    prunes: bool = False
    trains_deep: bool = False

    @functools.cached_property
    def config(self) -> tfm.Config:
        """A small model of this variant."""
        return tfm.override(BASE, self.values)


def _layer(index: int, values: dict[str, Any], part: str = "period") -> dict[str, Any]:
    """The values of one kind of layer."""
    return {f"{part}.{index}.{name}": value for name, value in values.items()}


def _pattern(name: str, **options: Any) -> dict[str, Any]:
    """The values of a pattern."""
    return {"mixer.pattern": name} | {f"mixer.pattern.{option}": value for option, value in options.items()}


def _scaling(name: str, **options: Any) -> dict[str, Any]:
    """The values of rotary positions with a scaling."""
    scaling = {f"position.scaling.{option}": value for option, value in options.items()}
    return {"position": "rotary", "position.scaling": name} | scaling


_BLOCKS = _pattern("local", block=3, neighbours=1)
_DILATED = _pattern("sliding", window=3, dilation=2)
_DILATED_HEADS = _pattern("sliding", window=3, dilation=3, dilated_heads=1)
_STRIDED = _pattern("strided", stride=3)
_FIXED = _pattern("fixed", block=3, summary=1)
_GLOBAL = _pattern("global", window=3, tokens=2)
_LONGFORMER = _pattern("global", window=4, tokens=2, projections=True) | {"position": "rotary"}
_PLACES = _pattern("global", window=3, places="4,0,5,9")
_LONGFORMER_PLACES = _LONGFORMER | {"mixer.pattern.tokens": 1, "mixer.pattern.places": "4,1,5,9"}
_ETC = _pattern("etc", radius=2, tokens=2, labels=2)
_TRANSIENT = _pattern("transient", radius=2, block=3)
_BIGBIRD = _pattern("bigbird", block=2, global_blocks=1, random=1, seed=1)

_BIGBIRD_OF_FOLDERS = _pattern(
    "bigbird", block=2, window=1, global_blocks=1, random=2, last_blocks=1, draw="first", dense_blocks=3
)

_LOCAL = {"mixer": "softmax", "mixer.pattern": "sliding", "mixer.pattern.window": 4}
_LOCAL_ROTARY = _LOCAL | {"position": "rotary", "position.base": 50.0}
_IMAGES = {"input": "patches", "input.size": 8, "input.patch": 2, "input.channels": 3, "residual": "pre"}
_UNBIASED = {"norm": "rms", "residual": "pre", "bias": False}

# Two stages, on grids of 5 x 5 and 3 x 3 patches: neither windows nor merging divide the first, and one window is the
# second.
_STAGES = _IMAGES | {"layers": 2, "input.size": 10, "input.cls": False, "input.norm": True, "stages": 1, "period": 2}
_WINDOWS = _STAGES | _pattern("windows", window=3)
_SHIFTED = _WINDOWS | _layer(1, {"mixer": "softmax"} | _pattern("windows", window=3, shift=1))

# Two directions that never meet, and skip connections behind the first layer.
_ELMO: dict[str, Any] = {
    "mixer": "lstm",
    "mixer.size": 10,
    "mixer.projection": 8,
    "mixer.output": False,
    "mixer.bidirectional": True,
    "mixer.separate": True,
    "position": "none",
    "residual": "mixer_only",
    "residual.skip": True,
    "prefix": 1,
    "prefix.0.residual": "mixer_only",
    "input.width": 8,
    "input.projection": "repeat",
    "input.norm": False,
}

# A grid of 2 x 4 patches.
_GRID = _IMAGES | {"input.size": 4, "input.image_width": 8, "input.cls": False}

_ENCODERS_OF_IMAGES: dict[str, Any] = {"decoder": False, "packs": False, "ignores_padding": False}

VARIANTS = {
    "learned": Variant({}, oracle=oracles.attention, prunes=True),
    "sinusoidal": Variant({"position": "sinusoidal"}),
    "sinusoidal_halves": Variant({"position": "sinusoidal", "position.order": "halves"}),
    "sinusoidal_fairseq": Variant({"position": "sinusoidal", "position.order": "fairseq"}),
    "rotary": Variant({"position": "rotary"}),
    "rotary_fraction": Variant(
        {"position": "rotary", "position.fraction": 0.5, "residual": "parallel", "kv_heads": 1}, prunes=True
    ),
    "rotary_yarn": Variant(_scaling("yarn", original_length=4, beta_fast=0.5, beta_slow=0.1)),
    "rotary_dynamic": Variant(
        _scaling("dynamic", original_length=4), generates=False, packs=False, ignores_padding=False
    ),
    "rotary_longrope": Variant(
        _scaling("longrope", original_length=4, long_factors="1,3"), generates=False, packs=False, ignores_padding=False
    ),
    "t5": Variant({"position": "t5", "position.buckets": 8, "position.max_distance": 6} | _UNBIASED),
    "t5_every_layer": Variant(
        {"position": "t5", "position.buckets": 8, "position.max_distance": 6, "position.every_layer": True} | _UNBIASED
    ),
    "t5_absolute": Variant(
        {"position": "t5", "position.buckets": 8, "position.max_distance": 6, "position.absolute": True}
    ),
    "alibi": Variant({"position": "alibi"}),
    "disentangled": Variant(
        {"position": "disentangled", "position.buckets": 8, "position.max_distance": 5, "position.norm": True},
        decoder=False,
        prunes=True,
    ),
    "none": Variant({"position": "none"}),
    "learned_queries_keys": Variant({"position": "learned", "position.place": "queries_keys"}),
    "learned_concatenated": Variant({"position": "learned", "position.place": "concatenated"}),
    "learned_every_layer": Variant({"position": "learned", "position.place": "every_layer"}),
    "sinusoidal_every_layer": Variant({"position": "sinusoidal", "position.place": "every_layer"}),
    "sinusoidal_queries_keys": Variant({"position": "sinusoidal", "position.place": "queries_keys"}),
    "sinusoidal_concatenated": Variant({"position": "sinusoidal", "position.place": "concatenated"}),
    "shaw": Variant({"position": "shaw", "position.max_distance": 3}),
    "shaw_keys": Variant({"position": "shaw", "position.values": False, "kv_heads": 1} | _UNBIASED),
    "huang_1": Variant({"position": "huang", "position.method": 1, "position.max_distance": 3}),
    "huang_2": Variant({"position": "huang", "position.method": 2, "position.max_distance": 3}),
    "huang_3": Variant({"position": "huang", "position.method": 3, "position.max_distance": 3}),
    "huang_4": Variant({"position": "huang", "position.method": 4, "position.max_distance": 3}),
    "transformer_xl": Variant({"position": "transformer_xl"}),
    "sinusoidal_relative": Variant({"position": "sinusoidal_relative", "position.max_distance": 3}),
    "tupe": Variant({"position": "tupe"}),
    "tupe_relative": Variant(
        {"position": "tupe", "position.relative": True, "position.buckets": 8, "position.max_distance": 6}
    ),
    "tupe_tied": Variant({"position": "tupe", "position.reset": False, "position.max_distance": 17}),
    "linformer": Variant(
        {"mixer": "linformer", "mixer.rank": 4}, decoder=False, packs=False, oracle=fewer_keys.linformer, prunes=True
    ),
    "performer": Variant(
        {"mixer": "performer", "mixer.features": 8, "mixer.chunk": 3}, oracle=kernels.performer, prunes=True
    ),
    "linear": Variant({"mixer": "linear", "mixer.chunk": 3}, oracle=kernels.linear),
    "compressed": Variant({"mixer": "compressed"}, packs=False, oracle=fewer_keys.compressed),
    "compressed_memory": Variant({"mixer": "compressed", "mixer.memory": 3, "position": "rotary"}, packs=False),
    "spatial_reduction": Variant(
        _GRID | {"mixer": "spatial_reduction", "mixer.factor": 3},
        oracle=partial(grid.spatial_reduction, grid=(2, 4), factor=3),
        **_ENCODERS_OF_IMAGES,
    ),
    "stripes": Variant(
        _GRID | {"mixer": "stripes", "mixer.stripe": 2},
        oracle=partial(grid.stripes, grid=(2, 4), stripe=2),
        **_ENCODERS_OF_IMAGES,
    ),
    "twins": Variant(
        _WINDOWS | {"position": "none"} | _layer(1, {"mixer": "spatial_reduction", "mixer.factor": 2}),
        **_ENCODERS_OF_IMAGES,
    ),
    "neighbourhood": Variant(
        _GRID | _pattern("neighbourhood", window=3),
        oracle=partial(grid.neighbourhood, grid=(2, 4), size=3),
        **_ENCODERS_OF_IMAGES,
    ),
    "nystrom": Variant(
        {"mixer": "nystrom", "mixer.landmarks": 3, "mixer.window": 5},
        decoder=False,
        packs=False,
        oracle=fewer_keys.nystrom,
    ),
    "aft": Variant({"mixer": "aft", "mixer.rank": 3}, oracle=kernels.aft),
    "aft_local": Variant(
        {"mixer": "aft", "mixer.reach": "local", "mixer.window": 3, "mixer.rank": 3}, oracle=kernels.aft_local
    ),
    "aft_simple": Variant({"mixer": "aft", "mixer.reach": "simple"}, oracle=kernels.aft_simple),
    "delta": Variant({"mixer": "delta", "mixer.chunk": 3}, encoder=False, oracle=kernels.delta),
    "delta_elu": Variant({"mixer": "delta", "mixer.chunk": 4, "mixer.nu": None, "position": "rotary"}, encoder=False),
    "channel_groups": Variant(
        {"mixer": "channel_groups", "mixer.groups": 2, "kv_heads": None},
        decoder=False,
        packs=False,
        oracle=grid.channel_groups,
    ),
    "channel_groups_of_channels": Variant(
        {"mixer": "channel_groups", "mixer.scale": "channels"},
        decoder=False,
        packs=False,
        oracle=partial(grid.channel_groups, by_tokens=False),
    ),
    "xca": Variant({"mixer": "xca"}, decoder=False, packs=False, oracle=kernels.xca),
    "fnet": Variant({"mixer": "fnet"}, decoder=False, packs=False, ignores_padding=False, oracle=static.fnet),
    "dot": Variant({"mixer.score": "dot"}, oracle=scores.dot),
    "own_qkv_bias": Variant({"bias": False, "mixer.own_qkv_bias": True}),
    "dot_unbiased": Variant({"mixer.score": "dot", "mixer.qkv_bias": False}, oracle=scores.dot),
    "multiplicative": Variant({"mixer.score": "multiplicative", "position": "rotary"}, oracle=scores.multiplicative),
    "additive": Variant({"mixer.score": "additive", "position": "alibi"}, oracle=scores.additive),
    "key_value": Variant({"mixer.score": "additive", "mixer.split_states": True}, oracle=scores.key_value),
    "synthesizer": Variant({"mixer": "synthesizer"}, oracle=static.synthesizer),
    "synthesizer_mixture": Variant(
        {"mixer": "synthesizer", "mixer.terms": "dot_dense_random", "position": "alibi"}, oracle=static.synthesizer
    ),
    "synthesizer_fixed": Variant(
        {"mixer": "synthesizer", "mixer.terms": "random", "mixer.fixed": True}, oracle=static.synthesizer
    ),
    "synthesizer_factorized": Variant(
        {"mixer": "synthesizer", "mixer.terms": "dense_random", "mixer.factorized": True, "mixer.rank": 3},
        oracle=static.factorized_synthesizer,
    ),
    "gmlp": Variant({"mixer": "gmlp"}, oracle=static.gmlp),
    "textcnn": Variant(
        {"mixer": "textcnn", "mixer.windows": "2,3,4"}, decoder=False, generates=False, oracle=convolution.textcnn
    ),
    "lightconv": Variant({"mixer": "lightconv", "mixer.window": 4}, oracle=convolution.lightconv),
    "dynamicconv": Variant({"mixer": "dynamicconv", "mixer.window": 5}, oracle=convolution.dynamicconv),
    "gru": Variant({"mixer": "gru", "mixer.size": 10}, oracle=recurrent.gru),
    "lstm": Variant({"mixer": "lstm", "position": "none"}, oracle=recurrent.lstm),
    "lstm_bidirectional": Variant(
        {"mixer": "lstm", "mixer.size": 10, "mixer.bidirectional": True}, decoder=False, oracle=recurrent.lstm
    ),
    "lstm_projection": Variant(
        {"mixer": "lstm", "mixer.size": 10, "mixer.projection": 6, "position": "none"}, oracle=recurrent.lstm
    ),
    "gru_states": Variant(
        {"mixer": "gru", "mixer.output": False, "residual": "mixer_only", "position": "none"}, oracle=recurrent.gru
    ),
    "characters": Variant(
        {"input": "characters", "input.size": 4, "input.length": 5, "input.filters": "1x4,3x6", "input.width": 8}
        | {"tie_embeddings": False}
    ),
    "elmo": Variant(_ELMO, decoder=False, oracle=recurrent.lstm),
    "frames": Variant(
        {"input": "frames", "input.size": 11, "input.channels": 3, "input.convolutions": "3x1,3x2", "residual": "pre"},
        **_ENCODERS_OF_IMAGES,
    ),
    "spectrogram": Variant(
        {"input": "spectrogram", "input.size": 11, "input.channels": 6, "input.patch": 3, "residual": "pre"}
        | {"input.time_stride": 2, "input.band_stride": 1, "head.pool": "prefix", "head.dense": False},
        **_ENCODERS_OF_IMAGES,
    ),
    "tubes": Variant(
        {
            "input": "tubes",
            "input.frames": 4,
            "input.size": 8,
            "input.patch": 4,
            "input.channels": 3,
            "residual": "pre",
        },
        **_ENCODERS_OF_IMAGES,
    ),
    "reformer": Variant(
        {"mixer": "reformer", "mixer.buckets": 2, "mixer.rounds": 3, "mixer.chunk": 3},
        oracle=partial(clustered.reformer, chunk=3),
    ),
    "reformer_across": Variant(
        {"mixer": "reformer", "mixer.buckets": 2, "mixer.factor": 4, "mixer.chunk": 3, "mixer.across": True},
        generates=False,
        packs=False,
        ignores_padding=False,
        oracle=partial(clustered.reformer_across, chunk=3, sizes=(2, 4)),
    ),
    "reformer_seed": Variant(
        {"mixer": "reformer", "mixer.buckets": 2, "mixer.chunk": 3, "mixer.seed": 8, "mixer.bias": False}
    ),
    "routing": Variant(
        {"mixer": "routing", "mixer.clusters": 3, "mixer.chunk": 2, "period": 2} | _layer(1, _LOCAL),
        oracle=partial(clustered.routing, chunk=2),
    ),
    "routing_window": Variant(
        {"mixer": "routing", "mixer.clusters": 3, "mixer.window": 4, "period": 2} | _layer(1, _LOCAL),
        decoder=False,
        packs=False,
        oracle=partial(clustered.routing_window, window=4),
    ),
    "sinkhorn": Variant(
        {"mixer": "sinkhorn", "mixer.block": 3, "mixer.iterations": 4},
        packs=False,
        oracle=partial(clustered.sinkhorn, block=3, iterations=4, temperature=0.75),
    ),
    "axial": Variant({"position": "axial", "position.rows": 3, "position.columns": 6, "position.row_width": 6}),
    "pre": Variant({"residual": "pre"}),
    "parallel": Variant({"residual": "parallel"}),
    "no_residual": Variant({"residual": "none"}),
    "no_norm": Variant({"residual": "pre", "norm": "none"}),
    "rezero": Variant({"residual": "rezero"}, trains_deep=True),
    "tfixup": Variant({"residual": "tfixup", "input.norm": False}, trains_deep=True),
    "dtfixup": Variant({"residual": "dtfixup"}),
    "admin": Variant({"residual": "admin"}, trains_deep=True),
    "reversible": Variant({"residual": "reversible"}),
    "reversible_kinds": Variant(
        {"residual": "reversible", "layers": 6, "position": "t5", "position.buckets": 8, "position.max_distance": 6}
        | {"prefix": 1, "period": 2}
        | _layer(0, _LOCAL)
    ),
    "reversible_concatenated": Variant(
        {"residual": "reversible", "residual.merge": "concatenated", "tie_embeddings": False}
    ),
    "deepnorm": Variant({"residual": "deepnorm"}),
    "experts": Variant({"feed_forward": "experts", "feed_forward.experts": 3, "feed_forward.shared": 1}),
    "experts_every_second_layer": Variant(
        {"period": 2} | _UNBIASED | _layer(0, {"feed_forward": "experts", "feed_forward.experts": 3})
    ),
    "experts_with_room": Variant(
        {"feed_forward": "experts", "feed_forward.experts": 3, "feed_forward.top_k": 1, "feed_forward.capacity": 0.8},
        generates=False,
        packs=False,
        ignores_padding=False,
    ),
    "expert_choice": Variant(
        {"feed_forward": "expert_choice", "feed_forward.experts": 3},
        decoder=False,
        packs=False,
        ignores_padding=False,
    ),
    "sliding": Variant({"mixer.pattern": "sliding", "mixer.pattern.window": 3, "position": "rotary"}),
    "local": Variant(_BLOCKS, oracle=patterns.pattern(_BLOCKS)),
    "dilated": Variant(_DILATED | {"period": 2} | _layer(1, _LOCAL), oracle=patterns.pattern(_DILATED)),
    "dilated_heads": Variant(_DILATED_HEADS, oracle=patterns.pattern(_DILATED_HEADS)),
    "strided": Variant(_STRIDED, oracle=patterns.pattern(_STRIDED)),
    "fixed": Variant(_FIXED, oracle=patterns.pattern(_FIXED)),
    "global": Variant(_GLOBAL, oracle=patterns.pattern(_GLOBAL)),
    "longformer": Variant(_LONGFORMER, decoder=False, packs=False, oracle=patterns.pattern(_LONGFORMER)),
    "global_places": Variant(_PLACES, oracle=patterns.pattern(_PLACES)),
    "longformer_places": Variant(
        _LONGFORMER_PLACES, decoder=False, packs=False, oracle=patterns.pattern(_LONGFORMER_PLACES)
    ),
    "etc": Variant(_ETC, oracle=patterns.pattern(_ETC)),
    "transient": Variant(_TRANSIENT, decoder=False, packs=False, oracle=patterns.pattern(_TRANSIENT)),
    "longt5": Variant(
        _pattern("transient", radius=1, block=2)
        | {"position": "t5", "position.buckets": 8, "position.max_distance": 6, "position.blocks": True}
        | _UNBIASED,
        decoder=False,
        packs=False,
    ),
    "bigbird": Variant(_BIGBIRD, oracle=patterns.pattern(_BIGBIRD)),
    "bigbird_of_folders": Variant(
        _BIGBIRD_OF_FOLDERS,
        decoder=False,
        packs=False,
        ignores_padding=False,
        oracle=patterns.bigbird_of_folders(_BIGBIRD_OF_FOLDERS),
    ),
    "longformer_without_global_tokens": Variant(
        _LONGFORMER | {"mixer.pattern.tokens": 0}, oracle=patterns.pattern(_LONGFORMER | {"mixer.pattern.tokens": 0})
    ),
    "qk_norm": Variant(
        {"mixer.qk_norm": True, "head_size": 6, "position": "rotary", "activation": "swiglu"} | _UNBIASED, prunes=True
    ),
    "llama": Variant(
        {"kv_heads": None, "position": "rotary", "activation": "swiglu", "tie_embeddings": False} | _UNBIASED
    ),
    "shared": Variant({"share_layers": True, "input.width": 6, "tie_embeddings": False}, prunes=True),
    "gpt3": Variant({"residual": "pre", "period": 2} | _layer(1, _LOCAL), prunes=True),
    "modernbert": Variant(
        {"layers": 6, "position": "rotary", "position.base": 700.0, "residual": "pre", "norm": "layer_no_bias"}
        | {"prefix": 1, "period": 3}
        | _layer(0, {"residual": "pre", "residual.mixer_norm": False}, "prefix")
        | _layer(0, _LOCAL_ROTARY)
        | _layer(1, _LOCAL_ROTARY),
        prunes=True,
    ),
    "gemma3": Variant(
        {"layers": 7, "position": "rotary", "position.base": 700.0, "mixer.qk_norm": True, "period": 6}
        | _UNBIASED
        | {name: value for index in range(5) for name, value in _layer(index, _LOCAL_ROTARY).items()}
    ),
    "patches_rotary": Variant(
        _IMAGES | {"input.image_width": 12, "position": "rotary", "position.axes": 2},
        **_ENCODERS_OF_IMAGES,
    ),
    "patches_sinusoidal": Variant(
        _IMAGES
        | {"input.cls": False, "input.norm": True, "input.bias": False, "position": "sinusoidal", "position.axes": 2},
        **_ENCODERS_OF_IMAGES,
    ),
    "xcit": Variant(
        _GRID | {"mixer": "xca", "position": "none", "residual": "patch_interaction", "residual.layer_scale": 0.5},
        **_ENCODERS_OF_IMAGES,
    ),
    "davit": Variant(
        _WINDOWS
        | {"position": "none", "residual": "conditional", "input.size": 8, "input.kernel": 3, "stages.kernel": 3}
        | {"stages.norm": "first", "stages.bias": True}
        | _layer(1, {"mixer": "channel_groups"}),
        **_ENCODERS_OF_IMAGES,
    ),
    "swin_v2": Variant(
        _SHIFTED
        | {"position": "swin_v2", "position.hidden": 6, "residual": "res_post", "mixer.key_bias": False}
        | {"period.1.mixer.key_bias": False, "stages.norm": "last"},
        **_ENCODERS_OF_IMAGES,
    ),
    "mix_ffn": Variant(_GRID | {"feed_forward": "mix_ffn", "position": "none"}, **_ENCODERS_OF_IMAGES),
    "pvt": Variant(
        _STAGES
        | {"period": 1, "input.patch_norm": True, "input.norm": False, "stages": 2, "stages.norm": "last"}
        | {"stages.mixer": "spatial_reduction", "stages.positions": True, "stages.bias": True}
        | {"stages.0.kernel": 3, "stages.0.ffn": 20, "stages.0.norm_before": True}
        | {
            "stages.1.mixer.factor": 1,
            "stages.1.ffn": 36,
            "stages.1.width": 24,
            "stages.1.heads": 6,
            "stages.1.cls": True,
        },
        **_ENCODERS_OF_IMAGES,
    ),
    "swin": Variant(_SHIFTED | {"position": "swin"}, **_ENCODERS_OF_IMAGES),
    "beit": Variant(
        _IMAGES
        | {"input.image_width": 12, "input.mask_token": True, "position": "beit", "position.shared": True}
        | {"position.absolute": True, "mixer.key_bias": False, "residual.final_norm": False},
        **_ENCODERS_OF_IMAGES,
    ),
    "tokens_and_patches": Variant(_IMAGES | {"input": "tokens_and_patches", "input.patch": 4}, **_ENCODERS_OF_IMAGES),
    "patches": Variant(
        _IMAGES | {"input.distilled": True, "residual.layer_scale": 0.5, "drop_path": 0.3}, **_ENCODERS_OF_IMAGES
    ),
    "resnet": Variant(
        {"input": "resnet", "input.size": 8, "input.stem": "small", "input.kind": "basic", "input.groups": 2}
        | {"input.blocks": "4x1,6x1", "residual": "pre"},
        **_ENCODERS_OF_IMAGES,
    ),
    "detr": Variant(
        {"input": "resnet_v1", "input.size": 16, "input.stem": 4, "input.kind": "basic", "input.blocks": "4x1,6x1"}
        | {"input.frozen": True, "position": "detr"},
        **_ENCODERS_OF_IMAGES,
    ),
    "t5_alternating": Variant(
        {"position": "t5", "position.buckets": 8, "position.max_distance": 6, "period": 2}
        | _UNBIASED
        | _layer(0, _LOCAL)
    ),
}

"""Transformers as pure functions on JAX.

Everything public stands here, by the file it lives in. A name is loaded when it is first used, so that a command's `--help` does not
wait for jax.
"""

import importlib

PUBLIC = {
    "axes": ("AXES", "MESH_AXES", "make_mesh", "partition"),
    "config.model": ("Config",),
    "params": (
        "Spec",
        "abstract",
        "bias_spec",
        "count_params",
        "decay_mask",
        "init",
        "scale_spec",
        "shardings",
        "stacked",
        "weight_spec",
    ),
    "ops": (
        "Linear",
        "Norm",
        "dropout",
        "einsum",
        "layer_norm",
        "linear",
        "linear_specs",
        "lookup",
        "norm_specs",
        "rms_norm",
    ),
    "sharding": ("unshard_fsdp",),
    "positions.absolute": (
        "alibi",
        "t5_bias",
        "learned",
        "position_specs",
        "rotary",
        "rotate",
        "sinusoidal",
        "sinusoidal_halves",
    ),
    "masks": ("Mask", "causal", "padding", "prefix", "segments", "left_padding", "strided", "window"),
    "attention.attend": (
        *(
            "Attention",
            "Dense",
            "Recorded",
            "attend",
            "attention_specs",
            "attention_sublayer",
            "attention_weights",
            "attention_scores",
            "keys_values",
            "weighted_sum",
        ),
        "multi_head_attention",
    ),
    "attention.bias": ("ScoreBias",),
    "attention.kernels": ("Choice", "KernelError", "choose_kernel", "chunked", "cudnn", "splash"),
    "layers.feed_forward": ("FeedForward", "feed_forward", "feed_forward_specs"),
    "layers.block": ("Block", "block_specs", "transformer_block", "watched_block"),
    "models.encoder": ("Embed", "Encoder", "decoder", "embed", "encoder", "encoder_specs", "placed", "stack"),
    "models.heads": (
        *(
            "CausalLM",
            "Classifier",
            "MaskedLM",
            "MlmHead",
            "causal_lm",
            "causal_lm_specs",
            "classifier_specs",
            "classify",
        ),
        *(
            "masked_lm",
            "masked_lm_specs",
            "lm_features",
            "mlm_logits",
            "mlm_features",
            "next_logits",
            "next_sentence",
            "states_at",
        ),
        *("Tagger", "classify_tokens", "tagger_specs"),
    ),
    "models.seq2seq": ("Seq2Seq", "alignment", "encode_source", "seq2seq", "seq2seq_specs"),
    "models.losses": ("cross_entropy", "unembed", "vocabulary_loss"),
    "decoding.cache": ("Cache", "extend", "prefill"),
    "decoding.constraints": ("Constraints",),
    "decoding.sampling": ("Greedy", "Sample"),
    "decoding.generate": ("Generated", "Generation", "bucket", "generate"),
    "decoding.beam": ("Beam", "Hypothesis", "beam_search"),
    "nnx": ("Module",),
    "hf.folder": ("from_hf", "to_hf"),
}

_HOME = {name: module for module, names in PUBLIC.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"tfm has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"tfm.{_HOME[name]}"), name)


def __dir__():
    return __all__

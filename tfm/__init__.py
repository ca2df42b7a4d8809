"""Transformers as pure functions on JAX.

Everything public stands here, by the file it lives in. A name is loaded when it is first used, so that a command's
`--help` does not wait for jax.
"""

import importlib

PUBLIC = {
    "axes": ("AXES", "MESH_AXES", "make_mesh", "partition"),
    "config.model": ("COMPUTE", "Config", "Layer"),
    "config.heads": ("Head",),
    "config.inputs": ("Merging", "Patches", "Tokens"),
    "config.stages": ("Stage",),
    "config.towers": ("ImageTower",),
    "config.dotted": ("flatten", "override"),
    "params": (
        *(
            "Spec",
            "abstract",
            "bias_spec",
            "constant_spec",
            "count_params",
            "decay_mask",
            "fixed_spec",
            "init",
            "running_spec",
            "scale_spec",
            "shardings",
        ),
        *("redraw", "stacked", "trained_mask", "vector_spec", "weight_spec"),
    ),
    "int8": ("Int8",),
    "quantization": ("quantize_weights",),
    "low_rank": ("LowRank", "low_rank_specs", "merge_low_rank"),
    "ops": (
        "Linear",
        "dropout",
        "einsum",
        "linear",
        "linear_specs",
        "lookup",
        "unit_vectors",
    ),
    "norms": ("Norm", "layer_norm", "norm_specs", "rms_norm"),
    "catalogue.studies.finite": ("Origin", "ScopedRun", "first_not_finite", "names_not_finite", "run_by_scope"),
    "sharding": ("take_positions", "unshard_fsdp"),
    "masks.mask": ("Mask",),
    "masks.distance": ("causal", "strided", "window"),
    "masks.by_example": ("left_padding", "padding", "prefix", "segments"),
    "catalogue.patterns.grid_windows": ("grid_windows",),
    "masks.place": ("chosen_blocks", "global_places", "global_tokens", "last_tokens", "local_blocks", "summaries"),
    "attention.attend": ("attend", "attention_scores", "attention_weights", "weighted_sum"),
    "attention.bias": ("ScoreBias",),
    "attention.context": ("AttentionContext", "LayerCall", "MixerOutput", "VariantError"),
    "attention.cross": ("Memory",),
    "attention.kernels.choice": ("Choice", "KernelError", "choose_kernel", "chunked", "cudnn", "splash"),
    "attention.project": (
        "Attention",
        "attention_specs",
        "keys_values",
        "merge_heads",
        "multi_head_attention",
        "queries",
    ),
    "mixers": ("mixer_of",),
    "positions": ("position_of",),
    "catalogue.positions.alibi": ("alibi",),
    "positions.rotary": ("rotary_angles", "rotate"),
    "positions.sinusoidal": ("sinusoidal",),
    "catalogue.positions.t5": ("T5Bias",),
    "residuals": ("residual_of",),
    "layers.feed_forward": ("FeedForward", "feed_forward", "feed_forward_specs"),
    "layers.block": ("Block", "BlockInput", "BlockOutput", "block_specs", "transformer_block"),
    "layers.calibration": ("needs_calibration",),
    "catalogue.models.calibrate": ("calibrate",),
    "layers.stack": ("Layers", "by_layer", "stack", "stack_specs"),
    "inputs": ("MaskedPixels", "default_positions", "embed", "embed_specs", "input_of"),
    "inputs.tokens": ("Embed",),
    "catalogue.inputs.patches": ("PatchEmbed",),
    "models.encoder": ("Encoder", "decoder", "encoder", "encoder_specs", "hidden_states"),
    "models.pooling": ("pool",),
    "catalogue.models.segments": ("SegmentMemory", "read_segment", "segment_memory"),
    "catalogue.studies.position_effects": ("position_scores", "position_similarity"),
    "models.classifier": ("Classifier", "classifier_specs", "classify", "classify_distilled"),
    "models.first_layers": ("first_layers", "spaced_layers"),
    "catalogue.models.interpolation": ("interpolate_positions",),
    "models.heads": (
        *("CausalLM", "MaskedLM", "MlmHead", "Tagger", "causal_lm", "causal_lm_specs", "classify_tokens"),
        *(
            "lm_features",
            "masked_image",
            "masked_image_specs",
            "masked_lm",
            "masked_lm_specs",
            "mlm_features",
            "mlm_logits",
            "next_logits",
        ),
        *("next_sentence", "patch_logits", "tagger_specs"),
    ),
    "models.choices": ("score_choices",),
    "catalogue.models.towers": ("Towers", "image_vectors", "text_vectors", "towers_specs"),
    "losses.contrast": ("in_batch_losses", "sigmoid_losses", "symmetric_losses"),
    "losses.distillation": ("cosine_losses", "hard_losses", "soft_losses"),
    "models.features": ("LayerMix", "features"),
    "catalogue.models.bidirectional_lm": ("BidirectionalLM", "bidirectional_lm_specs", "directions"),
    "catalogue.models.skip_thought": ("SkipThought", "sentence_vector", "skip_thought_specs", "write_sentence"),
    "losses.sampled": ("log_uniform", "sampled_loss"),
    "models.seq2seq": (
        "Seq2Seq",
        "alignment",
        "decoder_of",
        "encode_packed",
        "encode_source",
        "encoder_config",
        "cross_keys_values",
        "seq2seq",
        "seq2seq_specs",
    ),
    "losses.vocabulary": ("cross_entropy", "unembed", "vocabulary_loss"),
    "decoding.cache": ("Cache", "extend", "prefill", "separate_layers", "allocate_slots"),
    "decoding.constraints": ("Constraints",),
    "decoding.sampling": ("Greedy", "Sample"),
    "decoding.generate": ("Generated", "Generation", "bucket", "generate"),
    "catalogue.decoding.drafts": ("DraftModel", "NGram"),
    "catalogue.decoding.speculation": ("Speculation",),
    "decoding.beam": ("Hypothesis", "beam_search"),
    "decoding.beam_strategy": ("Beam",),
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

"""Transformers as pure functions on JAX.

Everything public stands here, by the file it lives in. Type checkers and editors follow these imports; at run time a
name is loaded when it is first used, so that a command's `--help` does not wait for jax.
"""

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfm.attention.attend import attend, attention_scores, attention_weights, weighted_sum
    from tfm.attention.bias import ScoreBias
    from tfm.attention.kernels.choice import Choice, KernelError, choose_kernel, chunked, cudnn, splash
    from tfm.attention.project import (
        Attention,
        attention_specs,
        keys_values,
        merge_heads,
        multi_head_attention,
        queries,
    )
    from tfm.auxiliary import LossPlace, attach_loss, has_losses, with_loss_weight
    from tfm.axes import AXES, MESH_AXES, make_mesh, partition
    from tfm.catalogue.decoding.drafts import DraftModel, NGram
    from tfm.catalogue.decoding.speculation import Speculation
    from tfm.catalogue.decoding.unmasking import Canvas, Unmasking, unmask
    from tfm.catalogue.inputs.frames import FrameEmbed, PaddedFrames, valid_frames
    from tfm.catalogue.inputs.patches import PatchEmbed
    from tfm.catalogue.inputs.tubes import TubeEmbed
    from tfm.catalogue.models.bidirectional_lm import BidirectionalLM, bidirectional_lm_specs, directions
    from tfm.catalogue.models.calibration import calibrate, needs_calibration
    from tfm.catalogue.models.interpolation import interpolate_positions
    from tfm.catalogue.models.object_queries import DetectedObjects, ObjectDetector, detect, detector_specs
    from tfm.catalogue.models.pixel_outputs import (
        StageTagger,
        output_grid,
        pixel_features,
        pixel_logits,
        pixel_outputs,
        pixel_specs,
    )
    from tfm.catalogue.models.replaced_tokens import (
        PredictedPlaces,
        ReplacedDetector,
        Replacement,
        discriminator_of,
        generator_config,
        generator_of,
        replace_tokens,
        replaced_detector_specs,
        replaced_logits,
    )
    from tfm.catalogue.models.segments import SegmentMemory, read_segment, segment_memory
    from tfm.catalogue.models.skip_thought import SkipThought, sentence_vector, skip_thought_specs, write_sentence
    from tfm.catalogue.models.towers import Towers, image_vectors, text_vectors, towers_specs
    from tfm.catalogue.options.frames import Frames, Spectrogram, Tubes
    from tfm.catalogue.options.generator import GeneratorShape
    from tfm.catalogue.options.inputs import Merging, Patches
    from tfm.catalogue.options.pictures import ResNet, ResNetV1, TokensAndPatches
    from tfm.catalogue.patterns.grid_windows import grid_windows
    from tfm.catalogue.positions.alibi import alibi
    from tfm.catalogue.positions.t5 import T5Bias
    from tfm.catalogue.studies.finite import Origin, ScopedRun, first_not_finite, names_not_finite, run_by_scope
    from tfm.catalogue.studies.position_effects import position_scores, position_similarity
    from tfm.config.heads import Head
    from tfm.config.inputs import Tokens
    from tfm.config.model import COMPUTE, Config, Layer
    from tfm.config.stages import Stage
    from tfm.config.towers import ImageTower
    from tfm.decoding.beam import Hypothesis, beam_search
    from tfm.decoding.beam_strategy import Beam
    from tfm.decoding.cache import Cache, allocate_slots, extend, prefill, separate_layers
    from tfm.decoding.constraints import Constraints
    from tfm.decoding.generate import Generated, Generation, bucket, generate
    from tfm.decoding.sampling import Greedy, Sample
    from tfm.feed_forwards import FeedForward, feed_forward, feed_forward_specs
    from tfm.hf.folder import from_hf, to_hf
    from tfm.inputs import Embed, MaskedPixels, PicturedTokens, default_positions
    from tfm.int8 import Int8
    from tfm.interfaces import AttentionContext, Block, BlockOutput, LayerCall, Memory, MixerOutput, VariantError
    from tfm.layers.block import block_specs, transformer_block
    from tfm.layers.stack import Layers, by_layer, prepare_layers, stack, stack_specs
    from tfm.losses.contrast import in_batch_losses, sigmoid_losses, symmetric_losses
    from tfm.losses.distillation import cosine_losses, hard_losses, soft_losses
    from tfm.losses.ranking import cosent_loss, divergences, lambda_losses, list_losses, margin_losses
    from tfm.losses.sampled import log_uniform, sampled_loss
    from tfm.losses.vocabulary import cross_entropy, unembed, vocabulary_loss
    from tfm.low_rank import LowRank, low_rank_specs, merge_low_rank
    from tfm.masks.by_example import left_padding, padding, prefix, segments
    from tfm.masks.distance import causal, strided, window
    from tfm.masks.mask import Mask
    from tfm.masks.place import chosen_blocks, global_places, global_tokens, last_tokens, local_blocks, summaries
    from tfm.models.choices import score_choices
    from tfm.models.classifier import Classifier, classifier_specs, classify, classify_distilled
    from tfm.models.encoder import Encoder, decoder, encoder, encoder_specs, hidden_states
    from tfm.models.features import LayerMix, features
    from tfm.models.first_layers import first_layers, spaced_layers
    from tfm.models.heads import (
        CausalLM,
        MaskedLM,
        MlmHead,
        Tagger,
        causal_lm,
        causal_lm_specs,
        classify_tokens,
        lm_features,
        masked_image,
        masked_image_specs,
        masked_lm,
        masked_lm_specs,
        mlm_features,
        mlm_logits,
        next_logits,
        next_sentence,
        patch_logits,
        tagger_specs,
    )
    from tfm.models.pooling import pool, segment_tokens
    from tfm.models.seq2seq import (
        Seq2Seq,
        alignment,
        cross_keys_values,
        decoder_of,
        encode_packed,
        encode_source,
        encoder_config,
        seq2seq,
        seq2seq_specs,
    )
    from tfm.nnx import Module
    from tfm.norms import Norm, layer_norm, norm_specs, rms_norm
    from tfm.ops import Linear, dropout, einsum, linear, linear_specs, lookup, unit_vectors
    from tfm.options.dotted import flatten, override
    from tfm.params import (
        Spec,
        abstract,
        bias_spec,
        constant_spec,
        count_params,
        decay_mask,
        fixed_spec,
        init,
        redraw,
        running_spec,
        scale_spec,
        shardings,
        stacked,
        trained_mask,
        vector_spec,
        weight_spec,
    )
    from tfm.positions.absolute import sinusoidal
    from tfm.positions.rotary import rotary_angles, rotate
    from tfm.quantization import quantize_weights
    from tfm.sharding import take_positions, unshard_fsdp
    from tfm.tables.inputs import embed, embed_specs, input_of
    from tfm.tables.mixers import mixer_of
    from tfm.tables.positions import position_of
    from tfm.tables.residuals import residual_of

# The module of every public name: the imports above.
PUBLIC = {
    alias.name: str(node.module)
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).startswith("tfm.")
    for alias in node.names
}
__all__ = sorted(PUBLIC)


def __getattr__(name: str):
    if name not in PUBLIC:
        raise AttributeError(f"tfm has no {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return __all__

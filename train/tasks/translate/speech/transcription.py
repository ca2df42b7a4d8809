"""What a trained model writes of sounds: batches of sounds, and beam search."""

from functools import partial

import jax
import numpy as np
from jax import Array

import tfm
from train.data.batching import row_batches
from train.devices.capacity import check_decoding
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.schema import Run
from train.sounds.rows import Sounds
from train.tasks.translate.options import Translate
from train.tasks.translate.speech.rows import SpeechProcessor
from train.tasks.translate.translation import TextWriter, limit_new_tokens


def transcribe(
    params: tfm.Seq2Seq,
    run: Run[Translate],
    processor: SpeechProcessor,
    sounds: Sounds,
    log: Log,
    batch: int = 32,
    count: int | None = None,
) -> list[str]:
    """The best text of each sound, or of the first `count`, in order."""
    params, writer = tfm.separate_layers(params, run.model), TextWriter.of(run, processor.tokenizer)
    total = len(sounds) if count is None else min(count, len(sounds))
    start = writer.template.decoder_prefix
    limit = limit_new_tokens(run.model, start, run.batch.length)
    texts: list[str] = []
    with log.progress(f"transcribing {total} sounds", total) as advance:
        for rows, size in row_batches(range(total), max(1, min(batch, total))):
            fields, starts = sounds.batch(rows), [start] * len(rows)
            model = checked(encode_sounds, run.model, params, fields["frames"], fields["lengths"])
            check_decoding(model, run.model, len(rows), limit, writer.beam.width)
            texts += writer.texts(model, starts, starts, limit)[:size]
            advance(size)
    return texts


@partial(jax.jit, static_argnums=0)
def encode_sounds(config: tfm.Config, params: tfm.Seq2Seq, frames: Array, lengths: Array) -> tfm.CausalLM:
    """frames [B,T,C] of which `lengths` [B] are of a sound -> a language model of what is said."""
    valid = tfm.valid_frames(tfm.encoder_config(config), lengths)
    return tfm.encode_source(params, config, tfm.PaddedFrames(frames, lengths), valid)


def alignment(run: Run[Translate], params: tfm.Seq2Seq, fields: dict[str, np.ndarray]) -> np.ndarray:
    """A batch -> cross-attention weights float32 [B,T,S] of the tokens of its texts, a mean over layers and heads."""
    model = encode_sounds(run.model, params, fields["frames"], fields["lengths"])
    return np.asarray(_alignment(run.model, model, fields["target"]))


@partial(jax.jit, static_argnums=0)
def _alignment(config: tfm.Config, model: tfm.CausalLM, target: Array) -> Array:
    return tfm.alignment(model, config, target).mean((0, 2))

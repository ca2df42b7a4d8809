"""What is said in sounds (Radford et al. 2022): `--task=translate` is this file where the encoder reads frames.

A row is a sound and its text, in 8 target places (| begins and ends a text):

    frames            float32 [B,T,C], C bands of T frames           what the encoder reads
    lengths           int32 [B], the frames of the sound; behind them is padding
    target            | three one four [PAD]                         what the decoder reads
    valid             1   1    1   1    0                            0 is padding
    targets           three one four | [PAD]                         the token that comes next
    weights           1      1   1   1  0
    smoothing         0.1                                            label smoothing of the row
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array

import tfm
from tfm.ops import split
from train import UserError
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.sources.files import Row
from train.data.tokens import PLAIN, encode
from train.files import cache
from train.losses.teaching import OutputLoss, TokenOutputs
from train.metrics.words import word_errors
from train.screens.console import Log
from train.settings.schema import Run
from train.sounds import sheets, sources, synthetic
from train.sounds.processor import SoundProcessor, run_processor
from train.sounds.rows import Sounds, frame_fields
from train.tasks.record import Saved, Task
from train.tasks.translate import marks
from train.tasks.translate.options import Translate
from train.tasks.translate.source import columns_of
from train.tasks.translate.speech.predict import PREDICTOR
from train.tasks.translate.speech.rows import SPEECH_PROCESSOR, SpeechProcessor, SpeechRows
from train.tasks.translate.speech.transcription import alignment, transcribe
from train.tasks.translate.targets import target_metrics, target_sums
from train.tasks.translate.task import TRANSLATE, hf_run_values, specs
from train.text import tokenize

# Built-in sounds to train on and to validate on, their digits, and those that are shown after a run.
_TRAIN, _VALID, _DIGITS, _SHOWN = 3000, 300, (2, 4), 8


def batch_spec(run: Run[Translate]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    return {
        **frame_fields(run, tfm.encoder_config(run.model)),
        "target": Field("BT", np.int32, counts_tokens=True),
        "valid": Field("BT", np.int32),
        "targets": Field("BT", np.int32, predicts="V"),
        "weights": Field("BT", np.float32, weighs=True, order=("target", 1)),
        "smoothing": Field("B", np.float32),
    }


def outputs(params: tfm.Seq2Seq, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> TokenOutputs:
    """What the model says of the next tokens of a batch."""
    encoder_key, decoder_key = split(key, 2)
    lengths = batch["lengths"]
    seen = tfm.valid_frames(tfm.encoder_config(model), lengths)
    lm = tfm.encode_source(params, model, tfm.PaddedFrames(batch["frames"], lengths), seen, encoder_key)
    hidden = tfm.decoder(lm.decoder, model, batch["target"], key=decoder_key, memory=lm.memory)
    return TokenOutputs(hidden, batch["valid"] > 0, tfm.lm_features(model, hidden), model, lm.output, lm.bias)


loss = OutputLoss(outputs, target_sums)


def load(run: Run[Translate], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[SpeechRows]:
    """Processor and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training sounds if --eval-data names others for validation. Raises UserError for a
    processor of other sizes than the model's, and for bad data.
    """
    columns = columns_of(run.data, run.task)
    parts = sources.load(run.data, columns, lambda: _builtin(*columns.texts), log, valid_only)
    sounds, kept_tokenizer = _parts_of(saved.processor if saved else None)
    processor = run_processor(run, tfm.encoder_config(run.model).input, sounds)
    tokenizer = kept_tokenizer or tokenize.load(run.tokenizer, [row["label"] for row in parts[0]], log)
    template, length = marks.template(tokenizer, run.task), run.batch.length
    dropped = 0

    def rows_of(rows: list[Row], name: str, smoothing: float) -> SpeechRows:
        nonlocal dropped
        spoken = sources.readable([row for row in rows if row["label"].strip()], processor, run.data, log)
        texts = [row["label"].strip() for row in spoken]
        ids = encode(tokenizer, texts, log, name, PLAIN)
        kept = _fitting(spoken, ids.lengths + sum(map(len, template.target)), run)
        if len(kept) < len(spoken):
            dropped += len(spoken) - len(kept)
            spoken, texts, ids = [spoken[row] for row in kept], [texts[row] for row in kept], ids.take(np.array(kept))
        encoder = tfm.encoder_config(run.model)
        sounds = Sounds(spoken, processor, encoder.input.max_length(encoder) or 0)
        hashes.append([sources.stamp(row) for row in spoken])
        return SpeechRows(sounds, texts, ids, template, length, smoothing)

    hashes: list[list[str]] = []
    train_rows = [rows_of(parts[0], "texts", run.task.smoothing)] if parts[0] else []
    valid_rows = rows_of(parts[1], "validation texts", 0.0)
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*hashes),
        "segmentation_hash": "",
        "train_rows": sum(map(len, train_rows)),
        "eval_rows": len(valid_rows),
        "long": dropped,
    }
    sizes = {"vocab": tokenizer.get_vocab_size()}
    return Corpus(run, SpeechProcessor(processor, tokenizer), train_rows, valid_rows, sizes, facts)


def _parts_of(processor: object) -> tuple[SoundProcessor | None, Any]:
    """The processor of sounds and the tokenizer of another run, which may have one of them alone, or none."""
    if isinstance(processor, SpeechProcessor):
        return processor
    return (processor, None) if isinstance(processor, SoundProcessor) else (None, processor)


def _builtin(sound: str, text: str) -> tuple[list[Row], list[Row]]:
    """Strings of digits to train on and to validate on, in these columns."""
    parts = synthetic.generate(_TRAIN, _DIGITS, 2), synthetic.generate(_VALID, _DIGITS, 3)
    train, valid = ([{sound: name, text: synthetic.words_of(name)} for name in part] for part in parts)
    return train, valid


def _fitting(rows: list[Row], sizes: np.ndarray, run: Run[Translate]) -> list[int]:
    """The rows whose texts have places. Raises UserError where none has, and for one that has not under
    --task.long=error."""
    fits = sizes <= run.batch.length
    if not fits.all() and (run.task.long == "error" or not fits.any()):
        row = int(np.flatnonzero(~fits)[0])
        raise UserError(
            f"{rows[row]['sound']} has a text of {sizes[row]} tokens, and --batch.length={run.batch.length}; raise "
            "that, or leave the sound out"
        )
    return np.flatnonzero(fits).tolist()


def baselines(corpus: Corpus[SpeechRows]) -> dict[str, float]:
    """`n`: the number of validation sounds."""
    return {"n": len(corpus.valid)}


def generation_metrics(
    params: tfm.Seq2Seq,
    run: Run[Translate],
    corpus: Corpus[SpeechRows],
    log: Log,
    during_training: bool = False,
    against: str | None = None,
) -> dict[str, float]:
    """The word error rate, and the share of sounds without an error: of `--task.bleu` sounds during training."""
    if during_training and not run.task.bleu:
        return {}
    rows, count = corpus.valid, run.task.bleu if during_training else None
    texts = transcribe(params, run, corpus.processor, rows.sounds, log, count=count)
    return word_errors(texts, rows.texts[: len(texts)])


def report(
    params: tfm.Seq2Seq, run: Run[Translate], corpus: Corpus[SpeechRows], log: Log, outcomes: Mapping, folder: Path
):
    """Prints what the model hears in some sounds, and draws plots/alignment.png: where it listens for each token."""
    rows = corpus.valid
    texts = transcribe(params, run, corpus.processor, rows.sounds, log, count=_SHOWN)
    for text, reference in zip(texts, rows.texts, strict=False):
        log.info(f"{text}\n  reference: {reference}\n")
    fields = rows.batch(np.arange(len(texts)), np.random.default_rng(0))
    decode = corpus.processor.tokenizer.id_to_token
    shown = []
    for weights, targets, valid, frames in zip(
        alignment(run, params, fields), fields["targets"], fields["valid"], fields["lengths"], strict=True
    ):
        seen = -(-int(frames) * rows.sounds.length // rows.sounds.processor.size)
        shown.append((weights[valid > 0, :seen], [decode(token) for token in targets[valid > 0].tolist()]))
    sheets.alignments([fields["frames"][n, : fields["lengths"][n]] for n in range(len(shown))], shown, folder / "plots")


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[SpeechRows], rows: int, path: Path):
    """Draws the first rows of batches, each under its text."""
    decode, spectrograms, titles = corpus.processor.tokenizer.decode, list[np.ndarray](), list[str]()
    for batch in batches:
        spectrograms += list(batch["frames"][:rows])
        titles += [decode(ids.tolist()) for ids in batch["targets"][:rows]]
    sheets.spectrograms(spectrograms, titles, path)


SPEECH = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=target_metrics,
    goals={"loss": min, "perplexity": min, "accuracy": max, "wer": min, "exact": max},
    baselines=baselines,
    report=report,
    processor=SPEECH_PROCESSOR,
    next_commands=("predict --run={folder} --file='YOUR/*.wav'", "evaluate --run={folder} --data=YOUR.tsv"),
    generates="transcript",
    generation_metrics=generation_metrics,
    predictor=PREDICTOR,
    contact_sheet=contact_sheet,
    hf_heads=("seq2seq",),
    hf_tokens=TRANSLATE.hf_tokens,
    hf_run_values=lambda head, folder: hf_run_values(head, folder, folder.processor.tokenizer),
    hf_fields=lambda run, processor, facts: TRANSLATE.hf_fields(run, processor.tokenizer, facts),
    hf_template=TRANSLATE.hf_template,
    hf_tokenizer_fields=TRANSLATE.hf_tokenizer_fields,
)

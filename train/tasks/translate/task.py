"""Translation: write a sentence in another language (Vaswani et al. 2017).

Two pairs in a row of 8 source and 8 target places (| begins and ends a sentence):

    tokens            the cat sat |  it sat |  [PAD]                 what the encoder reads
    segments           1   1   1  1  2   2  2   0                    the pair, from 1; 0 is padding
    positions          0   1   2  3  0   1  2   0                    within the pair
    target            | die Katze sass | sie sass [PAD]              what the decoder reads
    target_segments   1  1    1    1   2  2   2    0
    target_positions  0  1    2    3   0  1   2    0
    targets           die Katze sass | sie sass | [PAD]              the token that comes next
    weights            1   1     1   1  1   1   1   0
    smoothing         0.1                                            label smoothing of the row

Encoder, decoder and cross-attention stay within a pair. Where packing leaves more padding than rows of similar lengths,
and for a model that cannot keep texts of a row apart, a row has one pair.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from tokenizers import Tokenizer

import tfm
from tfm.ops import split
from train import UserError
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.sources import files
from train.data.sources.kept_pairs import Pair, sample
from train.data.synthetic import grammar
from train.data.tokens import segmentation_hash, segmentations
from train.files import cache
from train.losses.teaching import OutputLoss, TokenOutputs
from train.metrics import written
from train.screens import plots
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.record import Facts, HfSource, Saved, Task
from train.tasks.translate import marks, translation
from train.tasks.translate.options import EARLY_STOPPING, SCORES, WRITTEN_METRICS, Translate
from train.tasks.translate.predict import PREDICTOR
from train.tasks.translate.rows import PairReader, TranslationPairs
from train.tasks.translate.source import columns_of, load_pairs
from train.tasks.translate.targets import target_metrics, target_sums
from train.text import tokenize
from train.text.special import AnyTokenizer, generation_of


def specs(run: Run[Translate]) -> tfm.Seq2Seq:
    """The parameters of the run's model."""
    return tfm.seq2seq_specs(run.model)


def batch_spec(run: Run[Translate]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file; its rows may be shorter than T."""
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "segments": Field("BT", np.int32),
        "positions": Field("BT", np.int32),
        "target": Field("BT", np.int32, counts_tokens=True),
        "target_segments": Field("BT", np.int32),
        "target_positions": Field("BT", np.int32),
        "targets": Field("BT", np.int32, predicts="V"),
        "weights": Field("BT", np.float32, weighs=True, order=("target", 1)),
        "smoothing": Field("B", np.float32),
    }


def outputs(params: tfm.Seq2Seq, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> TokenOutputs:
    """What the model says of the next target tokens of a batch."""
    encoder_key, decoder_key = split(key, 2)
    segments, target_segments, mask, positions = batch["segments"], batch["target_segments"], None, None
    if model.reads_packed:
        mask, positions = tfm.segments(target_segments), batch["target_positions"]
        both = segments, target_segments
        lm = tfm.encode_packed(params, model, batch["tokens"], batch["positions"], both, encoder_key)
    else:
        lm = tfm.encode_source(params, model, batch["tokens"], segments > 0, encoder_key)
    hidden = tfm.decoder(lm.decoder, model, batch["target"], mask, positions, decoder_key, lm.memory)
    return TokenOutputs(hidden, target_segments > 0, tfm.lm_features(model, hidden), model, lm.output, lm.bias)


def sums(params: tfm.Seq2Seq, model: tfm.Config, batch: Mapping[str, Array], outputs: TokenOutputs) -> dict[str, Array]:
    """Those of the targets, and the `places` of tokens, of which some are `used`."""
    of_targets, segments = target_sums(params, model, batch, outputs), batch["segments"]
    return of_targets | {
        "used": of_targets["weight"] + (segments > 0).sum().astype(jnp.float32),
        "places": jnp.float32(batch["weights"].size + segments.size),
    }


loss = OutputLoss(outputs, sums, valid="target_segments")


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Those of the targets, and the share of padding."""
    return target_metrics(sums) | {"padding": 1 - sums["used"] / max(sums["places"], 1)}


def load(
    run: Run[Translate], log: Log, saved: Saved | None = None, valid_only: bool = False
) -> Corpus[TranslationPairs]:
    """Tokenizer and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training pairs if --eval-data names other pairs for validation.
    """
    splits: Any = grammar.kept_pairs() if "builtin" in (run.data.source, run.data.eval) else None
    columns = columns_of(run.data, run.task)

    def as_rows(pairs: Sequence[Pair]) -> list[files.Row]:
        return [columns.checked({"en": english, "de": german}, "builtin") for english, german in pairs]

    train, valid, empty = load_pairs(
        run.data, run.task, lambda: (as_rows(splits.train), as_rows(splits.test)), log.info, valid_only
    )
    tokenizer = saved.processor if saved else tokenize.load(run.tokenizer, sample(train), log)

    reader = PairReader(run, tokenizer, log)
    train_rows = [reader.training_rows(train, segmentation) for segmentation in (segmentations(run) if train else [])]
    valid_rows = reader.rows(valid, "validation pairs")
    test_sets = {}
    if splits and "builtin" in (run.data.eval or run.data.source):
        source, target = columns.texts
        pairs = [(row[source], row[target]) for row in as_rows(splits.compositional)]
        test_sets["compositional"] = reader.rows(pairs, "compositional pairs")
    sizes = {"vocab": tokenizer.get_vocab_size()}
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*((side for pair in part for side in pair) for part in (train, valid))),
        "segmentation_hash": segmentation_hash(
            run, (text for rows in train_rows for text in (rows.source, rows.target))
        ),
        "empty": empty,
        "long": sum(len(rows.long) for rows in (*train_rows[:1], valid_rows)),
    }
    return Corpus(run, tokenizer, train_rows, valid_rows, sizes, facts, test_sets)


def baselines(corpus: Corpus[TranslationPairs]) -> dict[str, float]:
    """`n`: the number of validation pairs; `n_long`: pairs that are too long for a loss, but are translated."""
    return {"n": len(corpus.valid), "n_long": len(corpus.valid.long)}


def generation_metrics(
    params: tfm.Seq2Seq,
    run: Run[Translate],
    corpus: Corpus[TranslationPairs],
    log: Log,
    during_training: bool = False,
    against: str | None = None,
) -> dict[str, Any]:
    """The metrics of `--task.scores` on the validation sentences and the test sets.

    during_training: on the first `--task.bleu` validation sentences alone, or nothing if it is 0
    against: a file of other translations to compare with; "" adds confidence intervals alone, None nothing. Raises
        UserError where the file does not have a line for each sentence.
    """
    if during_training and not run.task.bleu:
        return {}
    max_sentences = run.task.bleu if during_training else None
    results: dict[str, Any] = {}
    rows_by_name = {"": corpus.valid, **({} if max_sentences else corpus.test_sets)}
    for name, rows in rows_by_name.items():
        pairs = (rows.all_pairs if run.model.max_length is None else rows.pairs)[:max_sentences]
        translations = translation.translate(params, run, corpus.processor, [source for source, _ in pairs], log)
        references = [target for _, target in pairs]
        values = written.metrics(run.task.scores, translations, references)
        if name:
            results |= {f"{metric}_{name}": values[metric] for metric in SCORES[run.task.scores][:1]}
            continue
        results |= values
        if against is not None:
            rivals = _read_translations(against, len(pairs)) if against else None
            results |= written.intervals(run.task.scores, translations, references, rivals)
    return results


def _read_translations(path: str, count: int) -> list[str]:
    """The translations in a file. Raises UserError unless there are `count` lines."""
    lines = files.read_lines(Path(path))
    if len(lines) != count:
        raise UserError(
            f"--against={path} has {len(lines):,} lines, and {count:,} sentences are translated; give a line for each"
        )
    return lines


def report(
    params: tfm.Seq2Seq,
    run: Run[Translate],
    corpus: Corpus[TranslationPairs],
    log: Log,
    outcomes: Mapping,
    folder: Path,
):
    """Prints ten translations with their references, and draws the word alignments of some."""
    pairs = corpus.valid.pairs[:: max(1, len(corpus.valid.pairs) // 10)][:10]
    translations = translation.translate(params, run, corpus.processor, [source for source, _ in pairs], log)
    for (source, target), text in zip(pairs, translations, strict=True):
        log.info(f"{source}\n  {text}\n  reference: {target}\n")
    drawn = [(source, text) for (source, _), text in zip(pairs, translations, strict=True) if text][:4]
    plots.alignments([translation.word_alignment(params, run, corpus.processor, *pair) for pair in drawn], folder)


def hf_run_values(head: str, folder: HfSource, tokenizer: "AnyTokenizer | None" = None) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; the `tokenizer` is its processor, or a part."""
    tokenizer = tokenizer or folder.processor
    generation = generation_of(tokenizer)
    values = {} if generation is None else generation.values
    start = _decoder_start(folder, values, tokenizer.get_vocab_size())
    ends = "likely" if generation is None else generation.early_stopping
    early = next(name for name, value in EARLY_STOPPING.items() if value == ends)
    return {
        "task.start": tokenizer.id_to_token(start),
        "task.beams": values.get("num_beams", 1),
        "task.length_penalty": values.get("length_penalty", 1.0),
        "task.length_offset": 0.0,
        "task.early_stopping": early,
        **marks.of_folder(tokenizer, start),
    }


def _decoder_start(folder: HfSource, values: Mapping[str, Any], tokens: int) -> int:
    """The token before a text, as in transformers: decoder_start_token_id of `values`, those of generation, else
    bos_token_id. Raises UserError where config.json has another, and for no token of the tokenizer."""
    name, usual = "decoder_start_token_id", "bos_token_id"
    trained = folder.fields.get(name)
    if values.get(name) in (None, []) and None not in (values.get(usual), trained) and values[usual] != trained:
        raise UserError(
            f"{folder.path}: config.json has {name}={trained}, and generation_config.json has none, so that texts "
            f"begin with its {usual}={values[usual]}; write {name} in both"
        )
    ids = [values.get(name), values.get(usual), trained, *map(folder.fields.get, (usual, "pad_token_id"))]
    start = next((token[0] if isinstance(token, list) else token for token in ids if token not in (None, [])), 0)
    if not 0 <= start < tokens:
        rule = f"must be a token of the tokenizer, less than {tokens}; correct it"
        raise UserError(f"{folder.path}: config.json: {name}={start} {rule}")
    return start


def hf_fields(run: Run[Translate], tokenizer: Tokenizer, facts: Facts) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    from tfm.hf.generation import early_stopping_field

    special, template = tokenize.special_tokens(tokenizer), marks.template(tokenizer, run.task)
    generation = marks.generation(tokenizer, run.task)
    fields: dict[str, Any] = {
        "bos_token_id": special.cls,
        "eos_token_id": special.sep,
        "decoder_start_token_id": template.decoder_start,
        "num_beams": run.task.beams,
        "early_stopping": early_stopping_field(EARLY_STOPPING[run.task.early_stopping]),
    }
    if run.task.length_offset == 0:  # another has no counterpart in transformers
        fields["length_penalty"] = run.task.length_penalty
    if generation is not None:
        first = generation.values.get("forced_bos_token_id")
        fields |= {} if first is None else {"forced_bos_token_id": first}
    elif template.target[0]:
        fields["forced_bos_token_id"] = template.target[0][0]
    return fields


def hf_template(run: Run[Translate], tokenizer: Any) -> tuple[str, ...]:
    """How the exported tokenizer marks a text; empty where the tokenizer marks texts itself."""
    return marks.text_template(tokenizer, run.task) or (() if run.task.start else ("$A {sep}",))


TRANSLATE = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "perplexity": min, "accuracy": max, **dict.fromkeys(WRITTEN_METRICS, max)},
    baselines=baselines,
    report=report,
    processor=TOKENIZER,
    next_commands=(
        'generate --run={folder} --prompt="..."',
        "generate --run={folder} --file=YOUR.txt --to=OUT.txt",
        "evaluate --run={folder} --data=YOUR.en,YOUR.de",
    ),
    generates="translation",
    generation_metrics=generation_metrics,
    predictor=PREDICTOR,
    evaluate_flags=("against",),
    hf_heads=("seq2seq",),
    hf_tokens={"eos_token": "last"},
    hf_run_values=hf_run_values,
    hf_fields=hf_fields,
    hf_template=hf_template,
    hf_tokenizer_fields=lambda run, tokenizer: marks.named_languages(tokenizer, run.task),
)

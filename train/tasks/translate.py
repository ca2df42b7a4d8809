"""Translation: write a sentence in another language (Vaswani et al. 2017).

Two pairs in a batch of 5 source and 4 target places (| begins and ends a sentence) travel as

    tokens     the cat sat |          it sat |               what the encoder reads
    valid       1   1   1  1  0       1   1  1  0  0
    target     | die Katze sass       | sie sass [PAD]       what the decoder reads
    targets    die Katze sass |       sie sass | [PAD]       the token that comes next
    weights     1   1    1   1         1   1   1   0
    smoothing                                                one number for the row: the share of a target's probability that is spread
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from tfm.ops import split
from train import UserError
from train.data.batching import length_sorted_batches
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.processors import TOKENIZER
from train.data.sources import files, parallel
from train.data.sources.parallel import Pair, TranslationPairs
from train.data.synthetic import grammar
from train.data.tokens import encode, segmentation_hash, segmentations
from train.files import cache
from train.reporting import metrics as scores
from train.reporting import plots
from train.settings.schema import Run
from train.text import tokenizer as tokenize

Result = TypeVar("Result")

# Metrics by which a best checkpoint may be chosen, and whether less of them is better.
METRICS = {"loss": min, "perplexity": min, "accuracy": max, "bleu": max, "chrf": max}

# What a run folder keeps beside the weights: how texts become tokens.
PROCESSOR = TOKENIZER

# Commands that make sense after a run.
NEXT_COMMANDS = (
    'generate --run={folder} --prompt="..."',
    "generate --run={folder} --file=YOUR.txt --to=OUT.txt",
    "evaluate --run={folder} --data=YOUR.en,YOUR.de",
)


def specs(run: Run) -> tfm.Seq2Seq:
    """The parameters of the run's model."""
    return tfm.seq2seq_specs(run.model)


def loss(params: tfm.Seq2Seq, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> dict[str, Array]:
    """Sums over the targets of a batch, float32: `loss` in nats, `weight`, and what the other metrics are made of."""
    encoder_key, decoder_key = split(key, 2)
    reader = tfm.encode_source(params, model, batch["tokens"], batch["valid"] > 0, encoder_key)
    hidden = tfm.decoder(reader.decoder, model, batch["target"], key=decoder_key, memory=reader.memory)
    smoothing = batch["smoothing"][:, None]
    total, _, hits = tfm.vocabulary_loss(
        model, reader.output, tfm.lm_features(model, hidden), batch["targets"], batch["weights"], smoothing, reader.bias
    )
    return {
        "loss": total,
        "weight": batch["weights"].sum(),
        "right": (hits.astype(jnp.float32) * batch["weights"]).sum(),
        "used": batch["weights"].sum() + batch["valid"].sum().astype(jnp.float32),
        "places": jnp.float32(batch["weights"].size + batch["valid"].size),
    }


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a token (smoothed in training), perplexity, accuracy of the next token, share of padding."""
    weight = max(sums["weight"], 1)
    return {
        "loss": sums["loss"] / weight,
        "perplexity": float(np.exp(min(sums["loss"] / weight, 700.0))),
        "accuracy": sums["right"] / weight,
        "padding": 1 - sums["used"] / max(sums["places"], 1),
    }


def batch_spec(run: Run) -> dict[str, Field]:
    """The fields of a batch, as the top of this file shows them; its rows may be as long as the longest."""
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "valid": Field("BT", np.int32),
        "target": Field("BT", np.int32, counts_tokens=True),
        "targets": Field("BT", np.int32),
        "weights": Field("BT", np.float32),
        "smoothing": Field("B", np.float32),
    }


def load(run: Run, log, saved=None, valid_only: bool = False) -> Corpus[TranslationPairs]:
    """Sentence pairs, their joint tokenizer and buckets as the run describes them; `saved` is what a run that was there before brings.

    `valid_only` leaves out the training pairs where there are validation pairs of their own.
    """
    splits: Any = grammar.pairs() if "builtin" in (run.data.source, run.data.eval) else None
    columns = parallel.columns_of(run.data, run.task)
    as_rows = lambda pairs: [
        files.checked({"en": english, "de": german}, columns, "builtin") for english, german in pairs
    ]
    train, valid, empty = parallel.load(
        run.data, run.task, lambda: (as_rows(splits.train), as_rows(splits.test)), valid_only
    )
    tokenizer = (
        saved.processor if saved else tokenize.load(run.tokenizer, [side for pair in train for side in pair], log)
    )

    def rows(
        pairs: Sequence[Pair], what: str, dropout: float = 0.0, draw: int = 0, training: bool = False
    ) -> TranslationPairs:
        sides = [encode(tokenizer, side, log, what, dropout, draw) for side in zip(*pairs, strict=True)]
        shapes, smoothing = (run.batch.shapes, run.task.smoothing) if training else (max(1, run.batch.shapes // 2), 0.0)
        found = TranslationPairs(pairs, sides, run.batch, tokenize.marks(tokenizer, run.task.start), smoothing, shapes)
        if found.long and run.task.long == "error":
            pair = " | ".join(found.long[0])
            raise UserError(
                f"{pair!r} is longer than --batch.length={run.batch.length} tokens; raise that, or leave the pair out"
            )
        return found

    training = [rows(train, "training pairs", *draw, training=True) for draw in segmentations(run)] if train else []
    others = {}
    if splits and "builtin" in (run.data.eval or run.data.source):
        pairs = [(row[columns.texts[0]], row[columns.texts[1]]) for row in as_rows(splits.compositional)]
        others = {"compositional": rows(pairs, "compositional pairs")}
    judged = rows(valid, "validation pairs")
    sizes = {"vocab": tokenizer.get_vocab_size()}
    facts = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*([side for pair in part for side in pair] for part in (train, valid))),
        "segmentation_hash": segmentation_hash(
            run, (text for layout in training for text in (layout.source, layout.target))
        ),
        "empty": empty,
        "long": sum(len(layout.long) for layout in (*training[:1], judged)),
    }
    return Corpus(run, tokenizer, training, judged, sizes, facts, others)


def baselines(corpus: Corpus[TranslationPairs]) -> dict[str, float]:
    """`n`: the number of validation pairs that are not too long; `n_long`: of those that are, which have no loss but are translated."""
    return {"n": len(corpus.valid), "n_long": len(corpus.valid.long)}


def generation_metrics(
    params: tfm.Seq2Seq, run: Run, corpus: Corpus[TranslationPairs], log, most: int = 0, against: str | None = None
) -> dict[str, Any]:
    """BLEU and chrF of the translations of validation sentences, `most` of them or all; and of others that the data have.

    With `against`, the name of a file of other translations or "", also how sure these numbers are. Raises UserError where the file has
    not a line for each sentence.
    """
    found: dict[str, Any] = {}
    for name, rows in {"": corpus.valid, **({} if most else corpus.others)}.items():
        pairs = (rows.given if run.model.max_length is None else rows.pairs)[: most or None]
        written = translate(params, run, corpus.processor, [source for source, _ in pairs], log)
        references = [target for _, target in pairs]
        measured = scores.translations(written, references)
        if against is not None and not name:
            measured |= scores.resampled(written, references, _others(against, len(pairs)) if against else None)
        found |= measured if not name else {f"bleu_{name}": measured["bleu"]}
    return found


def _others(path: str, count: int) -> list[str]:
    """The translations in a file. Raises UserError where there are not `count`."""
    lines = files.read_lines(Path(path))
    if len(lines) != count:
        raise UserError(
            f"--against={path} has {len(lines):,} lines, and {count:,} sentences are translated; give a line for each"
        )
    return lines


def report(params, run: Run, corpus: Corpus[TranslationPairs], log, outcomes: Mapping, folder: Path):
    """Prints ten translations beside their references, and draws at what the words of some of them look."""
    pairs = corpus.valid.pairs[:: max(1, len(corpus.valid.pairs) // 10)][:10]
    written = translate(params, run, corpus.processor, [source for source, _ in pairs], log)
    for (source, target), text in zip(pairs, written, strict=True):
        log.info(f"{source}\n  {text}\n  reference: {target}\n")
    sentences = [(source, text) for (source, _), text in zip(pairs, written, strict=True) if text][:4]
    plots.alignments([aligned(params, run, corpus.processor, *pair) for pair in sentences], folder)


def translate(params: tfm.Seq2Seq, run: Run, tokenizer, texts: Sequence[str], log, batch: int = 32) -> list[str]:
    """The best translation of each text, in the order of the texts."""
    marks = tokenize.marks(tokenizer, run.task.start)
    beam = tfm.Beam(run.task.beams, length_penalty=run.task.length_penalty)
    sources = [marks.around(encoding.ids) for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def search(model: tfm.CausalLM, starts: Sequence[list[int]], rows: np.ndarray, max_new_tokens: int) -> list[str]:
        groups = tfm.beam_search(model, run.model, starts, max_new_tokens, beam, marks.after[-1:])
        return [tokenizer.decode(group[0].tokens) for group in groups]

    translations = [""] * len(texts)
    with log.progress(f"translating {len(texts)} sentences", len(texts)) as advance:
        for row, translation in decode_sources(params, run.model, marks, sources, batch, search):
            translations[row] = translation
            advance(1)
    return translations


def decode_sources(
    params: tfm.Seq2Seq,
    config: tfm.Config,
    marks: tokenize.Marks,
    sources: Sequence[Sequence[int]],
    batch: int,
    decode: Callable[[tfm.CausalLM, Sequence[list[int]], np.ndarray, int], Sequence[Result]],
    max_new_tokens: int = 0,
) -> Iterator[tuple[int, Result]]:
    """Numbers of sources, the shortest first, and their decoded results. A batch has sources of similar lengths.

    sources: token ids between their marks
    decode: takes the language model of a batch of translations, the tokens that start each, the numbers of its sources
        and the most tokens to add; returns one result per source
    max_new_tokens: 0 means twice the padded length of the sources
    """
    for rows, count in length_sorted_batches([len(source) for source in sources], batch):
        tokens, valid = padded([sources[row] for row in rows], marks.pad)
        model = encode_sources(config, params, tokens, valid)
        limit = limit_new_tokens(config, marks.begin, max_new_tokens or 2 * tokens.shape[1])
        results = decode(model, [marks.begin] * batch, rows, limit)
        yield from zip(rows[:count].tolist(), results, strict=False)


def aligned(
    params: tfm.Seq2Seq, run: Run, tokenizer, source: str, target: str
) -> tuple[list[str], list[str], np.ndarray]:
    """The words of a source and of a target, and [T,S] how much each word of the target looks, when it is written, at each of the source.

    A mean over layers and heads, and over the tokens of a word of the target; a sum over those of a word of the source.
    """
    marks = tokenize.marks(tokenizer, run.task.start)
    sides = [tokenizer.encode(text, add_special_tokens=False) for text in (source, target)]
    tokens, valid = padded([marks.around(sides[0].ids)], marks.pad)
    written, _ = padded([[*marks.begin, *sides[1].ids]], marks.pad)
    first = len(
        marks.before
    )  # the place of the first word in the source, and of what writes the first word of the target
    weights = np.asarray(look(run.model, encode_sources(run.model, params, tokens, valid), written))[first:, first:]
    (words, starts), (others, ends) = (
        tokenize.words(text, side) for text, side in zip((source, target), sides, strict=True)
    )
    weights = np.add.reduceat(weights[: len(sides[1].ids), : len(sides[0].ids)], starts, axis=1)
    counts = np.diff([*ends, len(sides[1].ids)])
    return words, others, np.add.reduceat(weights, ends, axis=0) / counts[:, None]


@partial(jax.jit, static_argnums=0)
def look(config: tfm.Config, model: tfm.CausalLM, target: Array) -> Array:
    """How much each token of one target [1,T] looks at each of the source, [T,S]: a mean over layers and heads."""
    return tfm.alignment(model, config, target).mean((0, 1, 2))


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists of tokens -> int32 [B,S], S a bucket, and which of the places are tokens."""
    tokens = np.full((len(rows), tfm.bucket(max(map(len, rows)))), pad, np.int32)
    valid = np.zeros(tokens.shape, bool)
    for b, row in enumerate(rows):
        tokens[b, : len(row)], valid[b, : len(row)] = row, True
    return tokens, valid


def limit_new_tokens(config: tfm.Config, start: Sequence[int], max_new_tokens: int) -> int:
    """The most tokens to add behind the start of a translation: learned positions may allow fewer."""
    limit = config.max_length
    return max_new_tokens if limit is None else min(max_new_tokens, limit - len(start))


@partial(jax.jit, static_argnums=0)
def encode_sources(config: tfm.Config, params: tfm.Seq2Seq, tokens: np.ndarray, valid: np.ndarray) -> tfm.CausalLM:
    """Sources [B,S] -> a language model of their translations."""
    return tfm.encode_source(params, config, tokens, valid)


# What train.generate, train.predict and Hugging Face folders ask of this task.
GENERATES = "translation"
CAN_PREDICT = False
HF_HEADS = ("seq2seq",)
HF_TOKENS = {"eos_token": "sep"}


def hf_run_values(head: str, folder) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model; `folder` has its `fields` and `processor`."""
    start = folder.fields.get("decoder_start_token_id", folder.fields.get("pad_token_id", 0))
    return {"task.start": folder.processor.id_to_token(start)}


def hf_fields(run: Run, tokenizer, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of config.json that depend on the task; `facts` are those of run.json about the data."""
    special, marks = tokenize.specials(tokenizer), tokenize.marks(tokenizer, run.task.start)
    fields = {
        "bos_token_id": special.cls,
        "eos_token_id": special.sep,
        "decoder_start_token_id": marks.start,
        "forced_eos_token_id": marks.after[-1],
        "num_beams": run.task.beams,
    }
    return fields | ({"forced_bos_token_id": marks.before[0]} if marks.before else {})


def hf_template(run: Run) -> tuple[str, ...]:
    """How the exported tokenizer marks a text; empty where the tokenizer marks texts itself."""
    return () if run.task.start else ("$A {sep}",)

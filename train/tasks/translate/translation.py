"""Translations by a trained model: batches of sentences, beam search, and attention to source words."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import jax
import numpy as np
from jax import Array
from tokenizers import Tokenizer

import tfm
from train.data.ahead import side_by_side
from train.data.batching import row_batches
from train.devices.capacity import check_decoding
from train.devices.cpu import core_count
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.gate import user_errors
from train.settings.schema import Run
from train.tasks.translate import marks
from train.tasks.translate.options import EARLY_STOPPING, Translate
from train.text import control_tokens, tokenize
from train.text.special import AnyTokenizer, target_tokenizer
from train.text.tokenize import SequenceTemplate

if TYPE_CHECKING:
    from tfm.hf.generation import FolderGeneration

Result = TypeVar("Result")

# On a CPU: sentences of a batch, whose states its caches hold, and batches side by side, which two cores work at.
_CPU_SENTENCES, _CPU_BATCHES = 12, 3


class Batches(NamedTuple):
    """How sources are decoded: the sentences of a batch, and the batches side by side."""

    size: int
    at_once: int = 1

    @classmethod
    def on_device(cls, size: int) -> "Batches":
        """On a CPU small batches side by side, of about `size` sentences together; elsewhere one of `size`."""
        if jax.default_backend() != "cpu":
            return cls(size)
        small = min(size, _CPU_SENTENCES)
        return cls(small, min(core_count() + 1, max(_CPU_BATCHES, -(-size // small))))


class TextWriter(NamedTuple):
    """How a run writes: its tokenizer, the marks of texts, the search, the tokens that end a text, and what the folder
    that it began with says, if there was one. `model` writes no token that the tokenizer lacks."""

    tokenizer: AnyTokenizer
    template: SequenceTemplate
    beam: tfm.Beam
    stop: Sequence[int]
    model: tfm.Config
    generation: "FolderGeneration | None"

    @classmethod
    def of(cls, run: Run[Translate], tokenizer: AnyTokenizer) -> "TextWriter":
        """That of a run. Raises UserError for what its model lacks."""
        task, template = run.task, marks.template(tokenizer, run.task)
        generation = marks.generation(tokenizer, task)
        if generation is not None:
            with user_errors():
                generation = generation.within(run.model.vocab)
        stop = template.suffix[-1:] if generation is None else generation.stop
        ends = EARLY_STOPPING[task.early_stopping]
        beam = tfm.Beam(task.beams, length_penalty=task.length_penalty, offset=task.length_offset, early_stopping=ends)
        template = template._replace(writes_prefix=generation is not None)
        return cls(tokenizer, template, beam, stop, tokenize.writing_model(run.model, tokenizer), generation)

    def texts(
        self, model: tfm.CausalLM, starts: Sequence[list[int]], sources: Sequence[Sequence[int]], limit: int
    ) -> list[str]:
        """The best text behind each start, of at most `limit` new tokens; `sources` are the tokens that were read."""
        beam, limits = self.beam, [limit] * len(starts)
        if self.generation is not None:
            repeats, vocab = self.generation.values.get("repetition_penalty"), self.model.padded_vocab
            constraints = self.generation.constraints(starts, sources, vocab, limits, repeats)
            beam = replace(beam, constraints=constraints)
        groups = tfm.beam_search(model, self.model, starts, limit, beam, self.stop)
        return [self.tokenizer.decode(group[0].tokens) for group in groups]


def translate(
    params: tfm.Seq2Seq, run: Run[Translate], tokenizer: Tokenizer, texts: Sequence[str], log: Log, batch: int = 32
) -> list[str]:
    """The best translation of each text, in the order of the texts."""
    params, writer = tfm.separate_layers(params, run.model), TextWriter.of(run, tokenizer)
    template, batches = writer.template, Batches.on_device(batch)
    sources = [template.wrap(encoding.ids) for encoding in control_tokens.encode(tokenizer, texts)]

    def search(model: tfm.CausalLM, starts: Sequence[list[int]], rows: np.ndarray, max_new_tokens: int) -> list[str]:
        check_decoding(model, run.model, len(starts) * batches.at_once, max_new_tokens, writer.beam.width)
        return writer.texts(model, starts, [sources[row] for row in rows], max_new_tokens)

    translations = [""] * len(texts)
    with log.progress(f"translating {len(texts)} sentences", len(texts)) as advance:
        generation = writer.generation
        limit = None if generation is None else generation.new_tokens(len(template.decoder_prefix))
        for row, translation in decode_sources(params, run.model, template, sources, batches, search, limit):
            translations[row] = translation
            advance(1)
    return translations


def decode_sources(
    params: tfm.Seq2Seq,
    config: tfm.Config,
    template: SequenceTemplate,
    sources: Sequence[Sequence[int]],
    batches: Batches,
    decode: Callable[[tfm.CausalLM, Sequence[list[int]], np.ndarray, int], Sequence[Result]],
    max_new_tokens: int | None = None,
) -> Iterator[tuple[int, Result]]:
    """Indices of sources, the shortest first, and their decoded results. A batch has sources of similar lengths.

    sources: token ids with prefix and suffix
    decode: takes the language model of a batch of translations, the tokens that start each, the indices of its sources
        and the most tokens to add; returns one result per source. Several threads call it where batches stand side by
        side
    max_new_tokens: by default twice the padded length of a source, whatever others stand in its batch
    """

    def decode_batch(batch: tuple[np.ndarray, int]) -> list[tuple[int, Result]]:
        rows, count = batch
        tokens, valid = padded([sources[row] for row in rows], template.pad)
        model = checked(encode_sources, config, params, tokens, valid)
        limit = limit_new_tokens(config, template.decoder_prefix, max_new_tokens or 2 * tokens.shape[1])
        results = decode(model, [template.decoder_prefix] * len(rows), rows, limit)
        return list(zip(rows[:count].tolist(), results, strict=False))

    sorted_batches = batches_of_one_length([padded_length([source]) for source in sources], batches.size)
    for results in side_by_side(decode_batch, sorted_batches, batches.at_once):
        yield from results


def batches_of_one_length(lengths: Sequence[int], size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Batches of indices of equal padded lengths, the shortest first."""
    for length in sorted(set(lengths)):
        members = np.flatnonzero(np.asarray(lengths) == length)
        yield from ((members[rows], count) for rows, count in row_batches(range(len(members)), size))


@partial(jax.jit, static_argnums=0)
def encode_sources(config: tfm.Config, params: tfm.Seq2Seq, tokens: Array, valid: Array) -> tfm.CausalLM:
    """Sources [B,S] -> a language model of their translations."""
    return tfm.encode_source(params, config, tokens, valid)


def padded_length(rows: Sequence[Sequence[int]]) -> int:
    """The length that rows are padded to together: few programs serve all."""
    return tfm.bucket(max(map(len, rows)))


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists of tokens -> int32 [B,S], S a bucket, and bool [B,S], where they have tokens."""
    tokens = np.full((len(rows), padded_length(rows)), pad, np.int32)
    valid = np.zeros(tokens.shape, bool)
    for b, row in enumerate(rows):
        tokens[b, : len(row)] = row
        valid[b, : len(row)] = True
    return tokens, valid


def limit_new_tokens(config: tfm.Config, start: Sequence[int], max_new_tokens: int) -> int:
    """The most tokens to add after the start of a translation: learned positions may allow fewer."""
    limit = config.max_length
    return max_new_tokens if limit is None else min(max_new_tokens, limit - len(start))


def word_alignment(
    params: tfm.Seq2Seq, run: Run[Translate], tokenizer: Tokenizer, source: str, target: str
) -> tuple[list[str], list[str], np.ndarray]:
    """The words of a source and of its translation, and the attention [T,S] from target words to source words.

    A mean over layers, heads and the tokens of a target word, and a sum over the tokens of a source word. The
    position that predicts a token attends for it.
    """
    template = marks.template(tokenizer, run.task)
    (source_ids,) = control_tokens.encode(tokenizer, [source])
    (target_ids,) = control_tokens.encode(target_tokenizer(tokenizer), [target])
    tokens, valid = padded([template.wrap(source_ids.ids)], template.pad)
    target_tokens, _ = padded([[*template.decoder_prefix, *target_ids.ids]], template.pad)
    weights = np.asarray(_alignment(run.model, encode_sources(run.model, params, tokens, valid), target_tokens))
    first = len(template.prefix)  # place of the first source word
    first_target = len(template.target[0])
    weights = weights[first_target : first_target + len(target_ids.ids), first : first + len(source_ids.ids)]
    source_words, source_starts = tokenize.words(source, source_ids)
    target_words, target_starts = tokenize.words(target, target_ids)
    by_word = np.add.reduceat(np.add.reduceat(weights, source_starts, axis=1), target_starts, axis=0)
    return source_words, target_words, by_word / np.diff([*target_starts, len(target_ids.ids)])[:, None]


@partial(jax.jit, static_argnums=0)
def _alignment(config: tfm.Config, model: tfm.CausalLM, target: Array) -> Array:
    """target [1,T] -> cross-attention weights [T,S], a mean over layers and heads."""
    return tfm.alignment(model, config, target).mean((0, 1, 2))

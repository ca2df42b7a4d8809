"""Writers of train.generate: prompts as tokens, and the completions of a language model or a translation model."""

from collections.abc import Iterator, Sequence
from typing import Any, TextIO, final

import numpy as np

import tfm
from tfm.options.json_text import check_text
from train import UserError
from train.data.batching import row_batches
from train.generation import drafts
from train.generation.decoder import Completion, Decoder
from train.generation.defaults import Choice
from train.generation.options import GenerateOptions
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.settings.gate import user_errors
from train.tasks.translate import marks, translation
from train.text import chat, tokenize

# Tokens that are added if --max-new-tokens does not say how many.
_MAX_NEW_TOKENS = 200


@final
class ContinuationWriter:
    """Continues texts with a language model. `TranslationWriter` has the same members."""

    default_strategy = "sample"
    prompt_kind = "a text to go on from"
    takes_empty_prompts = False
    shows_prompt = True

    def __init__(
        self,
        folder: RunFolder | HfFolder,
        params: tfm.CausalLM,
        choice: Choice,
        log,
        sliding_context: bool | None = None,
        stops: Sequence[str] | None = None,
    ):
        """`sliding_context` is by default that of training; `stops` are by default those of the options.

        Raises UserError for a draft that does not fit the model.
        """
        options = choice.options
        if options.draft and sliding_context:
            raise UserError("--sliding-context=true reads texts again that --draft has read; leave out one of them")
        if choice.constrains and (options.draft or sliding_context):
            flag = "--draft" if options.draft else "--sliding-context=true"
            raise UserError(f"{flag} cannot obey what {choice.generation} forbids or forces; leave it out")
        sliding = folder.config.task.windows if sliding_context is None else sliding_context
        self.sliding_context = sliding and choice.strategy != "beam" and not options.draft and not choice.constrains
        self.folder = folder
        self.params = tfm.separate_layers(params, folder.config.decoding_model)
        self.choice = choice
        self.options = options
        self.strategy = choice.strategy
        self.log = log
        stops = options.stops if stops is None else stops
        self.decoder = Decoder(folder, choice, self.spell, stops, self.sliding_context)
        self.decoder.draft = drafts.load(options.draft, folder, log) if options.draft else None

    def encode(self, prompt: str) -> list[int]:
        """The tokens of a prompt behind the prefix of every text. Raises UserError if the model cannot read it."""
        tokens = _encode(self.folder.processor, prompt, self.log)
        if not tokens:
            raise UserError("the prompt has no tokens; give a text to go on from")
        return self.checked([*self.folder.text_prefix, *tokens])

    def encode_chat(self, messages: Sequence[chat.Message]) -> list[int]:
        """The tokens of a conversation in the folder's template. Raises UserError if the model cannot read it."""
        return self.checked(chat.encode_chat(self.folder.processor, messages))

    def checked(self, tokens: list[int]) -> list[int]:
        """Tokens that are to be gone on from. Raises UserError if the model has too few positions."""
        self._max_new_tokens(tokens)
        return tokens

    def write(self, prompts: Sequence[list[int]]) -> Iterator[list[Completion]]:
        """The completions of each prompt: `options.n` of them, or as many as a beam finds."""
        copies = _copies(self.options, self.strategy)
        decoded = self._decode([prompt for prompt in prompts for _ in range(copies)])
        for _ in prompts:
            yield [completion for _ in range(copies) for completion in next(decoded)]

    def stream(self, prompt: list[int], text: str, out: TextIO) -> Completion:
        """The completion of one prompt, written to `out` behind its text while it is decoded."""
        completion = self.decoder.stream(self.params, prompt, self._max_new_tokens(prompt), out, text)
        self._report_draft()
        return completion

    def _decode(self, prompts: Sequence[list[int]]) -> Iterator[list[Completion]]:
        size = max(1, min(self.options.batch, len(prompts)))
        with self.log.progress(f"writing {len(prompts)} texts", len(prompts)) as advance:
            for rows, count in row_batches(range(len(prompts)), size):
                yield from self._decode_batch(prompts, rows)[:count]
                advance(count)
        self._report_draft()

    def _decode_batch(self, prompts: Sequence[list[int]], rows: np.ndarray) -> list[list[Completion]]:
        """The completions of a batch; texts of a beam stand together where they may get as many tokens."""
        limits = np.array([self._max_new_tokens(prompts[row]) for row in rows])
        completions: list[list[Completion]] = [[] for _ in rows]
        for limit in np.unique(limits) if self.strategy == "beam" else [None]:
            places = np.arange(len(rows)) if limit is None else np.flatnonzero(limits == limit)
            batch = [prompts[row] for row in rows[places]]
            decoded = self.decoder.decode(self.params, batch, rows[places], limits[places].tolist())
            for place, group in zip(places, decoded, strict=True):
                completions[place] = group
        return completions

    def _report_draft(self):
        """Says how much a draft has saved."""
        if passes := self.decoder.tokens_per_pass:
            self.log.info(f"draft: {sum(passes) / len(passes):.1f} tokens a pass of the model, one text at a time")

    def _max_new_tokens(self, prompt: list[int]) -> int:
        """The most tokens to add to a prompt. Raises UserError if the model has too few positions."""
        wanted, longest = self.choice.new_tokens(len(prompt)), len(prompt)
        limit = drafts.max_length(self.folder.config.model.max_length, self.decoder.draft)
        if limit is None or self.sliding_context:
            return wanted or _MAX_NEW_TOKENS
        capacity = limit - longest
        if self.options.max_new_tokens is None and wanted:  # the folder's own limit is no demand
            wanted = min(wanted, max(capacity, 1))
        if capacity >= (wanted or 1):
            return wanted or min(_MAX_NEW_TOKENS, capacity)
        remedy = f"ask for at most {capacity}" if capacity > 0 else "shorten it"
        if self.strategy != "beam":
            remedy += ", or leave out --draft" if self.options.draft else ", or add --sliding-context=true"
        request = f" and --max-new-tokens={wanted}" if wanted else ""
        raise UserError(f"a prompt of {longest} tokens{request} exceeds the {limit} positions of the model; {remedy}")

    def spell(self, prompt: list[int], tokens: list[int]) -> str:
        """The text that tokens add to that of a prompt."""
        decode = self.folder.processor.decode
        before = decode(prompt)
        text = decode([*prompt, *tokens])
        return text.removeprefix(before) if text.startswith(before) else decode(tokens)


@final
class TranslationWriter:
    """Translates sentences with a translation model. `ContinuationWriter` has the same members."""

    default_strategy = "beam"
    prompt_kind = "a sentence to translate"
    takes_empty_prompts = True
    shows_prompt = False

    def __init__(
        self,
        folder: RunFolder | HfFolder,
        params: tfm.Seq2Seq,
        choice: Choice,
        log,
        sliding_context: bool | None = None,
    ):
        """A translation never slides, whatever `sliding_context` is."""
        self.config = folder.config.model
        self.processor = folder.processor
        self.params = tfm.separate_layers(params, folder.config.model)
        self.choice = choice
        self.options = choice.options
        self.strategy = choice.strategy
        self.log = log
        self.template = marks.template(folder.processor, folder.config.task)
        if choice.generation is None:
            choice = choice._replace(stop=self.template.suffix[-1:])
        self.decoder = Decoder(folder, choice, self.spell, choice.options.stops)

    def encode(self, prompt: str) -> list[int]:
        """The tokens of a sentence between its marks. Raises UserError if the model cannot read it."""
        tokens = self.template.wrap(_encode(self.processor, prompt.strip(), self.log))
        limit = self.config.max_length
        if limit is not None and len(tokens) > limit:
            raise UserError(
                f"a sentence of {len(tokens)} tokens exceeds the {limit} positions of the model; shorten it"
            )
        return tokens

    def write(self, prompts: Sequence[list[int]]) -> Iterator[list[Completion]]:
        """The translations of each sentence; that of an empty sentence is empty."""
        copies = _copies(self.options, self.strategy)
        empty = self.template.wrap([])
        sources = [prompt for prompt in prompts if prompt != empty for _ in range(copies)]
        decoded = self._decode(sources)
        first = 0
        for prompt in prompts:
            if prompt == empty:
                yield [Completion("", [], [])]
            else:
                yield [completion for row in range(first, first + copies) for completion in decoded[row]]
                first += copies

    def stream(self, prompt: list[int], text: str, out: TextIO) -> Completion:
        """The translation of one sentence, written to `out` while it is decoded."""

        def stream(model: tfm.CausalLM, starts: Sequence[list[int]], rows: Any, max_new_tokens: int):
            return [self.decoder.stream(model, starts[0], max_new_tokens, out, "", prompt)]

        return dict(self._decode_sources([prompt], stream))[0]

    def _decode(self, sources: Sequence[list[int]]) -> dict[int, list[Completion]]:
        """The translations of sources by their numbers."""
        decoded = {}

        def decode(model: tfm.CausalLM, starts: Sequence[list[int]], rows: Any, max_new_tokens: int):
            return self.decoder.decode(model, starts, rows, [max_new_tokens] * len(starts), sources)

        with self.log.progress(f"translating {len(sources)} sentences", len(sources)) as advance:
            for row, completions in self._decode_sources(sources, decode):
                decoded[row] = completions
                advance(1)
        return decoded

    def _decode_sources(self, sources: Sequence[list[int]], decode) -> Iterator[tuple[int, Any]]:
        batches = translation.Batches(max(1, min(self.options.batch, len(sources))))
        template = self.template._replace(writes_prefix=self.choice.generation is not None)
        limit = self.choice.new_tokens(len(template.decoder_prefix))
        return translation.decode_sources(self.params, self.config, template, sources, batches, decode, limit)

    def spell(self, prompt: list[int], tokens: list[int]) -> str:
        """The text of a translation, without the tokens that start it."""
        return self.processor.decode(tokens)


Writer = ContinuationWriter | TranslationWriter

# The writer of what a task GENERATES.
WRITERS: dict[str, type[Writer]] = {"continuation": ContinuationWriter, "translation": TranslationWriter}


def _copies(options: GenerateOptions, strategy: str) -> int:
    """How often each prompt is decoded: a beam finds several completions at once."""
    return 1 if strategy == "beam" else options.n


def _encode(tokenizer, prompt: str, log) -> list[int]:
    """The tokens of a text; the log names what the tokenizer does not know."""
    with user_errors():
        check_text("the prompt", prompt)
    encoding = tokenizer.encode(prompt, add_special_tokens=False)
    unknown = tokenize.special_tokens(tokenizer).unk
    pairs = zip(encoding.ids, encoding.offsets, strict=True)
    name = tokenizer.id_to_token(unknown)
    texts = {prompt[start:end] for token, (start, end) in pairs if token == unknown} - {name}
    if texts:
        names = ", ".join(map(repr, sorted(texts)))
        log.info(f"{prompt[:40]!r} has {names}, which this model reads as {name}")
    return encoding.ids

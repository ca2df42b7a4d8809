"""Prompts as tokens, and tokens as text: what `train.generate` does with a language model."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TextIO

import numpy as np

import tfm
from train import UserError
from train.runs import hf_folder
from train.runs.pretrained import Trained
from train.tasks import translate
from train.text import tokenizer

# Tokens that are added where nobody says how many.
USUAL = 200

# Seconds that a reader of a stream may wait for the next piece.
PACE = 0.1


class Completion(NamedTuple):
    """What follows a prompt, its tokens spelled one by one with their log-probabilities, and the score of a beam."""

    text: str
    pieces: list[str]
    logprobs: list[float]
    score: float | None = None
    shown: bool = False


def of(trained: Trained, options: Any, strategy: str, slide: bool | None, log) -> "Writer":
    """What writes with a trained model."""
    if trained.run.task.name == "translate":
        return Translator(trained, options, strategy, False, log)
    return Writer(trained, options, strategy, trained.run.task.windows if slide is None else slide, log)


class Writer:
    """A language model with its tokenizer; `options` are those of `train.generate`."""

    echo = True  # a text is shown behind its prompt

    def __init__(self, trained: Trained, options: Any, strategy: str, slide: bool, log):
        self.run, self.tokenizer, _, self.params = trained
        self.options, self.strategy, self.slide, self.log = options, strategy, slide and strategy != "beam", log
        self.end = tokenizer.specials(self.tokenizer).sep
        self.stops = [stop.replace("\\n", "\n") for stop in options.stop.split("|") if stop]

    def encode(self, prompt: str) -> list[int]:
        """The prompt's tokens, behind what every document began with. Raises UserError for text that the model cannot read."""
        tokens = self._read(prompt)
        if not tokens:
            raise UserError("the prompt has no tokens; give a text to go on from")
        tokens = [*self._before(), *tokens]
        self._new([tokens])
        return tokens

    def _before(self) -> list[int]:
        """What every document began with: of a folder of transformers, what its tokenizer puts there."""
        if hf_folder.here(self.run.out):
            return tokenizer.before(self.tokenizer)
        return [] if self.run.task.windows else [self.end]

    def _read(self, prompt: str) -> list[int]:
        """The tokens of a text. Raises UserError where the model cannot read them."""
        encoding = self.tokenizer.encode(prompt, add_special_tokens=False)
        unknown = tokenizer.specials(self.tokenizer).unk
        strange = {
            prompt[start:end]
            for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token == unknown
        }
        if strange:
            raise UserError(
                f"the prompt has {', '.join(map(repr, sorted(strange)))}, which this model cannot read; leave that out"
            )
        return encoding.ids

    def _model(self, prompts: Sequence[list[int]]) -> tuple[tfm.CausalLM, Sequence[list[int]]]:
        """The model that goes on from the prompts, and what it has to go on from."""
        return self.params, prompts

    def write(self, prompts: Sequence[list[int]]) -> Iterator[list[Completion]]:
        """The completions of each prompt, `options.n` of them, or as many as a beam finds."""
        if self.strategy == "beam":
            yield from self._write(prompts)
            return
        found = self._write([prompt for prompt in prompts for _ in range(self.options.n)])
        for _ in prompts:
            yield [next(found)[0] for _ in range(self.options.n)]

    def _write(self, texts: Sequence[list[int]]) -> Iterator[list[Completion]]:
        """The best completions of each text, or one that is drawn."""
        options = self.options
        with self.log.progress(f"writing {len(texts)} texts", len(texts)) as advance:
            for first in range(0, len(texts), options.batch):
                batch = texts[first : first + options.batch]
                filled = (
                    [*batch, *[batch[-1]] * (options.batch - len(batch))] if first else batch
                )  # one program for all batches
                found = self._search(filled) if self.strategy == "beam" else self._draw(filled, first)
                yield from found[: len(batch)]
                advance(len(batch))

    def stream(self, prompt: list[int], text: str, out: TextIO) -> Completion:
        """The completion of one prompt, written to `out` as it comes."""
        generation = self._generation([prompt], 0)
        self._tell(out, text if self.echo else "")
        shown, number = "", 1
        while not generation.done and not self._cut(shown):
            began = time.perf_counter()
            generation.advance(number)
            shown = self._show(out, shown, self._spell(prompt, generation.tokens[0]), generation.done)
            number = max(1, number * 2 if time.perf_counter() - began < PACE / 2 else number // 2)
        completion = self._complete(prompt, generation.tokens[0], generation.logprobs[0])
        self._tell(out, completion.text[len(shown) :] + "\n")
        return completion._replace(shown=True)

    def _show(self, out: TextIO, shown: str, text: str, done: bool) -> str:
        """Writes what is new in a text, but for an end that may still change: half a character, or the beginning of a stop."""
        text = self._before_stop(text)
        safe = (
            len(text) if done else len(text.rstrip("\ufffd")) - max((len(stop) for stop in self.stops), default=1) + 1
        )
        if not text.startswith(shown) or safe <= len(shown):
            return shown
        self._tell(out, text[len(shown) : safe])
        return text[:safe]

    def _tell(self, out: TextIO, text: str):
        print(text, end="", file=out, flush=True)

    def _draw(self, prompts: Sequence[list[int]], first: int) -> list[list[Completion]]:
        """One completion of each prompt, greedy or drawn."""
        generation = self._generation(prompts, first)
        texts: list[str] = []
        while not generation.done and not (texts and all(map(self._cut, texts))):
            generation.advance(16 if self.stops else generation.max_new_tokens)
            texts = [self._spell(*pair) for pair in zip(prompts, generation.tokens, strict=True)] if self.stops else []
        return [[self._complete(*row)] for row in zip(prompts, generation.tokens, generation.logprobs, strict=True)]

    def _generation(self, prompts: Sequence[list[int]], first: int) -> tfm.Generation:
        model, starts = self._model(prompts)
        return tfm.Generation(
            model, self.run.model, starts, self._new(prompts), self._how(len(prompts), first), [self.end], self.slide
        )

    def _how(self, rows: int, first: int) -> tfm.Greedy | tfm.Sample:
        """The knobs that are turned; each row has a seed of its own."""
        options = self.options
        repetition = options.repetition_penalty if options.repetition_penalty > 1 else None
        if self.strategy == "greedy":
            return tfm.Greedy(repetition)
        top_p = options.top_p if options.top_p < 1 else None
        seed = np.arange(rows, dtype=np.int32) + options.seed + first
        return tfm.Sample(repetition, options.temperature, options.top_k or None, top_p, options.min_p or None, seed)

    def _search(self, prompts: Sequence[list[int]]) -> list[list[Completion]]:
        """The best completions of each prompt that a beam finds."""
        options = self.options
        model, starts = self._model(prompts)
        coverage = options.coverage or None
        how = tfm.Beam(
            options.beams,
            options.beam_groups,
            options.diversity,
            options.length_penalty,
            coverage,
            options.early_stopping,
        )
        found = tfm.beam_search(model, self.run.model, starts, self._new(prompts), how, [self.end], options.n)
        complete = lambda prompt, best: self._complete(prompt, best.tokens, [])._replace(score=best.score)
        return [[complete(prompt, best) for best in group] for prompt, group in zip(prompts, found, strict=True)]

    def _new(self, prompts: Sequence[list[int]]) -> int:
        """Tokens to add. Raises UserError where the model has not as many positions."""
        wanted, longest, length = self.options.max_new_tokens, max(map(len, prompts)), self.run.model.length
        if self.slide or self.run.model.position != "learned" or 0 < wanted <= length - longest:
            return wanted or USUAL
        room = length - longest
        if room > 0 and not wanted:
            return min(USUAL, room)
        remedy = "shorten it" if room <= 0 else f"ask for at most {room}"
        remedy += "" if self.strategy == "beam" else ", or add --slide=true"
        asked = f" and --max-new-tokens={wanted}" if wanted else ""
        raise UserError(f"a prompt of {longest} tokens{asked} exceeds the {length} positions of the model; {remedy}")

    def _complete(self, prompt: list[int], tokens: list[int], logprobs: list[float]) -> Completion:
        """Tokens as text, up to the first stop."""
        text = self._spell(prompt, tokens)
        if self._cut(text):
            kept = next(count for count in range(len(tokens) + 1) if self._cut(self._spell(prompt, tokens[:count])))
            text, tokens = self._before_stop(text), tokens[:kept]
        pieces = [self.tokenizer.decode([token], skip_special_tokens=False) for token in tokens]
        return Completion(text, pieces, logprobs[: len(tokens)])

    def _spell(self, prompt: list[int], tokens: list[int]) -> str:
        """The text that tokens add to that of a prompt."""
        before, whole = self.tokenizer.decode(prompt), self.tokenizer.decode([*prompt, *tokens])
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(tokens)

    def _cut(self, text: str) -> bool:
        return any(stop in text for stop in self.stops)

    def _before_stop(self, text: str) -> str:
        return text[: min((text.index(stop) for stop in self.stops if stop in text), default=len(text))]


class Translator(Writer):
    """A translation model with its tokenizer: what it writes does not follow the prompt but stands in its place."""

    echo = False

    def __init__(self, trained: Trained, options: Any, strategy: str, slide: bool, log):
        super().__init__(trained, options, strategy, slide, log)
        self.marks = tokenizer.marks(self.tokenizer, self.run.task.start)
        self.end = self.marks.after[-1]

    def encode(self, prompt: str) -> list[int]:
        """The tokens of a sentence between its marks. Raises UserError where the model cannot read them, or not so many."""
        tokens = self.marks.around(self._read(prompt.strip()))
        if self.run.model.position == "learned" and len(tokens) > self.run.model.length:
            raise UserError(
                f"a sentence of {len(tokens)} tokens exceeds the {self.run.model.length} positions of the model; shorten it"
            )
        return tokens

    def write(self, prompts: Sequence[list[int]]) -> Iterator[list[Completion]]:
        """The translations of each sentence, in the order of the sentences, though those of similar lengths are translated together; of an
        empty one, an empty one."""
        order = sorted(
            (n for n, prompt in enumerate(prompts) if prompt != self.marks.around([])), key=lambda n: len(prompts[n])
        )
        done = dict(zip(order, super().write([prompts[n] for n in order]), strict=True))
        yield from (done.get(n, [Completion("", [], [])]) for n in range(len(prompts)))

    def _model(self, prompts: Sequence[list[int]]) -> tuple[tfm.CausalLM, Sequence[list[int]]]:
        tokens, valid = translate.padded(prompts, self.marks.pad)
        return translate.encode_sources(self.run.model, self.params, tokens, valid), [self.marks.begin] * len(prompts)

    def _new(self, prompts: Sequence[list[int]]) -> int:
        wanted = self.options.max_new_tokens or 2 * tfm.bucket(max(map(len, prompts)))
        return translate.limit_new_tokens(self.run.model, self.marks.begin, wanted)

    def _spell(self, prompt: list[int], tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens)

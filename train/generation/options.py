"""The options of train.generate, and the decoding strategies of `tfm` that they describe."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum
from tfm.options.errors import suggest
from train import UserError
from train.settings.limits import MAX_BEAMS, MAX_ROWS, MAX_SEED
from train.settings.predict import Weights

if TYPE_CHECKING:
    import numpy as np


# The flags that exclude tokens from a draw, by the names of `tfm.Sample`.
FILTERS = ("top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")

# The flags of each strategy, beside those of all.
STRATEGY_FLAGS = {
    "greedy": ("repetition_penalty", "logprobs", "draft"),
    "sample": ("temperature", *FILTERS, "repetition_penalty", "seed", "logprobs", "draft"),
    "beam": ("beams", "beam_groups", "diversity", "length_penalty", "coverage", "early_stopping"),
}

# What the fields and classes of tfm.decoding are called on the command line, where that differs.
_FLAG_NAMES = {"width": "beams", "groups": "beam_groups", "Greedy": "--strategy=greedy"}

# The values that turn a flag off, which tfm.decoding says with None.
_OFF = {
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "coverage": 0.0,
}


@dataclasses.dataclass(frozen=True)
class GenerateOptions:
    """What to write, and how.

    run: the run folder of a language model or a translation model
    prompt: the text to go on from, or to translate
    prompt_file: a file with one prompt, such as solved examples and the beginning of another one
    file: a file of prompts or sentences, one a line
    interactive: prompts are typed, one a line
    chat: prompts are what a user says, in the chat template of the folder; with --interactive, of one conversation
    complete: a picture to complete, or a quoted glob of several (pixels); none: pictures are made from nothing
    keep: share of each that is kept, its upper rows (pixels)
    average: the newest checkpoints whose mean is used
    weights: trained | int8: kernels and tables in eight bits; train.evaluate --weights=int8 says what that costs
    source: of a translation model with several languages: that of the sentences; by default as its folder says
    target: of such a model: the language to translate into
    to: the file to write to; by default stdout; of pictures a .png
    max_new_tokens: tokens to add; by default 200 or as many as positions allow, of a translation twice its source
    n: completions of each prompt: samples, or the best of a beam
    stop: text that ends a completion and is left out; several are joined by |, a line break is \\n
    sliding_context: continue from the second half of a text that fills all positions; default: as in training
    draft: a run of a smaller model, or ngram: it proposes tokens, the model checks them, text by text (sample, greedy)
    logprobs: also show every token and its log-probability (sample, greedy)
    batch: texts at a time
    strategy: greedy | sample | beam; by default the one of the other flags, else sample, or beam to translate
    temperature: below 1, probable tokens get more probable, above 1 less (sample)
    top_k: draw from the k most probable tokens; by default from all (sample)
    top_p: draw from the smallest set of tokens with this total probability (sample)
    min_p: draw from tokens with at least this share of the highest probability (sample)
    typical_p: draw from tokens of typical information with this total probability (sample)
    epsilon_cutoff: draw from tokens with at least this probability (sample)
    eta_cutoff: as epsilon_cutoff, with less where many tokens are likely (sample)
    repetition_penalty: above 1, tokens of the text so far get less probable (sample, greedy)
    seed: seed of the draws; later texts use the next integers (sample)
    steps: passes of the model; by default one for each masked token (unmasking)
    order: confidence | random: which masked tokens are written first (unmasking)
    block: tokens of a part, which is written before those behind it; none: all at once (unmasking)
    beams: texts that are followed at a time (beam)
    beam_groups: parts of the beam that avoid each other's tokens (beam)
    diversity: cost, in nats, of a token that an earlier group chose (beam)
    length_penalty: above 0, longer texts are preferred; 0 compares plain probabilities (beam)
    coverage: above 0, translations are preferred that look at every word of the source (beam)
    early_stopping: end with as many complete texts as beams, though better ones might follow (beam)
    """

    run: str = ""
    prompt: str = ""
    prompt_file: str = ""
    file: str = ""
    interactive: bool = False
    chat: bool = False
    complete: str = ""
    keep: float = 0.5
    average: int = 1
    weights: Weights = "trained"
    source: str = ""
    target: str = ""
    to: str = ""
    max_new_tokens: int | None = None
    n: int = 1
    stop: str = ""
    sliding_context: bool = False
    draft: str = ""
    logprobs: bool = False
    batch: int = 16
    strategy: str = ""
    temperature: float = 0.8
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    steps: int | None = None
    order: Literal["confidence", "random"] = "confidence"
    block: int | None = None
    beams: int = 4
    beam_groups: int = 1
    diversity: float = 0.5
    length_penalty: float = 0.6
    coverage: float = 0.0
    early_stopping: bool = False

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name the run folder of a language model")
        with _flag_names():
            check_fields(self)
            check_minimum(self, max_new_tokens=1, top_k=1, n=1, batch=1, average=1, seed=0, steps=1, block=1)
            check_maximum(self, "ask for the rest with another --seed", n=10_000)
            if not 0 <= self.keep < 1:
                raise ValueError(f"keep={self.keep} must be at least 0 and less than 1; half a picture is 0.5")
            check_maximum(self, "seeds have 31 bits", seed=MAX_SEED)
            check_maximum(self, "its texts must fit into memory", batch=MAX_ROWS, max_new_tokens=MAX_ROWS)
            check_maximum(self, "every beam is a text in memory", beams=MAX_BEAMS, top_k=MAX_ROWS)
        with _flag_names():
            self.sample().check()
            self.beam().check()

    def greedy(self):
        """The `tfm.Greedy` of these options."""
        import tfm

        return tfm.Greedy(repetition_penalty=self._unless_off("repetition_penalty"))

    def sample(self, seeds: "int | np.ndarray" = 0):
        """The `tfm.Sample` of these options; seeds int [B], one for each row."""
        import tfm

        filters: dict[str, Any] = {name: self._unless_off(name) for name in FILTERS}
        return tfm.Sample(
            repetition_penalty=self._unless_off("repetition_penalty"),
            temperature=self.temperature,
            seed=seeds,
            **filters,
        )

    def beam(self):
        """The `tfm.Beam` of these options."""
        import tfm

        return tfm.Beam(
            width=self.beams,
            groups=self.beam_groups,
            diversity=self.diversity,
            length_penalty=self.length_penalty,
            coverage=self._unless_off("coverage"),
            early_stopping=self.early_stopping,
        )

    @property
    def stops(self) -> list[str]:
        """The texts that end a completion."""
        return [stop.replace("\\n", "\n") for stop in self.stop.split("|") if stop]

    def _unless_off(self, name: str) -> float | None:
        value = getattr(self, name)
        return None if value == _OFF.get(name) else value


@contextlib.contextmanager
def _flag_names() -> Iterator[None]:
    """Says errors of tfm.decoding in the names of the flags."""
    try:
        yield
    except ValueError as error:
        message = re.sub(r"\b([a-z_]+(?==)|Greedy\b)", lambda match: _flag_name(match[1]), str(error))
        field = str(error).partition("=")[0]
        remedy = f"; --{_flag_name(field)}={_OFF[field]:g} turns it off" if field in _OFF else ""
        raise ValueError(message + remedy) from error


def _flag_name(name: str) -> str:
    return _FLAG_NAMES.get(name, name).replace("_", "-")


def choose_strategy(flags: Mapping[str, object]) -> str:
    """The strategy that the flags name, or that all of them fit, or "" if none of them belongs to a strategy.

    Raises UserError if they belong to several strategies.
    """
    named = str(flags.get("strategy", ""))
    if "strategy" in flags and named not in STRATEGY_FLAGS:
        raise UserError(f"--strategy={named} is unknown{suggest(named, STRATEGY_FLAGS)}")
    owners = {flag: strategies for flag in flags if (strategies := _strategies_with(flag))}
    if not named and not owners:
        return ""
    fitting = [name for name in ("sample", "beam") if all(name in strategies for strategies in owners.values())]
    strategy = named or next(iter(fitting), "beam")
    for flag, strategies in owners.items():
        if strategy not in strategies:
            raise UserError(
                f"--{_flag_name(flag)} belongs to --strategy={' or '.join(strategies)}, not to {strategy}; leave it out"
            )
    return strategy


def _strategies_with(flag: str) -> Sequence[str]:
    return [strategy for strategy, flags in STRATEGY_FLAGS.items() if flag in flags]

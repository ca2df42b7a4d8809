"""What train.generate takes from the folder of a model: its fields stand for the flags that are not given."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tfm
from train import UserError
from train.generation.options import FILTERS, GenerateOptions
from train.settings.gate import user_errors
from train.tasks.translate import marks
from train.text.special import document_marks, generation_of

if TYPE_CHECKING:
    from tfm.hf.generation import FolderGeneration

# Flags, and the fields of generation_config.json that they override.
_FIELDS = {
    "temperature": "temperature",
    **{name: name for name in FILTERS},
    "repetition_penalty": "repetition_penalty",
    "beams": "num_beams",
    "length_penalty": "length_penalty",
    "max_new_tokens": "max_new_tokens",
}

# What transformers has where a folder says nothing.
_DRAWS = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
_BEAMS = {"beams": 1, "length_penalty": 1.0}


class Choice(NamedTuple):
    """How texts are written.

    options: the flags, and for those that are not given what the folder says
    strategy: greedy, sample or beam
    stop: the tokens that end a text
    generation: what the folder says; None for a run of this project
    vocab: places of the vocabulary
    early: when a beam ends, as `tfm.Beam` has it
    ends: texts of the folder that end one, and stay in it as in transformers
    """

    options: GenerateOptions
    strategy: str
    stop: list[int]
    generation: "FolderGeneration | None"
    vocab: int
    early: bool | str
    ends: tuple[str, ...] = ()

    def greedy(self, constraints: Any = None) -> tfm.Greedy:
        """The `tfm.Greedy` of the choice."""
        return dataclasses.replace(self.options.greedy(), constraints=constraints)

    def sample(self, seeds: np.ndarray, constraints: Any = None) -> tfm.Sample:
        """The `tfm.Sample` of the choice, with a seed for each row."""
        return dataclasses.replace(self.options.sample(seeds), constraints=constraints)

    def beam(self, constraints: Any = None) -> tfm.Beam:
        """The `tfm.Beam` of the choice. Scores are divided by a power of the length, where the model is a folder."""
        beam = dataclasses.replace(self.options.beam(), early_stopping=self.early, constraints=constraints)
        return beam if self.generation is None else dataclasses.replace(beam, offset=0.0)

    def constraints(
        self, prompts: Sequence[Sequence[int]], sources: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> Any:
        """The `tfm.Constraints` on what follows prompts; None where there are none."""
        if self.generation is None:
            return None
        repeats = self.options.repetition_penalty if self.strategy == "beam" else None
        return self.generation.constraints(prompts, sources, self.vocab, limits, repeats)

    @property
    def constrains(self) -> bool:
        """Whether any text has constraints."""
        return self.constraints([[0]], [[0]], [1]) is not None or self.constraints([[0] * 2], [[0]], [1]) is not None

    def new_tokens(self, prompt: int) -> int | None:
        """The most tokens to add to a prompt of so many; None where neither flags nor the folder say it."""
        if self.options.max_new_tokens is not None or self.generation is None:
            return self.options.max_new_tokens
        return self.generation.new_tokens(prompt)


def choose(folder: Any, options: GenerateOptions, explicit: Mapping[str, Any], strategy: str, usual: str) -> Choice:
    """How texts are written with the model of a folder: by flags, by the folder, or by the `usual` strategy.

    Raises UserError for what the folder asks for and is absent here.
    """
    task, vocab = folder.config.task, folder.config.model.padded_vocab
    translates = folder.task.generates == "translation"
    if translates:
        marks.template(folder.processor, task)  # refuses languages before weights are read
    generation = marks.generation(folder.processor, task) if translates else generation_of(folder.processor)
    early: bool | str = options.early_stopping
    if generation is None:
        return Choice(options, strategy or usual, [document_marks(folder.processor).last], None, vocab, early)
    with user_errors():
        generation = generation.within(folder.config.model.vocab)
        named = strategy or generation.strategy
        chosen = named or "greedy"
        generation.check(chosen)
    values = generation.values
    defaults: dict[str, Any] = {**(_DRAWS if not strategy and chosen == "sample" else {}), **_BEAMS}
    defaults |= {flag: values[field] for flag, field in _FIELDS.items() if field in values}
    defaults["top_k"] = defaults.get("top_k") or None
    if "beams" in explicit or (strategy == "beam" and values.get("num_beams", 1) == 1):
        defaults.pop("beams")
    texts = values.get("stop_strings") or ()
    ends = () if "stop" in explicit else (texts,) if isinstance(texts, str) else tuple(texts)
    try:
        options = dataclasses.replace(options, **{flag: v for flag, v in defaults.items() if flag not in explicit})
    except ValueError as error:
        fields = {flag.replace("_", "-"): field for flag, field in _FIELDS.items()}
        message = re.sub(r"^[\w-]+(?==)", lambda match: fields.get(match[0], match[0]), str(error))
        raise UserError(f"{generation.source}: {message}") from error
    if "early_stopping" not in explicit:
        early = generation.early_stopping
    return Choice(options, chosen, generation.stop, generation, vocab, early, ends)


def describe(choice: Choice) -> str:
    """What comes from the folder, in a line."""
    generation = choice.generation
    if generation is None:
        return ""
    unknown = f"; it has {', '.join(generation.unknown)}, which change nothing here" if generation.unknown else ""
    ending = "" if choice.stop else "; no token ends a text"
    return f"strategy {choice.strategy}; from {generation}{unknown}{ending}"

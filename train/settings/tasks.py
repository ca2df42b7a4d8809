"""What each task can be told."""

import dataclasses

from tfm.config.model import suggest


@dataclasses.dataclass(frozen=True)
class Mlm:
    """Masked language modelling (Devlin et al. 2018).

    name: what to train for: mlm | lm | classify | translate
    rate: share of tokens to predict; of them 80 % are masked, 10 % replaced, 10 % kept
    whole_words: hide words, not pieces of them
    nsp: also predict whether two sentences follow each other; every row is such a pair
    """

    name: str = "mlm"
    rate: float = 0.15
    whole_words: bool = False
    nsp: bool = False

    def __post_init__(self):
        if not 0 < self.rate < 1:
            raise ValueError(f"rate={self.rate} must be between 0 and 1; BERT uses 0.15")


@dataclasses.dataclass(frozen=True)
class Lm:
    """Language modelling from left to right (Radford et al. 2018).

    name: what to train for: mlm | lm | classify | translate
    windows: rows are windows that begin anywhere in the text, all documents in a line; else a token sees its own document alone
    stride: validation rows begin so many tokens apart and judge only what the one before has not; 0 means they do not overlap
    """

    name: str = "lm"
    windows: bool = False
    stride: int = 0

    def __post_init__(self):
        if self.stride < 0:
            raise ValueError(f"stride={self.stride} must not be negative; 0 means rows that do not overlap")


@dataclasses.dataclass(frozen=True)
class Classify:
    """Classes or a number for a sentence or a pair of sentences (Devlin et al. 2018, section 4.1).

    name: what to train for: mlm | lm | classify | translate
    kind: single | multi | regression: one class a text, any number of them, or a number
    """

    name: str = "classify"
    kind: str = "single"

    def __post_init__(self):
        known(self, kind=("single", "multi", "regression"))


@dataclasses.dataclass(frozen=True)
class Translate:
    """Translation, or any other text from a text (Vaswani et al. 2017).

    name: what to train for: mlm | lm | classify | translate
    source: the language to translate from: a column of the data, or the ending of one of two files
    target: the language to translate into
    long: what becomes of a pair that is longer than batch.length: drop | error
    smoothing: share of the probability that is spread over all tokens in training
    bleu: validation sentences that are translated at each evaluation, for BLEU; all at the end
    beams: translations that are followed at a time when sentences are translated for BLEU; 1 is greedy
    length_penalty: of that search; above 0, longer translations are preferred
    start: the token that a translation begins with, of models whose texts the tokenizer marks itself (those of transformers); else [CLS]
    """

    name: str = "translate"
    source: str = "en"
    target: str = "de"
    long: str = "drop"
    smoothing: float = 0.1
    bleu: int = 200
    beams: int = 5
    length_penalty: float = 0.6
    start: str = ""

    def __post_init__(self):
        known(self, long=("drop", "error"))
        at_least_one(self, "beams")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing={self.smoothing} must be at least 0 and less than 1; the paper has 0.1")
        if self.bleu < 0:
            raise ValueError(f"bleu={self.bleu} must not be negative; 0 means none before the end")
        if self.source == self.target:
            raise ValueError(f"source={self.source} and task.target are the same; name two columns or languages")


TASKS = {kind.name: kind for kind in (Mlm, Lm, Classify, Translate)}


def known(section, **choices: tuple[str, ...]):
    """Raises ValueError where a field of that name has none of these values."""
    for name, values in choices.items():
        if getattr(section, name) not in values:
            raise ValueError(f"{name}={getattr(section, name)} is unknown{suggest(getattr(section, name), values)}")


def at_least_one(section, *names: str):
    """Raises ValueError where one of these fields is less than 1."""
    for name in names:
        if getattr(section, name) < 1:
            raise ValueError(f"{name}={getattr(section, name)} must be at least 1")

"""The options of translation."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, check_rates, frozen, tag
from train.settings.limits import MAX_BEAMS
from train.settings.schema import Run
from train.settings.sounds import Sound
from train.settings.task_options import TaskOptions

# --task.early-stopping, and what `tfm.Beam` calls it.
EARLY_STOPPING: Mapping[str, bool | str] = {"yes": True, "no": False, "likely": "likely"}

Scores = Literal["bleu", "rouge", "answers"]

# The metrics of written texts by --task.scores, the first of which test sets have too.
SCORES: Mapping[str, tuple[str, ...]] = {
    "bleu": ("bleu", "chrf"),
    "rouge": ("rouge1", "rouge2", "rougeL"),
    "answers": ("exact_match", "f1"),
}
WRITTEN_METRICS = tuple(name for names in SCORES.values() for name in names)


@frozen
class Translate(TaskOptions):
    """Translation, or any other text from a text (Vaswani et al. 2017) or, with --model.encoder.input=frames, from a
    sound (Radford et al. 2022).

    source: the language to translate from: a column of the data, or the ending of one of two files
    target: the language to translate into
    long: drop | error: what becomes of a pair that is longer than batch.length
    smoothing: probability that is divided among all tokens in training
    scores: bleu | rouge | answers: what the texts are judged by that are written for validation sources: BLEU and chrF,
        ROUGE of summaries, or exact match and F1 of answers
    bleu: validation sources for which a text is written at each evaluation; all at the end
    beams: texts that are followed at a time there; 1 is greedy
    length_penalty: of that search; above 0, longer translations are preferred
    length_offset: of that penalty: 5 as in its paper, 0 as in transformers
    early_stopping: of that search: yes | no | likely: ends at as many translations as beams, never before better ones
        may follow, or once a better one is unlikely
    start: the token that a translation begins with; empty: [CLS]. Models of transformers have their own
    source_language: of a model with several languages: that of the sources; by default as its folder says
    target_language: of such a model: that of the translations
    sound: how a sound becomes frames
    """

    has_buckets: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = ("frames",)

    name: Literal["translate"] = tag("translate")
    source: str = "en"
    target: str = "de"
    long: Literal["drop", "error"] = "drop"
    smoothing: float = 0.1
    scores: Scores = "bleu"
    bleu: int = 200
    beams: int = 5
    length_penalty: float = 0.6
    length_offset: float = 5.0
    early_stopping: Literal["yes", "no", "likely"] = "no"
    start: str = ""
    source_language: str = ""
    target_language: str = ""
    sound: Sound = Sound()

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, beams=1, length_offset=0)
        check_maximum(self, "every beam is a text in memory", beams=MAX_BEAMS)
        check_rates(self, "smoothing", usual="the paper has 0.1")
        if self.bleu < 0:
            raise ValueError(f"bleu={self.bleu} must not be negative; 0 means none before the end")
        if self.source == self.target:
            raise ValueError(f"source={self.source} and task.target are the same; name two columns or languages")

    def check_task(self, run: Run) -> None:
        scores = next((kind for kind, names in SCORES.items() if run.eval.best in names), None)
        if scores not in (None, self.scores):
            raise ValueError(f"eval.best={run.eval.best} is for task.scores={scores}, not {self.scores}; set that")
        if scores and not self.bleu:
            raise ValueError(
                f"eval.best={run.eval.best} needs translations to judge; set --task.bleu to a number of sentences"
            )

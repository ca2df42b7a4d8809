"""What a model wrote against references: BLEU and chrF of translations, ROUGE of summaries, or exact match and F1 of
answers."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from train.metrics import squad

_WORD = re.compile(r"[^\W_]+")

# Draws of the texts for an interval.
_RESAMPLES = 1000


def metrics(kind: str, texts: Sequence[str], references: Sequence[str]) -> dict[str, object]:
    """The metrics of a kind, bleu, rouge or answers, over all texts; those of BLEU with their signatures."""
    if kind == "bleu":
        return translation_metrics(texts, references)
    return {name: float(np.mean(values)) for name, values in _by_text(kind, texts, references).items()}


def intervals(
    kind: str, texts: Sequence[str], references: Sequence[str], against: Sequence[str] | None = None
) -> dict[str, object]:
    """95 % intervals of the metrics of a kind over 1,000 resamples of the texts (Koehn 2004).

    With texts `against` these, also their metrics, and `p`: how often chance alone makes so large a difference on the
    same resamples.
    """
    if kind == "bleu":
        return bootstrap(texts, references, against)
    draws = np.random.default_rng(0).integers(len(texts), size=(_RESAMPLES, len(texts)))
    rivals = None if against is None else _by_text(kind, against, references)
    results: dict[str, object] = {}
    for name, values in _by_text(kind, texts, references).items():
        results[f"{name}_interval"] = np.percentile(values[draws].mean(1), (2.5, 97.5)).tolist()
        if rivals is not None:
            gains = values - rivals[name]
            by_chance = np.abs(gains[draws].mean(1) - gains.mean()) >= abs(gains.mean())
            results[f"{name}_against"] = float(rivals[name].mean())
            results[f"{name}_p"] = float((by_chance.sum() + 1) / (_RESAMPLES + 1))
    return results


def translation_metrics(translations: Sequence[str], references: Sequence[str]) -> dict[str, object]:
    """sacreBLEU and chrF, 0 to 100, with signatures that say how they were computed (Post 2018)."""
    import sacrebleu

    bleu = sacrebleu.BLEU()
    chrf = sacrebleu.CHRF()
    metrics: dict[str, object] = {
        "bleu": bleu.corpus_score(translations, [references]).score,
        "chrf": chrf.corpus_score(translations, [references]).score,
    }
    return metrics | {"signature": f"BLEU|{bleu.get_signature()} chrF|{chrf.get_signature()}"}


def bootstrap(
    translations: Sequence[str], references: Sequence[str], against: Sequence[str] | None = None
) -> dict[str, object]:
    """95 % intervals of BLEU and chrF over 1,000 resamples of the sentences (Koehn 2004).

    With translations `against` these, also their metrics, and `p`: how often chance alone makes so large a difference
    on the same resamples.
    """
    import sacrebleu
    from sacrebleu import significance

    scorers = {"BLEU": sacrebleu.BLEU(references=[references]), "chrF2": sacrebleu.CHRF(references=[references])}
    systems: list[tuple[str, Sequence[str]]] = [
        ("against", list(against or translations)),
        ("translations", list(translations)),
    ]
    test: Any = significance.PairedTest(systems, scorers, references=None, test_type="bs", n_samples=1000)
    results = test()[1]
    metrics: dict[str, object] = {}
    for name, key in (("bleu", "BLEU"), ("chrf", "chrF2")):
        rival, result = results[key]
        metrics[f"{name}_interval"] = [float(result.mean - result.ci), float(result.mean + result.ci)]
        if against is not None:
            metrics |= {f"{name}_against": float(rival.score), f"{name}_p": float(result.p_value)}
    return metrics


def rouge(text: str, reference: str) -> dict[str, float]:
    """F1 of the words (`rouge1`) and pairs of words (`rouge2`) that two texts share, and of their longest common
    subsequence (`rougeL`), 0 to 1 (Lin 2004).

    Words are runs of letters and digits of any script, lower-cased and not stemmed.
    """
    words, expected = (_WORD.findall(side.lower()) for side in (text, reference))
    pairs, expected_pairs = (list(pairwise(side)) for side in (words, expected))
    return {
        "rouge1": _f1((Counter(words) & Counter(expected)).total(), len(words), len(expected)),
        "rouge2": _f1((Counter(pairs) & Counter(expected_pairs)).total(), len(pairs), len(expected_pairs)),
        "rougeL": _f1(common_subsequence(words, expected), len(words), len(expected)),
    }


def common_subsequence(words: Sequence[str], reference: Sequence[str]) -> int:
    """The length of the longest common subsequence; a bit stands for a word of the reference (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(reference):
        places[word] = places.get(word, 0) | 1 << place
    rest = everything = (1 << len(reference)) - 1
    for word in words:
        shared = rest & places.get(word, 0)
        rest = ((rest + shared) | (rest - shared)) & everything
    return len(reference) - rest.bit_count()


def answer(text: str, reference: str) -> dict[str, float]:
    """Exact match and F1 of the words, as SQuAD counts them."""
    return {"exact_match": squad.exact_match(text, reference), "f1": squad.f1_or_empty(text, reference)}


def _f1(shared: int, written: int, expected: int) -> float:
    return 2 * shared / (written + expected) if shared else 0.0


def _by_text(kind: str, texts: Sequence[str], references: Sequence[str]) -> dict[str, np.ndarray]:
    """The metrics of every text, by name."""
    scores = [_OF_TEXT[kind](*pair) for pair in zip(texts, references, strict=True)]
    return {name: np.array([score[name] for score in scores]) for name in scores[0]}


_OF_TEXT: Mapping[str, Callable[[str, str], dict[str, float]]] = {"rouge": rouge, "answers": answer}

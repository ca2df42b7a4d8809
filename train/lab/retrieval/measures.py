"""How good a ranking is, by the rules of trec_eval."""

from collections.abc import Mapping
from math import log2

from train.lab.retrieval.rankings import Ranking, in_order


def measure(ranking: Ranking, judged: Mapping[str, int]) -> dict[str, float]:
    """Scores of passages, and the relevance of judged ones -> metrics of a query.

    `ndcg_10`: the relevance of the first ten, each divided by log2(rank + 1), over the best that is possible (Järvelin
    and Kekäläinen 2002); `mrr_10`: one over the rank of the first relevant passage, if it is among ten; `recall_100`:
    the share of relevant passages among a hundred; `map`: the mean, over relevant passages, of the share of relevant
    ones up to each. Relevant is what has more than 0. A query without any has 0 throughout.
    """
    gains = [max(0, judged.get(name, 0)) for name in in_order(ranking)]
    ideal = sorted((gain for gain in judged.values() if gain > 0), reverse=True)
    if not ideal:
        return {"ndcg_10": 0.0, "mrr_10": 0.0, "recall_100": 0.0, "map": 0.0}
    ranks = [rank for rank, gain in enumerate(gains, 1) if gain > 0]
    precisions = [count / rank for count, rank in enumerate(ranks, 1)]
    return {
        "ndcg_10": _discounted(gains) / _discounted(ideal),
        "mrr_10": 1 / ranks[0] if ranks and ranks[0] <= 10 else 0.0,
        "recall_100": sum(rank <= 100 for rank in ranks) / len(ideal),
        "map": sum(precisions) / len(ideal),
    }


def _discounted(gains: list[int]) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains[:10], 1))

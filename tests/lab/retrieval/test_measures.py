"""Metrics of rankings: by their definitions in sums over ranks, and those of trec_eval itself."""

import math
import random

import pytest

from train.lab.retrieval.measures import measure
from train.lab.retrieval.rankings import in_order


def drawn(seed, queries=40):
    """Rankings with many equal scores, and judgments of several grades; some queries have no relevant passage."""
    rng = random.Random(seed)
    names = [f"p{index}" for index in range(200)]
    for index in range(queries):
        ranking = {name: rng.choice((0.5, 1.25, rng.random())) for name in rng.sample(names, rng.randint(1, 150))}
        grades = (0, 0, 0, 1, 2, 3) if index % 8 else (0, -1)
        yield f"q{index}", ranking, {name: rng.choice(grades) for name in rng.sample(names, rng.randint(1, 30))}


def by_definition(ranking, judged):
    """Each metric anew: ranks are counts of passages that stand before, equal scores by their ids, largest first."""
    relevant = {name: gain for name, gain in judged.items() if gain > 0}
    if not relevant:
        return dict.fromkeys(("ndcg_10", "mrr_10", "recall_100", "map"), 0.0)
    rank = {
        name: 1 + sum((score, passage) > (ranking[name], name) for passage, score in ranking.items())
        for name in ranking
    }
    best = sorted(relevant.values())[::-1][:10]
    ideal = sum(gain / math.log2(place + 2) for place, gain in enumerate(best))
    retrieved = {name: rank[name] for name in relevant if name in rank}
    first = min(retrieved.values(), default=99)
    return {
        "ndcg_10": sum(relevant[name] / math.log2(1 + r) for name, r in retrieved.items() if r <= 10) / ideal,
        "mrr_10": 1 / first if first <= 10 else 0.0,
        "recall_100": sum(r <= 100 for r in retrieved.values()) / len(relevant),
        "map": sum(sum(s <= r for s in retrieved.values()) / r for r in retrieved.values()) / len(relevant),
    }


def test_metrics_are_those_of_their_definitions():
    for _, ranking, judged in drawn(0):
        assert measure(ranking, judged) == pytest.approx(by_definition(ranking, judged))


def test_equal_scores_stand_in_falling_order_of_ids():
    assert in_order({"a": 1.0, "b": 2.0, "c": 1.0 + 1e-9}) == ["b", "c", "a"], "equal in float32"
    assert in_order({"p10": 1.0, "p9": 1.0}) == ["p9", "p10"]


@pytest.mark.parity
def test_metrics_are_those_of_trec_eval():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rows = list(drawn(1, 100))
    qrels, run = {name: judged for name, _, judged in rows}, {name: ranking for name, ranking, _ in rows}
    names = {"ndcg_10": "ndcg_cut_10", "recall_100": "recall_100", "map": "map"}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100", "map"})
    # A reciprocal rank among ten is that of a run of ten.
    cut = {name: {place: ranking[place] for place in in_order(ranking)[:10]} for name, ranking in run.items()}
    reciprocal = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(cut)
    for query, values in evaluator.evaluate(run).items():
        metrics = measure(run[query], qrels[query])
        assert {name: values[official] for name, official in names.items()} | {
            "mrr_10": reciprocal[query]["recip_rank"]
        } == pytest.approx(metrics)

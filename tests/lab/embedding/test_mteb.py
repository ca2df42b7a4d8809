"""mteb's own runner with a small run and data that lie here: its metrics are those of train.retrieve and of scipy."""

import json

import numpy as np
import pytest
from small import call, run

from train.lab import embedding
from train.lab.retrieve import main as retrieve

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]

SMALL = (
    "--task=contrast --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=16 --batch.length=16 --batch.shapes=1 --steps=4 --model.dropout=0 "
    "--data=pairs.tsv --data.field=query,passage --log.every=2 --eval.every=4 --checkpoint.every=4 --out=run "
    "--task.query-prompt=ask_ --task.passage-prompt=tell_"
).split()
WORDS = "one two three four five six seven eight".split()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run with prompts, and a folder of BEIR."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(80)]
    rows = ["query\tpassage", *(f"{text}\t{' '.join(rng.permutation(text.split()))}" for text in texts)]
    (folder / "pairs.tsv").write_text("\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(*SMALL)
    (folder / "beir" / "qrels").mkdir(parents=True)
    for name, prefix, part in (("corpus", "p", texts[:40]), ("queries", "q", texts[40:])):
        lines = [json.dumps({"_id": f"{prefix}{index}", "text": text}) for index, text in enumerate(part)]
        (folder / "beir" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    lines = [f"q{index}\tp{place}\t1" for index in range(40) for place in (index, (index + 7) % 40)]
    (folder / "beir" / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


def metadata_of(name, kind, main_score):
    from mteb.abstasks.task_metadata import TaskMetadata

    return TaskMetadata(
        name=name,
        dataset={"path": "here", "revision": "1"},
        description="words",
        type=kind,
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=main_score,
    )


def test_retrieval_and_similarity(home, monkeypatch):
    mteb = pytest.importorskip("mteb")
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval, AbsTaskSTS

    from train.lab.mteb_model import MtebModel

    parts = {
        name: [json.loads(line) for line in (home / "beir" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("corpus", "queries")
    }
    of_columns = {
        name: Dataset.from_dict({"id": [row["_id"] for row in rows], "text": [row["text"] for row in rows]})
        for name, rows in parts.items()
    }
    qrels = {f"q{index}": {f"p{index}": 1, f"p{(index + 7) % 40}": 1} for index in range(40)}
    texts = [row["text"] for row in parts["corpus"]]
    scores = np.random.default_rng(1).uniform(0, 5, 39)
    pairs = Dataset.from_dict({"sentence1": texts[:-1], "sentence2": texts[1:], "score": scores.tolist()})

    class Words(AbsTaskRetrieval):
        metadata = metadata_of("Words", "Retrieval", "ndcg_at_10")

        def load_data(self, **options):
            self.dataset = {"default": {"test": {**of_columns, "relevant_docs": qrels, "top_ranked": None}}}
            self.data_loaded = True

    class Likeness(AbsTaskSTS):
        metadata = metadata_of("Likeness", "STS", "cosine_spearman")

        def load_data(self, **options):
            self.dataset, self.data_loaded = {"test": pairs}, True

    results = mteb.evaluate(MtebModel("run"), [Words(), Likeness()], cache=None, co2_tracker=False)
    of_mteb = {result.task_name: result.scores["test"][0] for result in results.task_results}
    code, out, err = call(retrieve, "--run=run", "--data=beir", "--bm25=false")
    assert code == 0, err
    expected = json.loads(out)
    names = {"ndcg_at_10": "ndcg_10", "recall_at_100": "recall_100", "map_at_1000": "map"}
    for of_task, name in names.items():
        assert of_mteb["Words"][of_task] == pytest.approx(expected[name], abs=2e-5)
    from scipy.stats import spearmanr

    vectors = embedding.embed("run", texts)
    cosines = (vectors[:-1] * vectors[1:]).sum(1)
    cosines /= np.linalg.norm(vectors[:-1], axis=1) * np.linalg.norm(vectors[1:], axis=1)
    assert of_mteb["Likeness"]["cosine_spearman"] == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-5)

"""all-MiniLM-L6-v2: its vectors are those of sentence-transformers, and STS-B has its published number."""

import time

import numpy as np
import pytest
from scipy.stats import spearmanr
from small import call

import tfm
from real import folders
from train import export, predict
from train.lab.embedding import embed

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folders.minilm(tmp_path_factory.mktemp("minilm"))


@pytest.fixture(scope="module")
def reference(folder):
    """The model of the library."""
    return pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")


def pairs(name):
    """Scores and both sentences of a file of STS-B."""
    lines = folders.data(f"stsb/{name}").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    return [float(row[4]) for row in rows], [row[5] for row in rows], [row[6] for row in rows]


def test_vectors_of_sentences(folder, reference):
    """Short ones, and one that is cut at 256 tokens."""
    texts = ["A man with a hard hat is dancing.", "naïve café, 東京", "A long one. " * 200, "?"]
    np.testing.assert_allclose(embed(folder, texts), reference.encode(texts), atol=1e-6)


@pytest.mark.parametrize(("name", "spearman"), [("sts-test.tsv", 0.8203), ("sts-dev.tsv", None)])
def test_stsb(folder, reference, name, spearman):
    """Without a flag the published correlation; of the development pairs that of the library."""
    scores, first, second = pairs(name)
    x, y = embed(folder, first), embed(folder, second)
    correlation = spearmanr((x * y).sum(1), scores).statistic
    if spearman is None:
        library = [reference.encode(side) for side in (first, second)]
        np.testing.assert_allclose(x, library[0], atol=1e-6)
        spearman = spearmanr((library[0] * library[1]).sum(1), scores).statistic
        print(f"{name}: {correlation:.4f}, sentence-transformers {spearman:.4f}")
    assert correlation == pytest.approx(spearman, abs=1e-4)


def test_stsb_of_mteb(folder):
    """Its runner and its task, with the development pairs that lie here: the correlation of the test above."""
    mteb = pytest.importorskip("mteb")
    from datasets import Dataset

    from train.lab.mteb_model import MtebModel

    scores, first, second = pairs("sts-dev.tsv")
    task = mteb.get_tasks(["STSBenchmark"], eval_splits=["validation"], exclude_superseded=False)[0]
    rows = Dataset.from_dict({"sentence1": first, "sentence2": second, "score": scores})
    task.dataset, task.data_loaded = {"validation": rows}, True
    task.load_data = lambda **options: None
    results = mteb.evaluate(MtebModel(str(folder)), [task], cache=None, co2_tracker=False)
    correlation = results.task_results[0].scores["validation"][0]["cosine_spearman"]
    print(f"mteb STSBenchmark, validation: {correlation:.4f}")
    x, y = embed(folder, first), embed(folder, second)
    assert correlation == pytest.approx(spearmanr((x * y).sum(1), scores).statistic, abs=1e-5)


def test_export_there_and_back(folder, tmp_path):
    """Vectors stay, in both libraries; the cosine of train.predict is theirs."""
    package = pytest.importorskip("sentence_transformers")
    code, _, err = call(export.main, f"--run={folder}", f"--to={tmp_path / 'again'}")
    assert code == 0, err
    texts = ["A plane is taking off.", "An air plane is taking off."]
    expected = embed(folder, texts)
    np.testing.assert_allclose(embed(tmp_path / "again", texts), expected, atol=1e-6)
    again = package.SentenceTransformer(str(tmp_path / "again"), device="cpu")
    np.testing.assert_allclose(again.encode(texts), expected, atol=1e-6)
    code, out, err = call(predict.main, f"--run={folder}", f"--text={texts[0]}", f"--pair={texts[1]}")
    assert code == 0, err
    assert float(out) == pytest.approx(float(expected[0] @ expected[1]), abs=1e-4)


def test_it_is_read_in_seconds(folder):
    start = time.perf_counter()
    tfm.from_hf(folder)
    seconds = time.perf_counter() - start
    print(f"from_hf: {seconds:.2f} s")
    assert seconds < 30

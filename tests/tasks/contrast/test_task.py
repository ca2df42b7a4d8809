"""Contrast of texts: batches, forms of files, and whole runs on small files."""

import json

import numpy as np
import pytest
from small import call, run

from train import evaluate, export, predict
from train.data.tokens import contents_of, in_memory
from train.lab import embed, embedding
from train.main import main
from train.screens.console import Log
from train.settings.schema import Batch, Data
from train.tasks.contrast.options import Contrast
from train.tasks.contrast.rows import RowFields, SideRows
from train.tasks.contrast.source import Sides
from train.tasks.table import AnyRun
from train.text import sentence_transformers, tokenize

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=contrast --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=16 --batch.length=16 --batch.shapes=2 --steps=150 --optim.rate=5e-3 "
    "--model.init-std=0.1 --log.every=50 --eval.every=75 --checkpoint.every=75"
).split()
ENGLISH = "one two three four five six seven eight nine ten".split()
SPANISH = "uno dos tres cuatro cinco seis siete ocho nueve diez".split()


def rows_of(count, seed):
    """Numbers in two languages, and numbers that are not the same."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        digits = rng.integers(10, size=rng.integers(2, 6))
        texts = [" ".join(words[digit] for digit in digits) for words in (ENGLISH, SPANISH)]
        yield {"text": texts[0], "positive": texts[1], "negative": " ".join(SPANISH[digit - 1] for digit in digits)}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of files."""
    folder = tmp_path_factory.mktemp("home")
    for name, count in (("train", 600), ("dev", 80)):
        rows = list(rows_of(count, len(name)))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        scored = [(row["text"], row["positive" if n % 2 else "negative"], 5 * (n % 2)) for n, row in enumerate(rows)]
        lines = ["text\tpositive\tlabel", *("\t".join(map(str, row)) for row in scored)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        (folder / f"{name}.txt").write_text("\n".join(row["text"] for row in rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(home):
    """A run on pairs, and its result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        run(*SMALL, "--data=train.jsonl", "--eval-data=dev.jsonl", "--model.dropout=0", "--out=pairs")
    return json.loads((home / "pairs" / "result.json").read_text())


def test_batch():
    """Each text stands alone between its marks; absent texts and empty rows are padding; the shape is the bucket's."""
    tokenizer = tokenize.load(AnyRun().tokenizer, ["a cat sat on the mat", "it ran"] * 20, Log(quiet=True))
    sides = [["a cat", "it ran on the mat", "sat"], ["it", "", "a cat sat on the mat it ran"]]
    texts = [in_memory(tokenizer, side) for side in sides]
    contents = contents_of(texts, 3)
    assert contents_of(texts, 2).tolist() == [[0, 3], [1, 4], [2, 0]], "as far as the model reads them"
    assert contents.tolist() == [[0, 3], [1, 4], [2, 5]]
    fields = RowFields(None, Contrast(temperature=0.5), np.float32([0, 1, 0]), contents)
    rows = SideRows(texts, fields, Batch(size=2, length=8), tokenizer, 4)
    batches = [order for order in rows.buckets.epoch() if 0 in order or 1 in order]
    assert rows.cut == pytest.approx(1 / 6)
    ids = tokenizer.token_to_id
    for order in batches:
        batch = rows.batch(order)
        assert batch["tokens"].shape[:2] == (2, 2)
        for b, row in enumerate(order):
            for n, side in enumerate(sides):
                words = side[row].split() if row >= 0 else []
                expected = [ids(word) for word in (["[CLS]", *words, "[SEP]"] if words else [])]
                size = len(expected)
                if size <= 8:
                    assert batch["tokens"][b, n].tolist() == expected + [ids("[PAD]")] * (
                        len(batch["tokens"][b, n]) - size
                    )
                    assert batch["valid"][b, n].sum() == size
        assert batch["weights"].tolist() == [float(row in (0, 2)) for row in order], "the second text of 1 is absent"
        assert batch["withheld"].tolist() == [float(row == 1) for row in order]
        assert (batch["temperature"] == 0.5).all()
        assert batch["contents"].tolist() == [contents[row].tolist() if row >= 0 else [-1, -1] for row in order]


def test_rows_without_any_token():
    """They count for nothing, and fill a row of their own length."""
    tokenizer = tokenize.load(AnyRun().tokenizer, ["a cat sat"] * 20, Log(quiet=True))
    texts = [in_memory(tokenizer, side) for side in (["a cat", ""], ["sat", ""])]
    fields = RowFields(None, Contrast(temperature=0.5), np.zeros(2), contents_of(texts, 8))
    rows = SideRows(texts, fields, Batch(size=2, length=8), tokenizer, 4)
    assert rows.counts.tolist() == [True, False]
    assert all(shape.lengths[0] >= 2 for shape in rows.buckets.shapes)
    assert sum(rows.batch(order)["weights"].sum() for order in rows.buckets.epoch()) == 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--task.temperature=0", "temperature=0.0 must be at least 0.001; 0.05 is usual"),
        ("--task.scale=5", "scale=5.0 is of kind=scores; leave it out"),
        ("--data.field=text", "data.field=text is one column, whose texts meet themselves under another dropout"),
        ("--task.kind=scores --data.field=a,b,c", "data.field=a,b,c must name two columns with task.kind=scores"),
        ("--data=train.txt", "train.txt has texts alone, and --data.field=text,positive asks for columns"),
        ("--data.field=a,b,c", "a translation each; name two columns, or query,passage,negative"),
        ("--data=train.tsv --task.kind=scores", "a score is 5, and --task.scale=1 says at most that; raise it"),
        ("--data=blank.tsv", "every row of blank.tsv has a blank text; correct the columns"),
        ("--data=train.tsv --data.field=text,other", "train.tsv, line 2 has no text column 'other'"),
    ],
)
def test_bad_input(flags, says, home):
    (home / "blank.tsv").write_text("text\tpositive\na\t \nb\t\n")
    code, out, err = call(main, *SMALL, "--model.dropout=0", "--out=bad", *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert err.splitlines()[-1].startswith("error: ")
    assert not (home / "bad").exists()


def test_lines_of_a_text(home):
    """A line is a text, whatever --data.split says of files."""
    (home / "lines.txt").write_text("a cat\n\nit ran\n")
    from train.data.sources import sources

    assert sources.read("lines.txt", Data(), Sides(("text",)), list) == [{"text": "a cat"}, {"text": "it ran"}]


@pytest.mark.slow
def test_pairs_are_learned(trained):
    assert trained["eval_retrieval_1"] > 0.5 > 3 * trained["eval_overlap_retrieval_1"]
    assert trained["eval_retrieval_5_back"] >= trained["eval_retrieval_1_back"] > 0.5
    assert trained["eval_n"] == 80


@pytest.mark.slow
def test_cached_gradients_train_as_the_whole_batch(trained, home):
    run(*SMALL, "--data=train.jsonl", "--eval-data=dev.jsonl", "--model.dropout=0", "--batch.accumulate=2", "--out=cut")
    result = json.loads((home / "cut" / "result.json").read_text())
    assert result["eval_retrieval_1"] == pytest.approx(trained["eval_retrieval_1"], abs=0.1)


@pytest.mark.slow
def test_other_commands(trained, home):
    """Metrics again, cosines, vectors, and the folder that is written."""
    code, out, err = call(evaluate.main, "--run=pairs")
    assert code == 0, err
    assert json.loads(out)["retrieval_1"] == pytest.approx(trained["eval_retrieval_1"])
    code, out, err = call(predict.main, "--run=pairs", "--text=one two three", "--pair=uno dos tres")
    assert code == 0, err
    same = float(out)
    code, out, _ = call(predict.main, "--run=pairs", "--text=one two three", "--pair=diez nueve siete seis")
    assert float(out) < same
    code, _, err = call(predict.main, "--run=pairs", "--text=one")
    assert code == 2
    assert "needs a second text" in err
    code, _, err = call(export.main, "--run=pairs", "--to=exported")
    assert code == 0, err
    modules = json.loads((home / "exported" / "modules.json").read_text())
    assert [module["path"] for module in modules] == ["", "1_Pooling"]
    pooling = json.loads((home / "exported" / "1_Pooling" / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == 32
    assert [name for name, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens", "include_prompt"]
    for folder in ("pairs", "exported"):
        assert call(embed.main, f"--run={folder}", "--file=dev.txt", f"--to={folder}.npy")[0] == 0
    np.testing.assert_allclose(np.load(home / "exported.npy"), np.load(home / "pairs.npy"), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "name", "minimum"),
    [
        ("--data=train.txt --eval-data=dev.txt --data.field=text --model.dropout=0.1", "eval_accuracy", 0.9),
        ("--data=train.jsonl --eval-data=dev.jsonl --data.field=text,positive,negative", "eval_retrieval_1", 0.4),
        ("--data=train.tsv --eval-data=dev.tsv --task.kind=scores --task.scale=5", "eval_spearman", 0.3),
    ],
    ids=["texts", "triplets", "scores"],
)
def test_other_forms(flags, name, minimum, home, request):
    folder = request.node.callspec.id
    run(*SMALL, "--model.dropout=0", f"--out={folder}", *flags.split())
    assert json.loads((home / folder / "result.json").read_text())[name] > minimum


@pytest.mark.parity
def test_exported_vectors_are_those_of_transformers(trained, home):
    """The mean of the states, as modules.json says it, by transformers."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    assert call(export.main, "--run=pairs", "--to=again")[0] == 0
    assert call(embed.main, "--run=pairs", "--file=dev.txt", "--to=ours.npy")[0] == 0
    tokenizer, model = AutoTokenizer.from_pretrained("again"), AutoModel.from_pretrained("again").eval()
    inputs = tokenizer((home / "dev.txt").read_text().splitlines(), padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    vectors = ((states * mask).sum(1) / mask.sum(1)).numpy()
    np.testing.assert_allclose(vectors, np.load(home / "ours.npy"), atol=1e-4)


@pytest.mark.parity
def test_exported_vectors_are_those_of_sentence_transformers(trained, home):
    """The exported folder, and each pooling that it may name."""
    package = pytest.importorskip("sentence_transformers")
    assert call(export.main, "--run=pairs", "--to=sentences")[0] == 0
    texts = (home / "dev.txt").read_text().splitlines()
    for pool in (None, "mean", "first", "last", "max"):
        if pool:
            sentence_transformers.save(home / "sentences", 32, pool, 16)
        model = package.SentenceTransformer("sentences", device="cpu")
        assert model.max_seq_length == 16
        vectors = model.encode(texts, batch_size=7, show_progress_bar=False)
        np.testing.assert_allclose(vectors, embedding.embed("pairs", texts, pool), atol=1e-5)

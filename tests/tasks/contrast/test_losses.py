"""The losses of the task: fields and files of scores, and values and gradients of sentence-transformers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import call, run

import tfm
from train import UserError
from train.lab import embedding
from train.main import main
from train.tasks.contrast.loss import compare, quantized
from train.tasks.contrast.options import Contrast
from train.tasks.contrast.scores import check_scores, scores_of

pytestmark = pytest.mark.usefixtures("in_home")

SMALL = (
    "--task=contrast --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 --batch.size=16 --batch.length=16 --batch.shapes=1 --steps=4 --model.dropout=0 "
    "--log.every=2 --eval.every=4 --checkpoint.every=4"
).split()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Rows with a teacher's scores as lists, and the same in a table."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    words = "one two three four five six seven eight".split()
    rows = []
    for _ in range(80):
        texts = [" ".join(rng.choice(words, 4)) for _ in range(4)]
        scores = rng.normal(size=3).round(2).tolist()
        rows.append(dict(zip(("query", "passage", "negative", "second"), texts, strict=True)) | {"score": scores})
    (folder / "taught.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["\t".join([*map(str, list(row.values())[:4]), " ".join(map(str, row["score"]))]) for row in rows]
    (folder / "taught.tsv").write_text("\n".join(["\t".join(rows[0]), *lines]) + "\n")
    return folder


def fields(rows, sides, **more):
    """A batch in one part, of rows whose texts are all there."""
    contents = np.arange(rows * sides).reshape(1, rows, sides)
    batch = {"valid": np.ones((1, rows, sides, 4), np.int32), "weights": np.ones((1, rows), np.float32)}
    return {name: jnp.asarray(value) for name, value in (batch | {"contents": contents} | more).items()}


def mean_loss(vectors, batch):
    sums = compare(None, tfm.unit_vectors(vectors)[None], batch)
    return sums["loss"] / sums["weight"]


def of(value, rows):
    return np.full((1, rows), value, np.float32)


ROWS, WIDTH = 6, 16
TEACHER = np.random.default_rng(5).normal(size=(ROWS, 2)).astype(np.float32)
GRADES = np.float32([0, 1, 1, 3, 2, 0])

# The class of the library, its options, how many texts a row has, its labels, and the fields of a batch.
LOSSES = {
    "pairs": ("MultipleNegativesRankingLoss", {"scale": 20.0}, 3, None, {"temperature": of(0.05, ROWS)}),
    "both ways": (
        "MultipleNegativesRankingLoss",
        {"scale": 20.0, "directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"},
        3,
        None,
        {"temperature": of(0.05, ROWS), "both_ways": of(1, ROWS)},
    ),
    "scores": ("CosineSimilarityLoss", {}, 2, GRADES, {"scores": GRADES[None]}),
    "cosent": ("CoSENTLoss", {"scale": 20.0}, 2, GRADES, {"scores": GRADES[None], "temperature": of(0.05, ROWS)}),
    "margin": ("MarginMSELoss", {"similarity_fct": "cosine"}, 3, TEACHER, {"teacher": TEACHER[None]}),
    "kl": (
        "DistillKLDivLoss",
        {"similarity_fct": "cosine", "student_temperature": 0.1},
        3,
        TEACHER,
        {"teacher": TEACHER[None], "temperature": of(0.1, ROWS)},
    ),
}


@pytest.mark.parity
@pytest.mark.parametrize("sizes", [(), (16, 8, 4)], ids=["whole", "matryoshka"])
@pytest.mark.parametrize("kind", LOSSES)
def test_losses_and_gradients_are_those_of_sentence_transformers(kind, sizes):
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    from sentence_transformers import util

    name, options, sides, labels, more = LOSSES[kind]
    options = {key: util.pairwise_cos_sim if value == "cosine" else value for key, value in options.items()}
    vectors = np.random.default_rng(1).normal(size=(ROWS, sides, WIDTH)).astype(np.float32)
    parameters = torch.tensor(vectors, requires_grad=True)
    total = 0.0
    for size in sizes or (WIDTH,):
        texts = [torch.nn.functional.normalize(parameters[:, side, :size], dim=-1) for side in range(sides)]
        module = getattr(losses, name)(torch.nn.Identity(), **options)
        total = total + module.compute_loss_from_embeddings(texts, None if labels is None else torch.tensor(labels))
    total.backward()
    more = more | ({"sizes": np.tile(np.int32(sizes), (1, ROWS, 1))} if sizes else {})
    value, gradient = jax.value_and_grad(mean_loss)(vectors, fields(ROWS, sides, **more))
    np.testing.assert_allclose(value, total.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient, parameters.grad.numpy(), atol=1e-5)


@pytest.mark.slow
def test_first_numbers_are_vectors_of_their_own():
    """The loss is the sum of those of cut vectors, and one that is not cut has the sizes of all."""
    vectors = np.random.default_rng(1).normal(size=(ROWS, 2, WIDTH)).astype(np.float32)
    parts = [mean_loss(vectors[..., :size], fields(ROWS, 2, temperature=of(0.1, ROWS))) for size in (16, 4)]
    sizes = np.tile(np.int32([16, 4]), (1, ROWS, 1))
    np.testing.assert_allclose(
        mean_loss(vectors, fields(ROWS, 2, temperature=of(0.1, ROWS), sizes=sizes)), sum(parts), rtol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("sides", [2, 3])
def test_duplicates_change_no_loss(sides):
    """A batch with all rows twice has the mean loss of the batch, both ways and with wrong texts too."""
    vectors = np.random.default_rng(1).normal(size=(4, sides, WIDTH)).astype(np.float32)
    once = mean_loss(vectors, fields(4, sides, temperature=of(0.1, 4), both_ways=of(1, 4)))
    twice = fields(8, sides, temperature=of(0.1, 8), both_ways=of(1, 8))
    without_contents = mean_loss(np.concatenate([vectors] * 2), twice)
    twice["contents"] = jnp.concatenate([twice["contents"][:, :4]] * 2, axis=1)
    np.testing.assert_allclose(mean_loss(np.concatenate([vectors] * 2), twice), once, rtol=1e-5)
    assert without_contents > once + 0.1, "where they are not known as equal"


@pytest.mark.parametrize(
    ("label", "expected"),
    [([1.0, 0.5, -0.5], [1, 0.5, -0.5]), ("1 0.5 -0.5", [1, 0.5, -0.5]), ("[0.5, 1.5]", [0, -0.5, -1.5])],
)
def test_scores_of_candidates(label, expected):
    """A list of them, words, or margins."""
    check_scores("margin", 3)(label)
    values = scores_of(Contrast(kind="margin", scale=2.0), [{"score": label}], "score", 3)
    np.testing.assert_allclose(values, [np.float32(expected) / 2])


def test_bad_scores():
    for label, says in (("1 2", "has 2 scores; a row has 3 candidates"), ("a b c", "is not a number"), ([1], "has 1")):
        with pytest.raises(ValueError, match=says):
            check_scores("kl", 3)(label)
    with pytest.raises(UserError, match=r"a margin is 12, and cosines differ by 2 at most; say --task.scale=12"):
        scores_of(Contrast(kind="margin"), [{"score": "9 -3"}], "score", 2)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--task.kind=kl", "data.field=text,positive must name a query and two candidates or more"),
        ("--task.kind=cosent --data.field=a,b,c", "data.field=a,b,c must name two columns with task.kind=cosent"),
        ("--task.sizes=64,8", "task.sizes=64,8 must be at most model.width=32"),
        ("--task.sizes=8,x", "sizes=8,x must be whole numbers with commas between, such as 128,64,32"),
        ("--task.kind=cosent --task.both-ways", "both-ways=true is of kind=pairs, and this is kind=cosent"),
        ("--preset=clip-tiny --task.query-prompt=a", "task.query-prompt=a is for texts alone; leave it out"),
    ],
)
def test_bad_options(flags, says, home):
    code, out, err = call(main, *SMALL, "--out=bad", *flags.split())
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize("kind", ["int8", "binary"])
def test_quantized_vectors(kind):
    """Values are those that are stored, of length 1; gradients are those of the vectors as they are."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3, 2, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    weights = rng.normal(size=vectors.shape).astype(np.float32)
    batch = {kind: jnp.ones(3)}
    kept = np.asarray(quantized(jnp.asarray(vectors), batch))
    stored = np.sign(vectors) if kind == "binary" else np.rint(vectors / abs(vectors).max(-1, keepdims=True) * 127)
    np.testing.assert_allclose(kept, stored / np.linalg.norm(stored, axis=-1, keepdims=True), atol=1e-6)
    gradients = jax.grad(lambda x: (quantized(x, batch) * weights).sum())(jnp.asarray(vectors))
    np.testing.assert_allclose(gradients, weights, rtol=1e-6)
    assert quantized(vectors, {}) is vectors


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        "--task.kind=margin --task.scale=5",
        "--task.kind=kl",
        "--task.both-ways --task.sizes=32,8 --task.quantize=binary",
    ],
)
def test_runs(flags, home, request):
    """Files of both forms; prompts reach the folder that is exported, and queries are read with parameters."""
    from train import export

    folder = f"run-{len(flags)}"
    file = "taught.tsv" if "kl" in flags else "taught.jsonl"
    columns = "--data.field=query,passage,negative,second --data.label=score"
    prompts = "--task.query-prompt=seven: --task.passage-prompt=eight:"
    run(*SMALL, *f"--data={file} --eval-data={file} {columns} {prompts} --out={folder} {flags}".split())
    result = json.loads((home / folder / "result.json").read_text())
    assert np.isfinite(result["eval_loss"])
    assert 0 <= result["eval_retrieval_1"] <= 1
    assert call(export.main, f"--run={folder}", f"--to={folder}-hf")[0] == 0
    saved = json.loads((home / f"{folder}-hf" / "config_sentence_transformers.json").read_text())
    assert saved["prompts"] == {"query": "seven:", "document": "eight:"}
    from train.lab.embedding.folder import FolderEncoder, Pooling
    from train.screens.console import Log

    log = Log(quiet=True)
    for path in (folder, f"{folder}-hf"):
        prompted = FolderEncoder(path, Pooling(prompt="query"), log)(["one two"])
        np.testing.assert_allclose(prompted, embedding.embed(path, ["seven:one two"]), atol=1e-5)
        assert abs(prompted - embedding.embed(path, ["one two"])).max() > 1e-3

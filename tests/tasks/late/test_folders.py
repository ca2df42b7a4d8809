"""Folders of MultiVectorEncoder of sentence-transformers, both ways: vectors of tokens equal those of the library."""

import json
import shutil
import string

import numpy as np
import pytest
from small import call, run, write_rows

from train import UserError, export, predict
from train.lab import embed
from train.lab.embedding.late import LateEncoder
from train.lab.embedding.options import TextEncoderOptions
from train.lab.retrieve import main as retrieve
from train.lab.search import main as search
from train.main import main
from train.runs.run_folder import open_folder
from train.screens.console import Log
from train.serving.forward import forward_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]

SMALL = (
    "--task=late --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --tokenizer.vocab=300 "
    "--batch.size=16 --batch.length=16 --batch.shapes=1 --model.init-std=0.1 --data=train.jsonl "
    "--data.field=query,passage,negative --task.size=16 --task.query-length=8 --task.query-prompt=ask: "
    "--log.every=10 --eval.every=20 --checkpoint.every=20 --optim.rate=5e-3 --steps=20"
).split()
ANIMALS = "cat dog cow pig hen fox owl bee".split()
QUERIES = ["what ran was it a cow", "fox", "what ran, what fell, what slept and what sat? " * 2]
PASSAGES = ["a cow ran.", "the hen sat, and slept. " * 4, "bee", "a (cat) fell!"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run, its export, and a folder of BEIR."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    pairs = [rng.permutation(ANIMALS)[:2] for _ in range(80)]
    write_rows(
        folder / "train.jsonl",
        [{"query": f"what sat, a {a}?", "passage": f"a {a} sat.", "negative": f"the {b} ran!"} for a, b in pairs],
    )
    (folder / "beir" / "qrels").mkdir(parents=True)
    write_rows(folder / "beir" / "corpus.jsonl", [{"_id": name, "text": f"the {name} sat."} for name in ANIMALS])
    write_rows(folder / "beir" / "queries.jsonl", [{"_id": f"q{name}", "text": f"the {name}"} for name in ANIMALS])
    (folder / "beir" / "qrels" / "test.tsv").write_text("".join(f"q{name}\t{name}\t1\n" for name in ANIMALS))
    (folder / "passages.txt").write_text("".join(f"a {name} sat.\n" for name in ANIMALS))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(*SMALL, "--out=run")
        code, _, err = call(export.main, "--run=run", "--to=exported")
    assert code == 0, err
    return folder


def vectors_of(path):
    """Those of queries and of passages."""
    encoder = LateEncoder(TextEncoderOptions(run=str(path)), Log(quiet=True))
    return [*encoder.queries(QUERIES), *encoder.passages(PASSAGES)]


def assert_equal(vectors, expected, atol=1e-5):
    for rows, expected_rows in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(rows, np.asarray(expected_rows), atol=atol)


def changed(home, name, **fields):
    """A copy of the exported folder with fields of one of its files changed; a field of None is removed."""
    folder = home / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(home / "exported", folder)
    content = json.loads((folder / name).read_text()) | fields
    content = {key: value for key, value in content.items() if value is not None}
    (folder / name).write_text(json.dumps(content))
    return folder


def test_there_and_back(home):
    """An export has the vectors of its run; so has an export of it, and a run that starts there."""
    vectors = vectors_of("run")
    assert len(vectors[1]) == 8, "[MASK]s fill up"
    assert len(vectors[2]) == 16, "cut at the length of a row, and not at that of a query"
    assert_equal(vectors_of("exported"), vectors, 1e-6)
    code, _, err = call(export.main, "--run=exported", "--to=again")
    assert code == 0, err
    assert_equal(vectors_of("again"), vectors, 1e-6)
    left = ("--model", "--steps", "--tokenizer", "--optim", "--task.size", "--task.query-length")
    flags = [flag for flag in SMALL if not flag.startswith(left)]
    code, _, err = call(main, *flags, "--init=again", "--steps=1", "--optim.rate=1e-9", "--out=started")
    assert code == 0, err
    assert_equal(vectors_of("started"), vectors, 1e-5)


def test_commands(home):
    """train.retrieve, train.embed --index, train.search and train.predict read the folder as they read the run."""
    asked = ("--data=beir", "--bm25=false")
    answers = [call(retrieve, f"--run={folder}", *asked)[1] for folder in ("run", "exported")]
    assert json.loads(answers[0]) == json.loads(answers[1])
    code, _, err = call(embed.main, "--run=exported", "--file=passages.txt", "--index=index")
    assert code == 0, err
    code, out, err = call(search, "--index=index", "--query=the cow", "--nearest=2")
    assert code == 0, err
    assert len(out.splitlines()) == 2
    scores = [
        float(call(predict.main, f"--run={folder}", "--text=the cow", "--pair=a cow.")[1])
        for folder in ("run", "exported")
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_programs_of_servers(home):
    """They have no vectors of tokens."""
    run_folder = open_folder("run")
    params = run_folder.load(log=lambda line: None)
    with pytest.raises(UserError, match="export them with --format=huggingface"):
        forward_of(run_folder.config.model, params, 8, "late")


BAD = {
    "1_Dense/config.json bias": ({"activation_function": "torch.nn.Tanh"}, "without activation and bias"),
    "1_Dense/config.json place": ({"module_input_name": "sentence_embedding"}, "module_input_name"),
    "1_Dense/config.json size": ({"in_features": 31}, "linear.weight is (16, 32)"),
    "2_MultiVectorMask/config.json words": ({"skiplist_words": ["cat", "dog"]}, "must be all signs of punctuation"),
    "2_MultiVectorMask/config.json tasks": ({"skiplist_tasks": ["query"]}, "queries skip none"),
    "2_MultiVectorMask/config.json kept": ({"keep_only_token_ids": [3]}, "keep_only_token_ids=[3] is not understood"),
    "sentence_bert_config.json attend": (
        {"query_expansion": {"strategy": "min", "attend": True, "length": 8}},
        "query_expansion.attend=true",
    ),
    "sentence_bert_config.json token": (
        {"query_expansion": {"strategy": "min", "token": "[PAD]", "length": 8}},
        "filled up with [MASK] alone",
    ),
    "sentence_bert_config.json strategy": ({"query_expansion": {"strategy": "odd", "length": 8}}, "strategy"),
    "sentence_bert_config.json length": ({"query_expansion": {"strategy": "min"}}, "query_expansion has no length"),
    "sentence_bert_config.json passages": ({"document_length": 12}, "query_length=16 differs from the 12 tokens"),
    "sentence_bert_config.json short": ({"document_length": 6}, "passages of 6 tokens (document_length"),
    "sentence_bert_config.json long": (
        {"query_expansion": {"strategy": "fixed", "length": 18}},
        "query_expansion.length=18 is more than the 16 tokens of passages",
    ),
    "3_Normalize/config.json place": ({"module_input_name": None}, "module_input_name=sentence_embedding"),
    "sentence_bert_config.json query": ({"query_length": 9}, "query_length=9 differs from the 16 tokens"),
    "config_sentence_transformers.json pylate": ({"model_type": "ColBERT"}, "was written by PyLate; read the folder"),
    "config_sentence_transformers.json kind": ({"similarity_fn_name": "meanmaxsim"}, "similarity_fn_name"),
    "config_sentence_transformers.json prompt": ({"default_prompt_name": "query"}, "default_prompt_name=query"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_folders(home, case):
    fields, says = BAD[case]
    folder = changed(home, case.split()[0], **fields)
    code, out, err = call(predict.main, f"--run={folder}", "--text=a", "--pair=b")
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_modules_that_lack(home):
    """Without Normalize, vectors would have other lengths."""
    folder = changed(home, "2_MultiVectorMask/config.json")
    entries = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(entries[:3]))
    code, _, err = call(predict.main, f"--run={folder}", "--text=a", "--pair=b")
    assert code == 2
    assert "Dense, MultiVectorMask and Normalize must stand there" in err


@pytest.mark.parity
def test_folder_written_for_sentence_transformers(home):
    library = pytest.importorskip("sentence_transformers")
    model = library.MultiVectorEncoder(str(home / "exported"), device="cpu")
    assert_equal(vectors_of("run"), [*model.encode_query(QUERIES), *model.encode_document(PASSAGES)])
    score = model.similarity(model.encode_query(QUERIES[:1]), model.encode_document(PASSAGES[:1])).item()
    said = call(predict.main, "--run=exported", f"--text={QUERIES[0]}", f"--pair={PASSAGES[0]}")[1]
    assert float(said) == pytest.approx(score, abs=1e-4)


@pytest.mark.parity
@pytest.mark.parametrize("strategy", ["fixed", "min", None])
def test_folder_of_sentence_transformers(home, strategy):
    """Two projections, markers that are special tokens, with and without expansion and punctuation."""
    library = pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(0)
    names = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    expansion = {"strategy": strategy, "attend": False, "token": "[MASK]", "length": 12} if strategy else None
    backbone = Transformer(str(home / "exported"), query_expansion=expansion, max_seq_length=16)
    backbone.tokenizer.add_special_tokens({"additional_special_tokens": ["[Q]", "[D]"]})
    backbone.model.resize_token_embeddings(len(backbone.tokenizer))
    modules = [
        backbone,
        Dense(32, 24, bias=False, activation_function=None, **names),
        Dense(24, 8, bias=False, activation_function=None, **names),
        MultiVectorMask(skiplist_words=list(string.punctuation) if strategy else []),
        Normalize(**names),
    ]
    prompts = {"query": "[Q] ", "document": "[D] " if strategy else "passage: "}
    model = library.MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu")
    folder = home / f"saved-{strategy}"
    model.save(str(folder))
    model = library.MultiVectorEncoder(str(folder), device="cpu")
    assert_equal(vectors_of(folder), [*model.encode_query(QUERIES), *model.encode_document(PASSAGES)])
    code, _, err = call(export.main, f"--run={folder}", f"--to={folder}-again")
    assert code == 0, err
    again = library.MultiVectorEncoder(f"{folder}-again", device="cpu")
    assert_equal(vectors_of(f"{folder}-again"), again.encode_query(QUERIES) + again.encode_document(PASSAGES))

"""Vectors of a folder's model: pooled states of tokens, layers, windows; a run folder and its export say the same."""

import dataclasses
import functools
import gzip

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from small import call, read_lines
from tokenizers import Tokenizer, models, pre_tokenizers

import tfm
from train import UserError
from train.lab.embed import main
from train.lab.embedding import embed
from train.lab.embedding.folder import FolderEncoder, Pooling
from train.runs import run_folder
from train.runs.run_folder import RunFolder, open_folder
from train.runs.tuning import specs_of
from train.screens.console import Log
from train.tasks import resolve, table
from train.text import tokenize

TEXTS = ["the cat sat.", "a dog ran over the old red house and then it flew.", "it was.", "the cat sat."]


SMALL = "--model.layers=2 --model.width=32 --model.heads=2 --model.ffn=64 --model.vocab=60 --batch.length=32".split()
FACTS = {"hash": "a", "segmentation_hash": "", "source": "text.txt"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The folders of a BERT, a GPT and a translator, of words and random weights."""
    folder = tmp_path_factory.mktemp("runs")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(" ".join(TEXTS).replace(".", " .").split())]
    words = Tokenizer(models.WordLevel({name: token for token, name in enumerate(names)}, unk_token="[UNK]"))
    words.add_special_tokens(names[:5])
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    params = {}
    for task, preset in (("mlm", "bert-tiny"), ("lm", "gpt-tiny"), ("translate", "transformer-tiny")):
        path = folder / task
        run, _ = resolve.resolve([f"--task={task}", f"--preset={preset}", *SMALL, f"--out={path}"], None, None)
        run_folder.create(path, run, words, {"data": FACTS})
        params[str(path)] = random_params(specs_of(table.task_of(run), run))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "load", lambda self, *args, **options: params[str(self.path)])
        yield folder


@functools.cache
def states_of(folder, text):
    """The states of a text alone, [T,D] of each layer, with the special tokens of the training."""
    opened = open_folder(folder)
    params, model, task = opened.load(), opened.config.model, opened.config.task.name
    ids, special = opened.processor.encode(text).ids, tokenize.special_tokens(opened.processor)
    frames = {"mlm": ([special.cls], [special.sep]), "lm": ([special.sep], []), "translate": ([], [special.sep])}
    prefix, suffix = frames[task]
    tokens = jnp.array([[*prefix, *ids, *suffix]])
    model = tfm.encoder_config(model) if task == "translate" else model
    stack = params.decoder if task == "lm" else params.encoder
    states = jax.jit(tfm.hidden_states, static_argnums=(1, 6))(stack, model, tokens, None, None, None, task == "lm")
    return [np.asarray(layer[0]) for layer in states]


POOLS = {"mean": lambda x: x.mean(0), "first": lambda x: x[0], "last": lambda x: x[-1], "max": lambda x: x.max(0)}
CASES = [
    pytest.param("mlm", "mean", (-1,), marks=pytest.mark.slow),
    pytest.param("mlm", "max", (0, 1, -1), marks=pytest.mark.slow),
    pytest.param("lm", "last", (-1,), marks=pytest.mark.slow),
    pytest.param("translate", "first", (2,), marks=pytest.mark.slow),
    pytest.param("lm", "mean", (0, 1), marks=pytest.mark.slow),
    pytest.param("translate", "max", (-1,), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("task", "pool", "layers"), CASES)
def test_pools_of_layers(home, task, pool, layers):
    """Texts of several lengths share a batch, and padding changes nothing; vectors of layers are joined."""
    vectors = embed(home / task, TEXTS, pool, layers)
    assert vectors.shape == (4, 32 * len(layers))
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        expected = np.concatenate([POOLS[pool](states_of(home / task, text)[layer]) for layer in layers])
        np.testing.assert_allclose(vector, expected, atol=2e-5)


@pytest.mark.slow
def test_long_texts_are_read_in_windows(home):
    """A mean over windows of 12 tokens, of which 2 are special, is weighted by their tokens."""
    words = " ".join(["the cat sat over it"] * 4 + ["a dog"]).split()
    parts = [states_of(home / "mlm", " ".join(words[n : n + 10]))[-1] for n in range(0, len(words), 10)]
    assert [len(part) for part in parts] == [12, 12, 4]
    mean, last = (FolderEncoder(home / "mlm", Pooling(pool, length=12), Log(quiet=True)) for pool in ("mean", "last"))
    np.testing.assert_allclose(mean(["it was.", " ".join(words)])[1], np.concatenate(parts).mean(0), atol=2e-5)
    np.testing.assert_allclose(last([" ".join(words), "it was."])[0], parts[-1][-1], atol=2e-5)


@pytest.mark.slow
def test_an_exported_run_says_the_same(home, tmp_path):
    folder = RunFolder(home / "mlm")
    folder.save_hf(tmp_path / "hf", folder.config.model, folder.load(), folder.hf_fields() | {"model_type": "bert"})
    np.testing.assert_allclose(embed(tmp_path / "hf", TEXTS), embed(home / "mlm", TEXTS), atol=2e-5)


def test_refusals(home, tmp_path):
    with pytest.raises(UserError, match="--layer=3 is none of the 2 layers of the model"):
        FolderEncoder(home / "mlm", Pooling(layers=(3,)), Log(quiet=True))
    with pytest.raises(UserError, match="--length=2 leaves no place for a text"):
        FolderEncoder(home / "mlm", Pooling(length=2), Log(quiet=True))
    with pytest.raises(UserError, match="is not a run folder"):
        embed(tmp_path, TEXTS)


@pytest.mark.slow
def test_control_tokens_in_texts_are_what_the_flag_says(home, tmp_path):
    """By default text; what the flag says wins over what the run has."""
    (tmp_path / "in.txt").write_text("the [MASK] sat\nit was.\n")
    paths = {mode: tmp_path / f"{mode}.npy" for mode in ("text", "keep")}
    flags = [f"--run={home / 'mlm'}", f"--file={tmp_path / 'in.txt'}"]
    for mode, path in paths.items():
        code, _, err = call(main, *flags, f"--to={path}", f"--data.control-tokens={mode}")
        meaning = "text" if mode == "text" else "such"
        assert code == 0
        assert f"control tokens such as [MASK] stand in the texts once; they are read as {meaning}" in err
    as_text, kept = (np.load(path) for path in paths.values())
    np.testing.assert_allclose(as_text, embed(home / "mlm", ["the [MASK] sat", "it was."]), atol=1e-6)
    mask = states_of(home / "mlm", "the [MASK] sat")[-1].mean(0)
    np.testing.assert_allclose(kept[0], mask, atol=2e-5)
    assert abs(as_text[0] - mask).max() > 1e-3
    refused = f"--to={tmp_path / 'error.npy'}"
    code, _, err = call(main, *flags, refused, "--data.control-tokens=error")
    assert code == 2
    assert "--data.control-tokens=error: [MASK] stands in the text 'the [MASK] sat'; remove it" in err
    assert not (tmp_path / "error.npy").exists()


@pytest.mark.slow
def test_command(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    code, out, err = call(
        main,
        f"--run={home / 'mlm'}",
        "--file=in.txt",
        "--to=out.npy",
        "--query=the cat sat.",
        "--nearest=3",
        "--map=map.png",
    )
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[1] for line in lines[:2]] == ["1", "4"]
    assert float(lines[0][0]) == pytest.approx(1, abs=1e-4)
    vectors = np.load("out.npy")
    np.testing.assert_allclose(vectors, embed(home / "mlm", TEXTS), atol=2e-5)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    again = call(
        main, f"--run={home / 'mlm'}", "--file=in.txt", "--vectors=out.npy", "--query=the cat sat.", "--nearest=3"
    )
    assert again[:2] == (0, out)
    code, _, err = call(main, f"--run={home / 'mlm'}", "--file=in.txt", "--to=out.jsonl", "--normalize", "--pool=max")
    assert code == 0, err
    lengths = [np.linalg.norm(row["vector"]) for row in read_lines(tmp_path / "out.jsonl")]
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


BAD = [
    (["--file=in.txt", "--to=o.npy"], "--run=FOLDER or --encoder=bow:FILE must say what encodes texts, one of the two"),
    (["--run=r", "--file=in.txt"], "--to=OUT.npy, --index=FOLDER, --query=TEXT or --map=MAP.png must say"),
    (["--run=r", "--file=in.txt", "--to=o.txt"], "--to=o.txt must end in .npy or .jsonl"),
    (["--run=r", "--file=empty.txt", "--to=o.npy"], "text 2 of empty.txt is empty; every text must say something"),
    (["--run=r", "--file=none.txt", "--to=o.npy"], "none.txt does not exist; give the path of a file"),
    (
        ["--encoder=w2v:x", "--file=in.txt", "--to=o.npy"],
        "--encoder=w2v:x must be bow:FILE or sif:FILE, with a file of word vectors",
    ),
    (
        ["--run=r", "--layer=a", "--file=in.txt", "--to=o.npy"],
        "--layer=a must be a number, or some with commas between",
    ),
    (
        ["--encoder=bow:v.vec", "--file=in.txt", "--vectors=bad.npy", "--query=a"],
        "--vectors=bad.npy holds float32 [3, 2], and in.txt has 2 texts",
    ),
    (
        ["--encoder=bow:v.vec", "--file=in.txt", "--vectors=wide.npy", "--query=a"],
        "queries have 2 numbers, and vectors 3; encode both alike",
    ),
]


@pytest.mark.parametrize(("argv", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_bad_usage(argv, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\nb\n")
    (tmp_path / "empty.txt").write_text("a\n\nb\n")
    (tmp_path / "v.vec").write_text("a 1 2\nb 3 4\n")
    np.save("bad.npy", np.zeros((3, 2), np.float32))
    np.save("wide.npy", np.zeros((2, 3), np.float32))
    code, out, err = call(main, *argv)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "content", "flags"),
    [
        ("notes.md", "the cat sat.\nit was.\n", ["--data.format=text"]),
        ("notes.tsv", "a\tbody\n1\tthe cat sat.\n2\tit was.\n", ["--data.field=body"]),
        ("notes.tsv", "the cat sat.\t1\nit was.\t2\n", ["--data.header=false"]),
        ("notes.md.gz", '{"body": "the cat sat."}\n{"body": "it was."}\n', ["--data.format=jsonl", "--field=body"]),
    ],
)
def test_flags_of_data_say_how_a_file_is_read(home, tmp_path, monkeypatch, name, content, flags):
    monkeypatch.chdir(tmp_path)
    compress = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(compress(content.encode()))
    code, _, err = call(main, f"--run={home / 'mlm'}", f"--file={name}", "--to=out.jsonl", *flags)
    assert code == 0, err
    assert [row["text"] for row in read_lines(tmp_path / "out.jsonl")] == ["the cat sat.", "it was."]


def test_flags_of_data_that_are_wrong(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").write_text("the cat sat.\n")
    argv = (f"--run={home / 'mlm'}", "--file=notes.md", "--to=out.npy")
    for flags, sentence in {
        (): "if it is plain text, add --data.format=text",
        ("--data.fromat=text",): "unknown flag --data.fromat; did you mean data.format?",
        ("--data.fold=1",): "--data.fold chooses what a run trains on",
        ("--data.shuffle=blocks",): "--data.shuffle chooses what a run trains on",
    }.items():
        code, _, err = call(main, *argv, *flags)
        assert (code, sentence in err) == (2, True), err
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.slow
def test_a_new_word_reads_as_the_word_whose_vector_it_has(home, tmp_path, monkeypatch, capsys):
    """Embeddings are a linear image of word vectors here; so the map finds the embedding of the known word."""
    rng, opened = np.random.default_rng(0), open_folder(home / "mlm")
    ids = {word: token for word, token in opened.processor.get_vocab().items() if word.isalpha()}
    vectors, params = rng.normal(size=(len(ids), 8)), opened.load()
    table = params.encoder.embed.tokens.at[jnp.array(list(ids.values()))].set(vectors @ rng.normal(size=(8, 32)) / 20)
    embeddings = dataclasses.replace(params.encoder.embed, tokens=table)
    params = dataclasses.replace(params, encoder=dataclasses.replace(params.encoder, embed=embeddings))
    monkeypatch.setattr(RunFolder, "load", lambda self, *args, **options: params)
    rows = dict(zip(ids, vectors, strict=True))
    rows |= {"zebra": rows["cat"]}
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in rows.items()]
    (tmp_path / "words.vec").write_text("\n".join([f"{len(rows)} 8", *lines]) + "\n")
    (tmp_path / "texts.txt").write_text("the cat sat.\nthe zebra sat.\na dog flew.\n")
    flags = [f"--run={home / 'mlm'}", f"--file={tmp_path / 'texts.txt'}", f"--to={tmp_path / 'texts.npy'}"]
    assert main(flags) == 0
    cut = np.load(tmp_path / "texts.npy")
    assert main([*flags, f"--expand={tmp_path / 'words.vec'}"]) == 0
    expanded = np.load(tmp_path / "texts.npy")
    np.testing.assert_allclose(expanded[1], expanded[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(expanded[[0, 2]], cut[[0, 2]], rtol=1e-5, atol=1e-6)
    assert np.abs(cut[1] - cut[0]).max() > 0.01
    (tmp_path / "words.vec").write_text("2 1\ncat 1\nzebra 2\n")
    assert main([*flags, f"--expand={tmp_path / 'words.vec'}"]) == 2
    assert "shares 1 words with the tokenizer, too few to map 1 numbers" in capsys.readouterr().err

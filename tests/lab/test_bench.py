"""The bench command."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from small import call
from tasks.translate.test_task import SMALL, counting, write_sides

import tfm
from tfm.config.model import Config
from tfm.options.choices import alternatives, type_hints
from train.lab import bench
from train.lab.timing import random_task, scaling, turns
from train.main import main
from train.screens.console import Log
from train.settings import flags
from train.tasks import table
from train.training import startup

TINY = "--layers=2 --heads=2 --width=16 --vocab=64 --batch=8 --length=12 --steps=2 --warmup=1".split()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "gpt", "seq2seq"])
def test_one_line_with_the_keys_of_the_peer(model, capsys):
    assert bench.main([f"--model={model}", *TINY]) == 0
    result = json.loads(capsys.readouterr().out)
    keys = "peer model device dtype params ms_median ms_min tokens_per_s peak_bytes loss".split()
    assert set(keys) <= set(result)
    attention, feed_forward, norm = 4 * (16 * 16 + 16), (16 * 64 + 64) + (64 * 16 + 16), 2 * 16
    stack = 12 * 16 + 2 * (attention + feed_forward + 2 * norm) + norm
    assert result["params"] == 64 * 16 + (2 * stack + 2 * (attention + norm) if model == "seq2seq" else stack)
    assert result["tokens_per_s"] == pytest.approx(8 * 12 / result["ms_median"] * 1000, rel=0.01)
    assert result["loss"] == pytest.approx(4.16, abs=0.2), "random tokens: about log(64)"


PICTURES = "--layers=4 --heads=2 --width=16 --size=16 --patch=2 --batch=8 --steps=2 --warmup=1".split()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vit", "swin"])
def test_models_of_pictures(model, capsys):
    """Parameters are counted by hand: a ViT of four layers; a Swin of two stages, each with two layers."""
    assert bench.main([f"--model={model}", *PICTURES]) == 0
    result = json.loads(capsys.readouterr().out)

    def layer(width):
        return 4 * (width * width + width) + (width * 4 * width + 4 * width) + (4 * width * width + width) + 4 * width

    patches = 3 * 2 * 2 * 16 + 16
    if model == "vit":
        expected, tokens = patches + 16 + 65 * 16 + 4 * layer(16) + 2 * 16 + 16 * 1000 + 1000, 65
    else:
        biases = 2 * 49 * 2 + 2 * 49 * 4
        merging = 4 * 16 * 32 + 2 * 4 * 16
        expected = patches + 2 * 16 + 2 * layer(16) + merging + 2 * layer(32) + biases + 2 * 32 + 32 * 1000 + 1000
        tokens = 64
    assert result["params"] == expected
    assert result["tokens_per_s"] == pytest.approx(8 * tokens / result["ms_median"] * 1000, rel=0.01)
    assert result["pictures_per_s"] == pytest.approx(8 / result["ms_median"] * 1000, rel=0.01)
    assert result["loss"] == pytest.approx(math.log(1000), abs=0.5), "random classes"


@pytest.mark.slow
def test_mixers_of_pictures_in_turns(capsys):
    assert bench.main(["--model=vit", *PICTURES, "--mixer=softmax,linear", "--steps=16"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["mixer"] for line in lines] == ["softmax", "linear"]


@pytest.mark.parity
@pytest.mark.parametrize("model", ["vit", "swin"])
def test_the_peer_of_pictures_has_the_same_parameters(model, capsys):
    """The class of transformers reads the same model."""
    assert bench.main([f"--model={model}", *PICTURES, "--steps=16", "--against=torch"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["peer_params"] == result["params"]
    assert result["ratio_turns"] == 8


@pytest.mark.slow
def test_reading_prompts_and_writing(capsys):
    assert bench.main(["--model=gpt", *TINY, "--length=24", "--generate=16"]) == 0
    result = json.loads(capsys.readouterr().out)
    for name in ("prefill", "decode", "decode_first", "decode_last", "read_again"):
        assert result[f"ms_{name}"] > 0
    assert result["prefill_tokens_per_s"] == pytest.approx(8 * 8e3 / result["ms_prefill"], rel=0.01)
    assert result["decode_tokens_per_s"] == pytest.approx(8e3 / result["ms_decode"], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["bert-tiny", "transformer-mini"])
def test_a_preset_with_its_own_data(preset, capsys):
    """The second one reads pairs, packed into rows of two sides."""
    argv = [
        f"--preset={preset}",
        "--steps=3",
        "--warmup=2",
        "--model.layers=1",
        "--model.width=16",
        "--model.heads=2",
        "--model.ffn=32",
    ]
    assert bench.main(argv) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["preset"] == preset
    assert sum(result[f"share_{part}"] for part in ("data", "host", "device")) == pytest.approx(1, abs=1e-3)
    assert result["data_over_step"] == pytest.approx(result["data_tokens_per_s"] / result["tokens_per_s"], rel=0.05)


@pytest.mark.slow
def test_variants_in_turns(capsys):
    """Each mixer with each position, and the ratio of the first one to itself."""
    assert bench.main([*TINY, "--mixer=softmax,linear", "--position=learned,rotary", "--steps=16"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["mixer"], line["position"]) for line in lines] == [
        ("softmax", "learned"),
        ("softmax", "rotary"),
        ("linear", "learned"),
        ("linear", "rotary"),
    ]
    assert (lines[0]["ratio"], lines[0]["ratio_interval"]) == (1, [1, 1])
    assert lines[0]["params"] - lines[1]["params"] == 12 * 16  # rotary positions have no table
    for line in lines:
        low, high = line["ratio_interval"]
        assert low <= line["ratio"] <= high


@pytest.mark.parametrize("lengths", ["", "--lengths=16,32"])
def test_a_mixer_that_the_model_cannot_have_is_refused_before_any_is_timed(lengths, monkeypatch, capsys):
    monkeypatch.setattr(scaling, "measure_all", None)
    monkeypatch.setattr(turns, "take_turns", None)
    assert bench.main([*TINY, "--mixer=softmax,delta", *lengths.split()]) == 2
    assert "delta reads a text from left to right" in capsys.readouterr().err


@pytest.mark.slow
def test_several_lengths_of_several_mixers(capsys, tmp_path):
    picture = tmp_path / "lengths.png"
    second = next(tag for tag in alternatives(type_hints(Config)["mixer"]) if tag != "softmax")
    mixers = f"--mixer=softmax,{second}"
    assert bench.main([*TINY, "--lengths=64,32", mixers, f"--plot={picture}", "--steps=3"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["mixer"], line.get("length")) for line in lines] == [
        ("softmax", 32),
        ("softmax", 64),
        ("softmax", None),
        (second, 32),
        (second, 64),
        (second, None),
    ]
    for fit in (lines[2], lines[5]):
        assert fit["lengths"] == [32, 64]
    shorter, longer, fit = lines[:3]
    slope = math.log2(longer["peak_bytes"] / shorter["peak_bytes"])
    assert fit["exponent_peak_bytes"] == pytest.approx(slope, abs=1e-3)
    assert fit["exponent_time"] == pytest.approx(math.log2(longer["ms_median"] / shorter["ms_median"]), abs=1e-3)
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--generate=20"], "--generate=20 needs --model=gpt, and must be at least 10 and less than --length=64"),
        (
            ["--model=gpt", "--generate=64"],
            "--generate=64 needs --model=gpt, and must be at least 10 and less than --length=64",
        ),
        (
            ["--model=gpt", "--generate=20", "--profile=x"],
            "--profile=x is for training steps; leave --generate and --data",
        ),
        (["--run=x"], "--run=x needs --generate=N, or --data=FILE of sentences to translate"),
        (["--data=x"], "--data=x is read by a model; name its folder with --run"),
        (["--run=x", "--data=x", "--generate=20"], "--generate=20 continues texts, and --data has sentences"),
        (["--weights=int8"], "--weights=int8 is for writing; add --generate=N"),
        (["--against=ctranslate2"], "--against=ctranslate2 translates; add --run=FOLDER --data=FILE, or choose torch"),
        (["--run=x", "--data=x", "--against=torch-compile"], "--against=torch-compile reads no files"),
        (["--preset=gpt2", "--layers=3"], "unknown flag --layers; did you mean"),
        (["--preset=gtp2"], "--preset=gtp2 is unknown"),
        pytest.param(
            ["--kernel=splash", "--batch=8"],
            "--kernel=splash cannot do this: splash needs a TPU",
            marks=pytest.mark.slow,
        ),
        (["--model=gtp"], "--model=gtp must be bert, gpt, seq2seq, t5, vit or swin"),
        (["--model=vit", "--length=128"], "--length=128 is for texts; model=vit has --size and --patch"),
        (["--model=vit", "--generate=16"], "--generate=16 is for texts; model=vit has --size and --patch"),
        (["--model=vit", "--size=30"], "--size=30 must be a multiple of patch=4; try size=32"),
        (["--model=vit", "--window=7"], "--window=7 is for model=swin; leave it out"),
        (["--model=gpt", "--size=64"], "--size=64 is for pictures; add --model=vit or --model=swin"),
        (["--model=swin", "--layers=5"], "--layers=5 must be even for model=swin, whose windows shift in turn; try 4"),
        (
            ["--model=swin", "--mixer=linear"],
            "--mixer=linear is not for model=swin, which has windows; try --model=vit",
        ),
        (["--heads=5"], "--heads=5 must divide width=128; try heads=4"),
        (["--mixer=sofmax"], "--mixer=sofmax is unknown; did you mean softmax?"),
        (["--mixer=softmax:pattern=slidin"], "--mixer.pattern=slidin is unknown; did you mean sliding?"),
        (["--predict=0"], "--predict=0.0 must be above 0 and at most 1"),
        (["--lengths=64"], "--lengths=64 must be two or more whole numbers from 8 on, such as 512,1024,2048"),
        (["--lengths=64,a"], "--lengths=64,a must be two or more whole numbers"),
        (["--lengths=64,128", "--mixer=softmax,sofmax"], "--mixer=sofmax is unknown; did you mean softmax?"),
        (["--lengths=64,128", "--plot=nowhere/a.png"], "--plot=nowhere/a.png cannot be written"),
        (["--lengths=64,128", "--profile=x"], "--lengths=64,128 is for training steps; leave --generate and --profile"),
        (["--mixer=softmax,softmax"], "name a variant twice; leave one out"),
        (["--mixer=softmax,linear", "--against=torch"], "--mixer=softmax,linear position=learned are timed in turns"),
        (
            ["--lengths=64,128", "--position=learned,none"],
            "--position=learned,none with --lengths must be",
        ),
        (["--position=lerned"], "--position=lerned is unknown; did you mean learned?"),
        (["--model=gpt", "--batch=8", "--mixer=softmax,fnet"], "--position: fnet mixes later tokens into all"),
        (["--steps=0"], "batch, length, steps and warmup must be at least 1"),
    ],
)
def test_bad_input(argv, message, capsys):
    assert bench.main(argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parity
@pytest.mark.parametrize(
    ("model", "mixer"),
    [
        *((model, "softmax") for model in ("bert", "gpt", "seq2seq")),
        ("bert", "linear"),
        ("gpt", "linear"),
        ("bert", "softmax:pattern=sliding:pattern.window=6"),
        ("gpt --dropout=0.1", "softmax"),
    ],
)
def test_a_peer_does_the_same_work(model, mixer, capsys):
    """As many parameters, and as many steps of both sides; the interval holds the ratio."""
    assert bench.main([*f"--model={model}".split(), f"--mixer={mixer}", *TINY, "--against=torch"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["peer_params"] == result["params"]
    assert result["ratio_interval"][0] <= result["ratio"] <= result["ratio_interval"][1]
    assert result["ratio_turns"] == 8
    assert min(result["peer_ms_median"], result["own_ms_median"]) > 0


FOLDERS = {
    "image": "--model=vit --layers=1 --heads=2 --width=16 --size=8 --patch=4 --batch=4",
    "seq2seq": "--model=t5 --layers=2 --heads=2 --width=16 --vocab=64 --batch=4 --length=10 --target=6",
    "classify": "--task=classify --preset=bert-tiny --model.layers=1 --model.width=16 --tokenizer.vocab=1000 "
    "--batch.length=64 --data.pack=true",
}


@pytest.mark.parity
@pytest.mark.parametrize("kind", FOLDERS)
def test_the_class_of_transformers_has_our_loss(kind, tmp_path):
    """On the same pictures, pairs and texts; ours share rows, and the others are padded in another order."""
    from train.lab.timing.peers import against, folder_batches
    from train.lab.timing.peers.torch_peer import TorchTrainer

    words = FOLDERS[kind].split()
    if kind == "classify":
        run, corpus = startup.prepare([*words, "--model.head.pool=first", "--batch.size=16"], Log(quiet=True))
        task, batch = table.task_of(run), corpus.batch(0)
        assert len(batch["tokens"]) < 16, "texts share rows"
    else:
        options = flags.build(bench.BenchOptions, flags.parse(words))
        run, task = random_task.plain_run(options), random_task.plain_task(options)
        batch = task.batches(run)(0)
    params = tfm.init(task.specs(run), jax.random.key(0))
    sums = jax.jit(lambda params, batch: task.loss(params, run.model, batch, None))(params, batch)
    peer_batches = folder_batches.MODELS[kind].batches([batch], False)
    work = against.folder_work(kind, SimpleNamespace(run=run), params, peer_batches, tmp_path)
    trainer = TorchTrainer(work | {"device": "cpu", "compile": False})
    trainer.model.eval()
    assert trainer.step() == pytest.approx(float(sums["loss"] / sums["weight"]), rel=1e-4)


def test_texts_of_packed_rows_are_padded_to_the_longest_of_a_batch():
    """Two rows, with room for two texts each: tokens 1 to 9 in texts of 3, 2 and 4."""
    from train.lab.timing.peers import folder_batches

    batch = {
        "tokens": np.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 0]]),
        "types": np.zeros((2, 5), np.int32),
        "segments": np.array([[1, 1, 1, 2, 2], [1, 1, 1, 1, 0]]),
        "positions": np.array([[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]]),
        "rows": np.array([4, 0, 7, -1]),
        "labels": np.array([30, 20, 40, 0]),
    }
    longer = batch | {"tokens": batch["tokens"] + 10, "labels": batch["labels"] + 1}
    for group in (False, True):
        dealt = folder_batches.texts([batch, longer], group)
        texts = {
            (label, tuple(tokens[valid > 0]))
            for peer_batch in dealt
            for label, tokens, valid in zip(
                *(peer_batch[name] for name in ("labels", "input_ids", "attention_mask")), strict=True
            )
        }
        assert texts == {
            *((30, (1, 2, 3)), (20, (4, 5)), (40, (6, 7, 8, 9))),
            *((31, (11, 12, 13)), (21, (14, 15)), (41, (16, 17, 18, 19))),
        }
        assert all(peer_batch["input_ids"].shape == (3, 8) for peer_batch in dealt)
    lengths = [peer_batch["attention_mask"].sum(1).max() for peer_batch in dealt]
    assert sorted(lengths) == [3, 4], "texts of similar lengths"


@pytest.mark.parity
@pytest.mark.parametrize("preset", ["vit-micro", "swin-mini"])
def test_a_peer_for_pictures(preset, capsys):
    """The class of transformers that reads the exported model."""
    flags = [f"--preset={preset}", "--task=image", "--batch.size=8", "--steps=16", "--warmup=1", "--against=torch"]
    assert bench.main(flags) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["peer_params"] == result["params"]
    assert result["ratio_turns"] == 8


@pytest.mark.parity
def test_transformers_writes_the_same_texts(capsys):
    """Greedy tokens of the plain model are those of the folder that it is written to."""
    flags = ["--model=gpt", *TINY, "--length=24", "--generate=12", "--against=torch"]
    assert bench.main(flags) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["peer_class"], result["same_texts"]) == ("GPT2LMHeadModel", 1)
    assert result["peer_params"] == result["params"]
    for side in ("", "peer_"):
        assert min(result[f"{side}ms_prefill"], result[f"{side}ms_decode"]) > 0
    assert result["ratio_interval"][0] <= result["ratio"] <= result["ratio_interval"][1]


@pytest.mark.parity
def test_transformers_finds_the_same_translations(capsys, tmp_path, monkeypatch):
    """The beams of the folder that a run is exported to, in batches of sentences of similar lengths."""
    monkeypatch.chdir(tmp_path)
    pairs = list(counting(300, seed=0))
    write_sides("train", pairs)
    code, _, err = call(main, *SMALL, "--data=train.en,train.de", "--eval.final=false", "--out=run")
    assert code == 0, err
    sentences = [source for source, _ in pairs[:7]]
    Path("sentences.txt").write_text("\n".join([*sentences, "", "one two"]) + "\n")
    assert bench.main(["--run=run", "--data=sentences.txt", "--beams=3", "--batch=3", "--against=torch"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["sentences"], result["beams"], result["batch"]) == (8, 3, 3)
    assert (result["peer_class"], result["same_texts"]) == ("MarianMTModel", 1)
    assert min(result["sentences_per_s"], result["peer_sentences_per_s"]) > 0
    assert bench.main(["--run=run", "--data=sentences.txt", "--weights=int8"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["weights"] == "int8"
    assert bench.main(["--run=run", "--generate=20"]) == 2
    assert "--run=run was trained for --task=translate, which continues no texts" in capsys.readouterr().err


@pytest.mark.parity
def test_the_pipeline_of_transformers_finds_the_same_labels(capsys, tmp_path, monkeypatch):
    """Of texts of different lengths, one of which is cut."""
    monkeypatch.chdir(tmp_path)
    words = ["good", "bad", "film", "plot", "the", "a"]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, size=rng.integers(1, 20))) for _ in range(120)]
    rows = [f"{text}\t{'yes' if text.count('good') > text.count('bad') else 'no'}" for text in texts]
    Path("train.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    small = "--model.layers=1 --model.width=32 --model.heads=2 --tokenizer.vocab=300 --batch.length=16".split()
    learn = "--steps=30", "--optim.rate=1e-2", "--data=train.tsv", "--model.head.pool=first"
    code, _, err = call(main, "--task=classify", *small, *learn, "--out=run")
    assert code == 0, err
    Path("texts.txt").write_text("\n".join([*texts[:50], ""]) + "\n")
    assert bench.main(["--run=run", "--data=texts.txt", "--batch=8", "--against=torch"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["texts"], result["batch"]) == (50, 8)
    assert (result["peer_class"], result["same_texts"]) == ("BertForSequenceClassification", 1)
    assert min(result["texts_per_s"], result["peer_texts_per_s"]) > 0
    pytest.importorskip("ctranslate2")
    assert bench.main(["--run=run", "--data=texts.txt", "--against=ctranslate2"]) == 2
    assert "--against=ctranslate2 translates, and --run=run classifies" in capsys.readouterr().err


@pytest.mark.parity
def test_a_preset_without_a_peer_is_refused_before_it_is_timed(capsys):
    flags = ["--preset=bert-tiny", "--steps=1000000", "--against=torch"]
    assert bench.main(flags) == 2
    assert (
        "--against=torch goes with a preset of --task=image or --task=classify, and this is" in capsys.readouterr().err
    )


@pytest.mark.parity
def test_a_mixer_without_a_peer_is_refused(capsys):
    assert bench.main(["--model=bert", "--mixer=fnet", *TINY, "--against=torch"]) == 2
    assert "cannot run this model: ValueError: mixer=fnet of bert has no peer" in capsys.readouterr().err


def test_a_peer_for_other_work_is_refused(capsys):
    for flag, message in (("--against=tf", "must be torch or torch-compile"), ("--predict=0.5", "plain model")):
        words = ["--model=gpt", "--length=24", *(["--against=torch"] if "tf" not in flag else []), flag]
        assert bench.main(words) == 2
        assert message in capsys.readouterr().err


def test_the_ratio_is_that_of_alternating_turns(monkeypatch):
    """A peer that takes twice as long, with the same noise in each turn."""
    from train.lab.timing.peers import against

    order = []

    class Peer:
        def __init__(self, name, shape):
            self.facts = {"torch": "1", "params": 3}
            order.append(shape["ffn"])

        __enter__ = lambda self: self
        __exit__ = lambda self, *_: None

        def seconds(self, steps):
            order.append("peer")
            return [2.0 * len(order)] * steps

    monkeypatch.setattr(against, "Peer", Peer)
    own_seconds = lambda steps: order.append("tfm") or [1.0 * len(order)] * steps
    monkeypatch.setattr(against, "Steps", lambda job, batches: SimpleNamespace(seconds=own_seconds))
    job = SimpleNamespace(run=SimpleNamespace(model=Config()))
    options = bench.BenchOptions(against="torch", width=16)
    work = against.plain_work(options, job)
    result = against.measure(options, work, job, None, lambda logs: (logs.min(), logs.max()))
    assert order[0] == 64
    assert order[3:7] == ["peer", "tfm", "tfm", "peer"]
    assert result["ratio"] == pytest.approx(2, rel=0.05)
    assert result["ratio_interval"][0] < 2 < result["ratio_interval"][1]

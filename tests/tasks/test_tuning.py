"""Parts of a model that are trained: which they are, how fast they learn, and whole runs."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import FLAGS, call, write_text

import tfm
from train import evaluate, export, generate, predict
from train.main import main
from train.runs.tuning import specs_of
from train.settings import flags
from train.tasks import table
from train.tasks.table import AnyRun
from train.training.layer_rates import scale_by_layer

CLASSIFY = {"task": "classify", "model.layers": 4, "model.width": 16, "model.heads": 2, "model.vocab": 50}


def specs(**values):
    run = flags.build(AnyRun, CLASSIFY, values)
    return specs_of(table.task_of(run), run)


def trained_names(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator=".") for path, spec in leaves if spec.trained}


def test_what_is_trained():
    everything = trained_names(specs())
    head = {name for name in everything if not name.startswith("encoder.")}
    assert head == {"pooler.kernel", "pooler.bias", "output.kernel", "output.bias"}
    assert trained_names(specs(tune="head")) == head
    biases = {name for name in everything if name.endswith("bias")}
    assert trained_names(specs(tune="bias")) == head | biases
    lora = trained_names(specs(tune="lora"))
    kernels = {f"encoder.layers.period.0.mixer.{name}.kernel" for name in ("query", "value")}
    assert lora == head | {f"{kernel}.{part}" for kernel in kernels for part in ("down", "up")}
    top = trained_names(specs(**{"tune.top": 2}))
    assert top == {name for name in everything if ".embed." not in name}


def test_count_of_updates():
    tree = specs(**{"tune": "lora", "tune.targets": "all", "tune.rank": 3})
    updates = sum(
        np.prod(spec.shape)
        for path, spec in jax.tree_util.tree_leaves_with_path(tree)
        if path[-1].name in ("down", "up") and spec.trained
    )
    # query, key, value, output are 16 x 16; up and down 16 x 64
    assert updates == 4 * 3 * (4 * (16 + 16) + 2 * (16 + 64))


def test_shares_of_layers():
    tree = specs()
    ones = jax.tree.map(lambda spec: jnp.ones(spec.shape), tree)
    scaled, _ = scale_by_layer(tree, 0.5, 2).update(ones, None, ones)
    np.testing.assert_array_equal(scaled.encoder.embed.tokens, 0)
    kernel = scaled.encoder.layers.period[0].feed_forward.up.kernel
    np.testing.assert_array_equal(kernel[:, 0, 0], [0, 0, 0.25, 0.5])
    np.testing.assert_array_equal(scaled.output.kernel, 1)
    scaled, _ = scale_by_layer(tree, 0.5, None).update(ones, None, ones)
    np.testing.assert_array_equal(scaled.encoder.embed.tokens, 0.5**5)
    kernel = scaled.encoder.layers.period[0].feed_forward.up.kernel
    np.testing.assert_array_equal(kernel[:, 0, 0], [0.0625, 0.125, 0.25, 0.5])
    assert scale_by_layer(tree, None, None) is None


@pytest.mark.slow
def test_shares_of_layers_in_stages():
    values = {"input": "patches", "input.size": 8, "input.patch": 2, "input.cls": False, "stages": 1, "residual": "pre"}
    tree = tfm.classifier_specs(tfm.override(tfm.Config(layers=2, width=8, heads=2), values))
    ones = jax.tree.map(lambda spec: jnp.ones(spec.shape), tree)
    scaled, _ = scale_by_layer(tree, 0.5, 3).update(ones, None, ones)
    encoder, (stage,) = scaled.encoder, scaled.encoder.stages
    np.testing.assert_array_equal(encoder.embed.projection.kernel, 0)
    np.testing.assert_array_equal(encoder.layers.period[0].feed_forward.up.kernel[:, 0, 0], [0, 0.125])
    np.testing.assert_array_equal(stage.embed.projection.kernel, 0.25)
    np.testing.assert_array_equal(stage.layers.period[0].feed_forward.up.kernel[:, 0, 0], [0.25, 0.5])
    np.testing.assert_array_equal(stage.norm.scale, 1)


def test_bad_choices():
    for values, message in (
        ({"tune": "lora", "tune.targets": "quary"}, "'quary' is no kernel of the model"),
        ({"tune": "lora", "tune.rank": 0}, "rank=0 must be at least 1"),
        ({"tune": "lora", "tune.alpha": 0.0}, "alpha=0.0 must be more than 0"),
        ({"tune": "half"}, "tune=half is unknown"),
        ({"task": "lm", "tune": "head", "model.input.token_types": None}, "leaves nothing to train"),
        ({"optim.layer_decay": 1.5}, "layer-decay=1.5"),
    ):
        with pytest.raises(Exception, match=message):
            specs(**values)


SMALL = (
    "--task=classify --data=train.tsv --eval-data=dev.tsv --model.layers=2 --model.width=32 --model.heads=2 "
    "--model.ffn=64 --tokenizer.vocab=300 --batch.size=8 --batch.length=16 --steps=30 --optim.rate=5e-3 "
    "--model.dropout=0 --model.head.pool=first --log.every=10 --eval.every=30 --checkpoint.every=15"
).split()


# What starts from a model that is there.
TUNED = [
    flag for flag in SMALL if not flag.startswith(("--tokenizer", "--model.layers", "--model.width", "--model.heads"))
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with two small tables, and a model that was trained on one."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    for name, count in (("train", 200), ("dev", 40)):
        labels = rng.integers(2, size=count)
        lines = [f"a {('bad', 'good')[label]} film of {rng.integers(50)}\t{label}" for label in labels]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, _, err = call(main, *SMALL, "--out=base", "--model.init-std=0.1")
        assert code == 0, err
    return folder


@pytest.mark.slow
def test_a_run_with_low_rank_updates(home, tmp_path, monkeypatch):
    monkeypatch.chdir(home)
    tuned = [*TUNED, "--init=base", "--tune=lora", "--tune.rank=2", "--tune.dropout=0.1", "--optim.rate=1e-2"]
    code, _, err = call(main, *tuned, f"--out={tmp_path / 'a'}")
    assert code == 0, err
    # The same in two halves.
    code, _, err = call(main, *tuned, f"--out={tmp_path / 'b'}", "--stop-at=15")
    assert code == 0, err
    code, _, err = call(main, "--resume", f"--out={tmp_path / 'b'}")
    assert code == 0, err
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in "ab"]
    assert results[0]["eval_loss"] == results[1]["eval_loss"]
    metrics = json.loads(call(evaluate.main, f"--run={tmp_path / 'a'}")[1])
    assert metrics["loss"] == pytest.approx(results[0]["eval_loss"], rel=1e-4)
    before, after = (
        call(predict.main, f"--run={folder}", "--file=dev.tsv")[1] for folder in (tmp_path / "a", tmp_path / "a")
    )
    code, _, err = call(export.main, f"--run={tmp_path / 'a'}", f"--to={tmp_path / 'hf'}")
    assert code == 0, err
    exported = call(predict.main, f"--run={tmp_path / 'hf'}", "--file=dev.tsv")[1]
    labels = [[line.split("\t")[0] for line in text.splitlines()] for text in (before, after, exported)]
    assert labels[0] == labels[1] == labels[2]
    # A run can start from one with updates, which are merged.
    code, _, err = call(main, *TUNED, f"--init={tmp_path / 'a'}", "--tune=head", f"--out={tmp_path / 'c'}")
    assert code == 0, err


@pytest.mark.slow
def test_a_part_needs_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(f"film {n}\t{n % 2}\n" for n in range(80)))
    (tmp_path / "dev.tsv").write_text("text\tlabel\nfilm 1\t1\nfilm 2\t0\n")
    code, _, err = call(main, *SMALL, "--tune=lora", "--out=nothing")
    assert code == 2
    assert "--tune=lora trains a part of a model that is there; name it with --init=FOLDER" in err
    assert not Path("nothing").exists()


@pytest.mark.slow
def test_an_adapter_there_and_back(home, tmp_path, monkeypatch):
    """Written by an export, read by a new run of no step: the same predictions."""
    monkeypatch.chdir(home)
    tuned = [*TUNED, "--tune=lora", "--tune.targets=query,down", "--optim.rate=1e-2"]
    code, _, err = call(export.main, "--run=base", f"--to={tmp_path / 'base'}")
    assert code == 0, err
    code, _, err = call(main, *tuned, f"--init={tmp_path / 'base'}", f"--out={tmp_path / 'a'}")
    assert code == 0, err
    code, out, err = call(export.main, f"--run={tmp_path / 'a'}", f"--to={tmp_path / 'adapter'}", "--adapter")
    assert code == 0, err
    assert json.loads(out)["output"] < 1e-5
    fields = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert fields["r"] == 8
    assert fields["lora_alpha"] == 16
    assert len(fields["target_modules"]) == 4, "two kernels of two layers"
    again = [flag for flag in TUNED if not flag.startswith("--optim.rate")]
    flags_of_a_new_run = [f"--init={tmp_path / 'base'}", f"--adapter={tmp_path / 'adapter'}", f"--out={tmp_path / 'b'}"]
    code, _, err = call(main, *again, *flags_of_a_new_run, "--optim.rate=0")
    assert code == 0, err
    predictions = [call(predict.main, f"--run={tmp_path / name}", "--file=dev.tsv")[1] for name in "ab"]
    assert predictions[0] == predictions[1]
    for flags_of_bad_run, message in (
        (["--adapter=nothing"], "name it with --init"),
        ([f"--init={tmp_path / 'base'}", "--adapter=nothing"], "has no adapter_config.json"),
        ([f"--init={tmp_path / 'base'}", f"--adapter={tmp_path / 'base'}"], "has no adapter_config.json"),
    ):
        code, _, err = call(main, *TUNED, *flags_of_bad_run, f"--out={tmp_path / 'c'}")
        assert code == 2
        assert message in err
        assert not (tmp_path / "c").exists()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["lm", "translate"])
def test_writing_with_updates(task, tmp_path, monkeypatch):
    """What a model with updates writes is what its merged export writes."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    lines = (tmp_path / "text.txt").read_text().splitlines()
    pairs = "".join(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in lines)
    (tmp_path / "pairs.tsv").write_text("en\tde\n" + pairs)
    small = [flag for flag in FLAGS if not flag.startswith("--data")] + [f"--task={task}", "--optim.rate=1e-2"]
    small += {"lm": ["--data=text.txt"], "translate": ["--data=pairs.tsv", "--batch.tokens=256", "--task.bleu=0"]}[task]
    code, _, err = call(main, *small, "--out=base")
    assert code == 0, err
    shape = ("--tokenizer", "--model.layers", "--model.width", "--model.heads", "--model.ffn")
    tuned = [flag for flag in small if not flag.startswith(shape)]
    code, _, err = call(main, *tuned, "--init=base", "--tune=lora", "--tune.targets=all", "--optim.rate=0.1", "--out=a")
    assert code == 0, err
    code, _, err = call(export.main, "--run=a", "--to=hf", "--merge")
    assert code == 0, err
    (tmp_path / "in.txt").write_text("\n".join(lines[:3]) + "\n")
    asked = {"lm": ["--prompt=the cat", "--max-new-tokens=12"], "translate": ["--file=in.txt"]}[task]
    outputs = [call(generate.main, f"--run={run}", *asked, "--strategy=greedy") for run in ("a", "hf", "base")]
    assert outputs[0][0] == 0, outputs[0][2]
    assert outputs[0][1] == outputs[1][1] != outputs[2][1]

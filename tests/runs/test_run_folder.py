"""Run folders and Hugging Face folders are one pair: `open_folder` decides, and both have the same members."""

import json

import jax
import numpy as np
import pytest
from random_params import random_params
from tokenizers import Tokenizer, models

import tfm
from train import UserError
from train.runs import paths, run_folder, takeover
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder, open_folder
from train.settings import text
from train.settings.schema import Run
from train.tasks import resolve

FACTS = {"hash": "a", "segmentation_hash": "", "order": "feistel-6", "source": "text.txt", "classes": ["bad", "good"]}
SMALL = "--task=classify --preset=bert-tiny --model.layers=1 --model.width=16 --model.heads=2 --model.vocab=128"


@pytest.fixture
def run(tmp_path):
    """A run of classification."""
    return resolve.resolve([*SMALL.split(), f"--out={tmp_path / 'run'}"], None, None)[0]


@pytest.fixture
def tokenizer():
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    return Tokenizer(models.WordLevel({name: token for token, name in enumerate(names)}, unk_token="[UNK]"))


@pytest.fixture
def run_path(run, tokenizer, tmp_path):
    """Its folder, without checkpoints."""
    run_folder.create(tmp_path / "run", run, tokenizer, {"data": FACTS})
    return tmp_path / "run"


@pytest.fixture
def exported(run, run_path, tmp_path):
    """A model that the run could have made, as a Hugging Face folder."""
    model = tfm.override(run.model, {"head.pool": "first"})
    params = random_params(tfm.classifier_specs(model))
    fields = RunFolder(run_path).hf_fields() | {"model_type": "bert"}
    RunFolder(run_path).save_hf(tmp_path / "hf", model, params, fields)
    return tmp_path / "hf", params


def members(cls):
    return {name for name in vars(cls) if not name.startswith("_")}


def test_the_pair_has_the_same_members():
    """Beside them, a run folder can check its data and knows where it was made, and a Hugging Face folder has its own
    fields and its model, and perhaps modules."""
    assert members(RunFolder) - {"check_data", "recorded_values", "surroundings"} == members(HfFolder) - {
        "fields",
        "has_modules",
        "hf_model",
    }


def test_a_run_folder_is_what_was_put_in(run, run_path, tokenizer):
    folder = open_folder(run_path)
    assert isinstance(folder, RunFolder)
    assert folder.config == run
    assert folder.values == tfm.flatten(run)
    assert folder.processor.to_str() == tokenizer.to_str()
    assert folder.facts == FACTS
    assert run_folder.run_values(run_path) == folder.values
    assert takeover.of_resumed(run_path).facts == FACTS


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        ("--task=classify", {"head_classes": ["bad", "good"]}),
        ("--task=classify --init-head=fresh", {}),
        ("--task=tag", {}),
    ],
)
def test_a_run_starts_with_the_classes_of_the_head_of_the_same_task(run_path, flags, facts):
    argv = [*flags.split(), f"--init={run_path}"]
    start = resolve.resolve(argv, None, run_folder.run_values)[0]
    assert takeover.of_init(start).facts == facts


def test_a_hugging_face_folder_is_a_run_that_could_have_made_it(run, exported):
    path, params = exported
    folder = open_folder(path)
    assert isinstance(folder, HfFolder)
    assert isinstance(folder.config, Run)
    assert folder.config.task == run.task
    assert folder.config.out == str(path)
    sizes = ("layers", "width", "heads", "vocab", "classes")
    assert all(getattr(folder.config.model, name) == getattr(run.model, name) for name in sizes)
    assert folder.facts == {"classes": ["bad", "good"], "tokenizer_marks": True}
    with pytest.raises(UserError, match="--average=3 is a mean of the checkpoints of a run, and .* holds one model"):
        folder.load(average=3)
    assert folder.processor.encode("a").ids == [2, 5, 3], "the template of the task"
    assert folder.hf_fields()["problem_type"] == "single_label_classification"
    messages = []
    jax.tree.map(np.testing.assert_array_equal, folder.load(log=messages.append), params)


def test_run_json_decides(run_path, exported):
    """A run folder stays one with a config.json in it."""
    (run_path / "config.json").write_text("{}")
    assert isinstance(open_folder(run_path), RunFolder)
    (run_path / "run.json").unlink()
    assert isinstance(open_folder(run_path), HfFolder)


def test_the_prefix_of_a_text(tmp_path, tokenizer):
    """A mark before every document, none before windows."""
    for name, words, prefix in (("documents", (), [3]), ("windows", ("--task.windows=true",), [])):
        run = resolve.resolve(["--task=lm", "--preset=gpt-tiny", *words], None, None)[0]
        run_folder.create(tmp_path / name, run, tokenizer, {"data": FACTS})
        assert RunFolder(tmp_path / name).text_prefix == prefix


def test_an_average_is_float32(tmp_path, tokenizer):
    words = ["--task=lm", "--preset=gpt-tiny", "--model.param-dtype=bfloat16"]
    for ema, dtype in (("none", "bfloat16"), ("0.99", "float32")):
        run = resolve.resolve([*words, f"--optim.ema={ema}"], None, None)[0]
        run_folder.create(tmp_path / ema, run, tokenizer, {"data": FACTS})
        assert RunFolder(tmp_path / ema).config.model.param_dtype == dtype


def test_data_that_changed(run_path):
    folder = RunFolder(run_path)
    folder.check_data(FACTS)
    with pytest.raises(UserError, match="the text of --data=text.txt is not that with which .*run began; restore or"):
        folder.check_data(FACTS | {"hash": "b"})
    with pytest.raises(UserError, match="the cache has lost what --tokenizer.dropout drew for .*run; restore"):
        folder.check_data(FACTS | {"segmentation_hash": "b"})
    with pytest.raises(UserError, match=r"another order of rows \(feistel-6\) than this version has \(b\); go on with"):
        folder.check_data(FACTS | {"order": "b"})


def test_relative_paths_are_those_of_the_directory_in_which_it_began(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "began").mkdir()
    (tmp_path / "began" / "text.txt").write_text("a")
    monkeypatch.chdir(tmp_path / "began")
    run = resolve.resolve([*SMALL.split(), "--data=text.txt"], None, None)[0]
    run_folder.create(tmp_path / "run", run, tokenizer, {"data": FACTS})
    assert RunFolder(tmp_path / "run").values["data.source"] == "text.txt"
    monkeypatch.chdir(tmp_path)
    assert RunFolder(tmp_path / "run").values["data.source"] == str(tmp_path / "began" / "text.txt")


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("a.txt", "{}/a.txt"),
        ("a.*", "{}/a.*"),
        ("a.txt,b.txt", "{}/a.txt,b.txt"),
        ("tfds:x", "tfds:x"),
        ("", ""),
        ("here.txt", "here.txt"),
    ],
)
def test_paths_seen_from_another_directory(source, seen, tmp_path, monkeypatch):
    (tmp_path / "began").mkdir()
    for name in ("began/a.txt", "began/here.txt", "here.txt", "b.txt"):
        (tmp_path / name).write_text("x")
    monkeypatch.chdir(tmp_path)
    values = dict.fromkeys(text.BY_HASH, source)
    assert paths.seen_from_here(values, tmp_path / "began")["data.source"] == seen.format(tmp_path / "began")


def damage(path, name, text):
    (path / name).write_text(text) if text is not None else (path / name).unlink()


@pytest.mark.parametrize(
    ("name", "text", "member", "sentence"),
    [
        ("run.json", None, "config", r"is not a run folder: it has no run.json \(nor config.json, as models of"),
        ("run.json", '{"config": {"st', "config", "run.json is damaged"),
        ("run.json", "{}", "values", r"run.json is damaged \('config'\); restore it or start a new run"),
        ("run.json", '{"config": {"task": {"name": "mlm"}}}', "values", "was written by an earlier version, which"),
        (
            "run.json",
            '{"format": 3, "config": {"model": {"order": "pre"}}}',
            "values",
            "run.json has a configuration that cannot be used: model.order is unknown",
        ),
        ("tokenizer.json", None, "processor", "is not a run folder: it has no tokenizer.json"),
        ("tokenizer.json", "{}", "processor", "tokenizer.json is damaged"),
        ("tokenizer.json", None, "load", "holds no checkpoint to take weights from"),
    ],
)
def test_a_damaged_run_folder_is_one_sentence(run_path, name, text, member, sentence):
    damage(run_path, name, text)
    with pytest.raises(UserError, match=sentence):
        getattr(RunFolder(run_path), member)()


@pytest.mark.parametrize(
    ("name", "text", "member", "sentence"),
    [
        ("config.json", "{", "fields", "config.json is not JSON"),
        (
            "config.json",
            json.dumps({"model_type": "mamba"}),
            "config",
            "is of model_type mamba, which is not supported",
        ),
        ("tokenizer.json", None, "processor", "it has neither tokenizer.json nor vocab.txt"),
        ("model.safetensors", None, "load", "hf"),
    ],
)
def test_a_damaged_hugging_face_folder_is_one_sentence(exported, name, text, member, sentence):
    path, _ = exported
    damage(path, name, text)
    with pytest.raises(UserError, match=sentence):
        getattr(HfFolder(path), member)()


def test_resumed_values(run_path, tmp_path, monkeypatch):
    assert run_folder.resumed_values(str(run_path)) == RunFolder(run_path).values
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--resume found no run in runs/; name one with --out=DIR"):
        run_folder.resumed_values("")
    run_path.rename(tmp_path / "later")
    (tmp_path / "runs").mkdir()
    (tmp_path / "later").rename(tmp_path / "runs/a")
    assert run_folder.resumed_values("")["out"] == "runs/a"

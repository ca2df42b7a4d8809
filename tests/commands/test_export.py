"""Runs become Hugging Face folders, and such folders stand in for runs."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from random_params import random_params
from small import FLAGS, call, write_text
from tasks.translate.test_task import SMALL, counting, write_sides

import tfm
from train.evaluate import main as evaluate
from train.export import main as export
from train.generate import main as generate
from train.main import main
from train.predict import main as predict

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]
MLM = ["--task=mlm", *FLAGS, "--batch.length=16"]
GOOD, BAD = "what a fine film it was", "what a dull film it was"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run of each task, and what export makes of it."""
    folder = tmp_path_factory.mktemp("home")
    with contextlib.chdir(folder):
        write_text(Path("text.txt"))
        write_sides("train", counting(400, 0))
        rows = [f"{GOOD} {n}\tgood" if n % 2 else f"{BAD} {n}\tbad" for n in range(80)]
        Path("rows.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
        trained("mlm", *MLM)
        trained("lm", "--task=lm", *FLAGS)
        classify = ["--task=classify", *FLAGS[1:], "--data=rows.tsv", "--batch.length=16"]
        trained("classify", *classify, "--model.head.pool=first", "--steps=30", "--optim.rate=1e-2")
        trained("mean", *classify, "--steps=1")
        trained("translate", *SMALL, "--data=train.en,train.de", "--steps=20")
        for name in ("mlm", "lm", "classify", "translate"):
            code, out, err = call(export, f"--run={name}", f"--to={name}-hf")
            assert code == 0, err
            assert max(json.loads(out).values()) < 1e-5
    return folder


def trained(folder, *flags):
    code, _, err = call(main, *flags, "--eval.final=false", f"--out={folder}")
    assert code == 0, err


def test_the_folder_has_a_certificate_and_all_that_transformers_wants():
    names = {"certificate.json", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in Path("mlm-hf").iterdir()} == names
    assert list(json.loads(Path("mlm-hf/certificate.json").read_text())) == [
        "token ids",
        "encoder embeddings",
        "encoder layer 0",
        "output",
    ]
    fields = json.loads(Path("classify-hf/config.json").read_text())
    assert fields["id2label"] == {"0": "bad", "1": "good"}
    assert fields["problem_type"] == "single_label_classification"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_certificate_is_exact_where_a_run_computes_in_halves(dtype, tmp_path):
    """Merged updates of low rank, too: both models compute in float32."""
    flags = ["--task=classify", "--init=mlm", "--data=rows.tsv", "--tune=lora", "--batch.length=16", "--steps=2"]
    trained(tmp_path / "run", *flags, "--batch.size=8", "--model.head.pool=first", f"--model.dtype={dtype}")
    code, out, err = call(export, f"--run={tmp_path}/run", f"--to={tmp_path}/hf", "--merge")
    assert code == 0, err
    assert max(json.loads(out).values()) < 1e-6


def test_a_folder_is_evaluated_as_its_run():
    def measured(run):
        code, out, err = call(evaluate, f"--run={run}", "--data=rows.tsv")
        assert code == 0, err
        return json.loads(out)

    metrics = measured("classify")
    hf_metrics = measured("classify-hf")
    assert metrics["accuracy"] == hf_metrics["accuracy"] == 1.0
    np.testing.assert_allclose(metrics["loss"], hf_metrics["loss"], rtol=1e-5)
    assert call(predict, "--run=classify-hf", f"--text={BAD}")[1] == call(predict, "--run=classify", f"--text={BAD}")[1]


def test_a_folder_writes_as_its_run():
    """transformers divides by another function of the length, so no penalty is asked for."""
    for name, prompt in {"lm": "the cat", "translate": "one two"}.items():
        strategy = ["--strategy=greedy"] if name == "lm" else ["--beams=2", "--length-penalty=0"]
        flags = (f"--prompt={prompt}", "--max-new-tokens=5", *strategy)
        code, out, err = call(generate, f"--run={name}-hf", *flags)
        assert code == 0, err
        assert out
        if name == "translate":
            assert out == call(generate, f"--run={name}", *flags)[1]


def test_a_run_starts_from_a_folder(tmp_path):
    """Without a step, the weights are those of the folder."""
    for name, flags in {"mlm": MLM, "lm": ["--task=lm", *FLAGS]}.items():
        flags = [flag for flag in flags if not flag.startswith(("--tokenizer", "--model"))]
        code, _, err = call(
            main,
            *flags,
            f"--init={name}-hf",
            "--steps=1",
            "--optim.rate=0",
            "--eval.final=false",
            f"--out={tmp_path}/{name}",
        )
        assert code == 0, err
        assert call(export, f"--run={tmp_path}/{name}", f"--to={tmp_path}/{name}-hf")[0] == 0
        exported, exported_again = (
            Path(f"{name}-hf/model.safetensors").read_bytes(),
            (tmp_path / f"{name}-hf/model.safetensors").read_bytes(),
        )
        assert exported == exported_again
    code, _, err = call(
        main,
        "--task=classify",
        "--init=mlm-hf",
        "--data=rows.tsv",
        "--steps=1",
        "--batch.size=8",
        "--batch.length=16",
        f"--out={tmp_path}/c",
    )
    assert code == 0, err
    assert "taken from mlm-hf: its weights; what it lacks starts fresh: pooler, output" in err


def test_a_folder_of_a_folder_keeps_its_fields(tmp_path):
    path = tmp_path / "mine"
    shutil.copytree("classify-hf", path)
    fields = json.loads((path / "config.json").read_text()) | {"task_specific_params": {"a": 1}}
    (path / "config.json").write_text(json.dumps(fields))
    assert call(export, f"--run={path}", f"--to={tmp_path}/again")[0] == 0
    again = json.loads((tmp_path / "again/config.json").read_text())
    assert again == fields
    assert (tmp_path / "again/tokenizer.json").read_bytes() == (path / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("pooler", [True, False])
def test_an_encoder_without_a_head_comes_back_as_one(tmp_path, pooler):
    """A folder of BertModel, or of ElectraModel, which has no pooler."""
    model = tfm.Config(layers=2, heads=2, width=16, ffn=32, vocab=512, length=32)
    params = random_params(tfm.classifier_specs(model))
    params = dataclasses.replace(params, output=None, pooler=params.pooler if pooler else None)
    architecture = {"model_type": "bert", "architectures": ["BertModel"]}
    architecture = architecture if pooler else {"model_type": "electra", "architectures": ["ElectraModel"]}
    bare = tmp_path / "bare"
    tfm.to_hf(model, params, bare, like=architecture)
    shutil.copy("mlm-hf/tokenizer.json", bare)
    code, out, err = call(export, f"--run={bare}", f"--to={tmp_path / 'again'}")
    assert code == 0, err
    assert max(json.loads(out).values()) < 1e-6
    assert json.loads((tmp_path / "again/config.json").read_text())["architectures"] == architecture["architectures"]
    read = tfm.from_hf(tmp_path / "again")[1]
    assert read.output is None
    assert jax.tree.structure(read) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, read, params)
    code, _, err = call(predict, f"--run={bare}", "--text=a [MASK]")
    assert (code, "without the head that fills blanks" in err) == (2, True), err


def test_bad_input(tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree("mlm-hf", broken)
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[:-100])
    bare = tmp_path / "bare"
    shutil.copytree("mlm-hf", bare)
    (bare / "tokenizer.json").unlink()
    for command, flags, sentence in (
        (export, ("--run=mlm",), "to=FOLDER must name the folder to write"),
        (export, ("--to=x",), "run=DIR must name the folder of a run"),
        (export, ("--run=mlm", "--to=mlm-hf"), "--to=mlm-hf already holds something"),
        (export, ("--run=nowhere", "--to=x"), "nowhere is not a run folder: it has no run.json (nor config.json"),
        (export, ("--run=mean", "--to=x"), "by the first token: train with --model.head.pool=first"),
        (export, (f"--run={broken}", "--to=x"), "download it again"),
        (evaluate, (f"--run={broken}",), "download it again"),
        (evaluate, (f"--run={bare}",), "it has neither tokenizer.json nor vocab.txt"),
        (generate, ("--run=mlm-hf", "--prompt=a"), "was trained for --task=mlm, which writes no text"),
        (main, ("--task=lm", "--init=mlm-hf", *FLAGS[:1]), "holds no decoder"),
    ):
        code, out, err = call(command, *flags)
        assert (code, out) == (2, ""), err
        assert sentence in err
        assert "Traceback" not in err
        assert not Path("x").exists()
        assert not Path("x.part").exists()


@pytest.mark.parity
def test_transformers_loads_what_is_written(home):
    """Auto classes and tokenizers find the same label, the same next tokens, the same translation."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained("classify-hf")
    model = transformers.AutoModelForSequenceClassification.from_pretrained("classify-hf").eval()
    with torch.no_grad():
        scores = model(**tokenizer(BAD, return_tensors="pt")).logits.softmax(-1)[0]
    label, probability = call(predict, "--run=classify", f"--text={BAD}")[1].split()
    assert model.config.id2label[int(scores.argmax())] == label
    np.testing.assert_allclose(float(scores.max()), float(probability), atol=1e-4)

    tokenizer = transformers.AutoTokenizer.from_pretrained("lm-hf")
    model = transformers.AutoModelForCausalLM.from_pretrained("lm-hf").eval()
    encoded = tokenizer("the cat", return_tensors="pt", return_token_type_ids=False)
    written = model.generate(**encoded, max_new_tokens=5, do_sample=False)
    expected = call(generate, "--run=lm", "--prompt=the cat", "--max-new-tokens=5", "--strategy=greedy")[1]
    assert tokenizer.decode(written[0], skip_special_tokens=True).strip() == expected.strip()

    tokenizer = transformers.AutoTokenizer.from_pretrained("translate-hf")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained("translate-hf").eval()
    written = model.generate(**tokenizer("one two", return_tensors="pt"), num_beams=1, max_new_tokens=12)
    expected = call(generate, "--run=translate", "--prompt=one two", "--strategy=greedy", "--max-new-tokens=12")[1]
    assert tokenizer.decode(written[0], skip_special_tokens=True).strip() == expected.strip()

    assert transformers.AutoModelForMaskedLM.from_pretrained("mlm-hf").config.model_type == "bert"


@pytest.mark.parity
@pytest.mark.parametrize(
    ("name", "compared"),
    [("mlm", "output"), ("lm", "greedy texts"), ("classify", "output"), ("translate", "greedy texts")],
)
def test_what_is_written_is_the_same_in_transformers(name, compared):
    code, out, err = call(export, f"--run={name}-hf", "--certify")
    assert code == 0, err
    differences = json.loads(out)
    assert {"transformers: token ids", f"transformers: {compared}"} <= set(differences)
    assert max(differences.values()) < 1e-4


@pytest.mark.parity
def test_a_difference_from_transformers_is_an_error(monkeypatch, tmp_path):
    from train.serving import reference

    code, _, err = call(export, "--run=lm", "--certify")
    assert (code, "--run=lm is none; add --to=FOLDER" in err) == (2, True), err
    monkeypatch.setattr(reference, "greedy_texts", lambda folder, params: ["a"] * 3)
    code, _, err = call(export, "--run=lm", f"--to={tmp_path / 'written'}", "--certify")
    assert (code, "3 of 3 greedy texts are not those of transformers" in err) == (2, True), err
    assert not list(tmp_path.iterdir())

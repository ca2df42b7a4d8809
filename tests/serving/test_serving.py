"""Programs for servers: equal to the model at every batch size, and loaded without this project."""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from PIL import Image
from random_params import random_params
from small import call, read_lines, run
from tokenizers import Tokenizer

import tfm
from train import UserError, export, predict
from train.export import ExportOptions
from train.lab import embed
from train.serving import forward, onnx, stablehlo
from train.settings import schema
from train.tasks import presets
from train.tasks.classify.options import Classify
from train.tasks.classify.task import CLASSIFY
from train.text import hf_tokenizer, tokenize

PAGE = Path(__file__).parents[2] / "docs/guide/export.md"
LENGTH = 8
MODEL = tfm.Config(layers=2, heads=2, width=16, ffn=32, vocab=40, length=16, classes=3)
SPECS = {
    "encoder": tfm.encoder_specs,
    "mlm": tfm.masked_lm_specs,
    "lm": tfm.causal_lm_specs,
    "classify": tfm.classifier_specs,
    "tag": tfm.tagger_specs,
    "translate": tfm.seq2seq_specs,
}


def model_of(name, seed=0):
    return random_params(SPECS[name](MODEL), seed)


def folder_of(run, processor=None, classes=None):
    """What an export asks of a folder."""

    def save_processor(to):
        if processor:
            (to / "tokenizer.json").write_text(processor.to_str())

    return SimpleNamespace(config=run, facts={"classes": classes}, save_processor=save_processor)


def run_of(name, **values):
    return SimpleNamespace(model=MODEL, task=SimpleNamespace(name=name), batch=SimpleNamespace(length=LENGTH))


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_a_program_is_the_model_row_by_row(name, tmp_path):
    """Each row alone, at its own length and without a mask."""
    pytest.importorskip("flatbuffers")
    params = model_of(name)
    differences = stablehlo.write(folder_of(run_of(name), classes=["a", "b", "c"]), params, tmp_path / "out", LENGTH)
    assert len(differences) == 2
    assert max(differences.values()) < 1e-5
    facts = json.loads((tmp_path / "out/model.json").read_text())
    program = jax.export.deserialize(bytearray((tmp_path / "out/model.stablehlo").read_bytes()))
    weights = dict(np.load(tmp_path / "out/weights.npz"))
    assert set(program.platforms) == {"cpu", "cuda", "tpu"}
    rng = np.random.default_rng(0)
    ids = rng.integers(0, MODEL.vocab, (5, LENGTH)).astype(np.int32)
    sizes = [8, 3, 5, 1, 8] if "attention_mask" in facts["inputs"] else [LENGTH] * 5
    fields = {
        "input_ids": ids,
        "attention_mask": (np.arange(LENGTH) < np.array(sizes)[:, None]).astype(np.int32),
        "token_type_ids": np.zeros_like(ids),
        "decoder_input_ids": ids[:, ::-1].copy(),
    }
    output = program.call(weights, *(fields[name] for name in facts["inputs"]))
    for row, size in enumerate(sizes):
        expected = reference(name, params, ids[row : row + 1, :size], ids[row : row + 1, ::-1])[0]
        actual = output[row] if name in ("classify", "translate") else output[row, :size]
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def reference(name, params, ids, target):
    """The model's own function."""
    ids, target = jnp.asarray(ids), jnp.asarray(target)
    if name == "mlm":
        where = jnp.arange(ids.shape[1])[None]
        return tfm.masked_lm(params, MODEL, ids, where)[..., : MODEL.vocab]
    if name == "translate":
        return tfm.seq2seq(params, MODEL, ids, target)[..., : MODEL.vocab]
    functions = {"encoder": tfm.encoder, "lm": tfm.causal_lm, "classify": tfm.classify, "tag": tfm.classify_tokens}
    output = functions[name](params, MODEL, ids)
    return output[..., : MODEL.vocab] if name == "lm" else output


@pytest.mark.slow
def test_the_example_of_the_page_runs_without_the_project(tmp_path):
    """Two words decide, which the weights are made to know."""
    pytest.importorskip("flatbuffers")
    tokenizer = tokenize.train(schema.Tokenizer(vocab=300), ["a fine film", "a dull film", "what a fine day"] * 9)
    model = tfm.Config(layers=1, heads=2, width=16, ffn=32, vocab=tokenizer.get_vocab_size(), length=16, classes=2)
    run = schema.Run(task=Classify(), model=model, batch=schema.Batch(length=16))
    params = trained(tokenizer, model)
    folder = folder_of(run, classes=["bad", "good"])
    folder.save_processor = lambda to: hf_tokenizer.save(tokenizer, CLASSIFY, run, to)
    stablehlo.write(folder, params, tmp_path / "reviews-program", 16)
    source, expected = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL).groups()
    source += "\nimport sys\nassert not {'tfm', 'train', 'flax'} & set(sys.modules)\n"
    result = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout == expected, result.stderr


def trained(tokenizer, model):
    """A classifier that tells `fine` from `dull`, by gradient descent."""
    texts, labels = ["a fine film", "a dull film", "what a fine day", "what a dull day"], jnp.array([1, 0, 1, 0])
    rows = [tokenizer.encode(f"[CLS] {text} [SEP]", add_special_tokens=False).ids for text in texts]
    ids = jnp.asarray([row + [0] * (16 - len(row)) for row in rows])
    valid = jnp.asarray([[True] * len(row) + [False] * (16 - len(row)) for row in rows])
    params = random_params(tfm.classifier_specs(model))
    optimizer = optax.adam(0.02)

    @jax.jit
    def step(params, state):
        def loss(params):
            return tfm.cross_entropy(tfm.classify(params, model, ids, valid), labels).mean()

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(100):
        params, state = step(params, state)
    return params


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_onnx_is_the_model(name, tmp_path):
    pytest.importorskip("jax2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    largest = onnx.write(folder_of(run_of(name)), model_of(name), tmp_path / "out", LENGTH)
    assert max(largest.values()) < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "out/model.onnx"))
    facts = json.loads((tmp_path / "out/model.json").read_text())
    assert [value.name for value in session.get_inputs()] == list(facts["inputs"])
    assert [value.name for value in session.get_outputs()] == [facts["output"]]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with runs of a step: of a classifier of pictures, of vectors of texts, and of pictures and captions."""
    folder = tmp_path_factory.mktemp("home")
    small = ["--batch.size=8", "--steps=1", "--eval.final=false", "--model.layers=1", "--model.width=16"]
    small += ["--model.heads=2", "--model.ffn=32"]
    (folder / "pairs.tsv").write_text("text\tpair\n" + "a cat sat\ta dog ran\nthe bird flew\tit was red\n" * 20)
    with contextlib.chdir(folder):
        pictures = ["--task=image", "--preset=vit-micro", "--model.input.patch=8", "--model.input.size=16", *small]
        run(*pictures, "--out=image")
        texts = ["--data=pairs.tsv", "--data.field=text,pair", "--tokenizer.vocab=300", "--batch.length=12"]
        run("--task=contrast", *texts, *small, "--out=contrast")
    return folder


def serve(folder, inputs):
    """What the program of a folder computes, whatever its format."""
    if (folder / "model.onnx").exists():
        session = pytest.importorskip("onnxruntime").InferenceSession(str(folder / "model.onnx"))
        return session.run(None, inputs)[0]
    program = jax.export.deserialize(bytearray((folder / "model.stablehlo").read_bytes()))
    return np.asarray(program.call(dict(np.load(folder / "weights.npz")), *inputs.values()))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "extra"), [("stablehlo", "flatbuffers"), ("onnx", "jax2onnx")])
def test_the_command_writes_programs_of_pictures_and_of_vectors(home, monkeypatch, tmp_path, kind, extra):
    """Pixels and labels are those of `train.predict`; vectors are those of `train.embed`, of length 1."""
    pytest.importorskip(extra)
    monkeypatch.chdir(home)
    code, out, err = call(export.main, "--run=image", f"--to={tmp_path}/image", f"--format={kind}")
    assert code == 0, err
    assert max(json.loads(out).values()) < 1e-4
    facts = json.loads((tmp_path / "image/model.json").read_text())
    assert facts["inputs"] == {"pixel_values": {"dtype": "float32", "shape": ["batch", 3, 16, 16]}}
    colours = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3)).astype(np.uint8)
    for index, picture in enumerate(colours):
        Image.fromarray(picture).save(tmp_path / f"{index}.png")
    code, out, err = call(predict.main, "--run=image", f"--file={tmp_path}/*.png", f"--to={tmp_path}/classes.jsonl")
    assert code == 0, err
    fields = json.loads((tmp_path / "image/preprocessor_config.json").read_text())
    pixels = (colours * fields["rescale_factor"] - fields["image_mean"]) / fields["image_std"]
    logits = serve(tmp_path / "image", {"pixel_values": pixels.transpose(0, 3, 1, 2).astype(np.float32)})
    expected = [
        [row["probabilities"][name] for name in facts["classes"]] for row in read_lines(tmp_path / "classes.jsonl")
    ]
    np.testing.assert_allclose(jax.nn.softmax(logits), expected, atol=1e-4)

    code, _, err = call(export.main, "--run=contrast", f"--to={tmp_path}/contrast", f"--format={kind}")
    assert code == 0, err
    tokenizer = Tokenizer.from_file(str(tmp_path / "contrast/tokenizer.json"))
    tokenizer.enable_padding(length=12)
    texts = ["a cat sat", "the bird", "it was a red dog"]
    rows = tokenizer.encode_batch(texts)
    names = {"input_ids": "ids", "attention_mask": "attention_mask"}
    vectors = serve(
        tmp_path / "contrast",
        {name: np.array([getattr(row, field) for row in rows], np.int32) for name, field in names.items()},
    )
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    flags = (f"--file={tmp_path}/texts.txt", f"--to={tmp_path}/vectors.npy", "--normalize")
    assert call(embed.main, "--run=contrast", *flags)[0] == 0
    np.testing.assert_allclose(vectors, np.load(tmp_path / "vectors.npy"), atol=1e-4)


@pytest.mark.slow
def test_the_command_refuses_in_a_sentence(home, monkeypatch, tmp_path):
    pytest.importorskip("flatbuffers")
    monkeypatch.chdir(home)
    flags = (f"--to={tmp_path}/out", "--format=stablehlo")
    code, _, err = call(export.main, "--run=image", "--length=9", *flags)
    assert (code, err.splitlines()[-1]) == (
        2,
        "error: --length=9 is for models of texts, and image reads pictures; leave it out",
    )
    monkeypatch.setattr(forward, "_OF_PICTURES", {})
    code, _, err = call(export.main, "--run=image", *flags)
    assert code == 2
    assert "error: a Classifier is not a model that servers call; export it with --format=huggingface" in err
    assert not list(tmp_path.iterdir()), "nothing half-written"


@pytest.mark.slow
def test_a_program_that_differs_is_refused():
    chosen = forward.forward_of(MODEL, model_of("tag"), LENGTH)

    def program(inputs):
        return np.asarray(jax.jit(chosen.batched)(chosen.params, *inputs.values())) + 0.1

    with pytest.raises(UserError, match=r"differs in logits, batch of 1 by 1.0e-01"):
        forward.differences(chosen, program)


def test_what_is_refused(monkeypatch, tmp_path):
    with pytest.raises(UserError, match="a dict is not a model that servers call"):
        forward.forward_of(MODEL, {}, LENGTH)
    towers = random_params(tfm.towers_specs(presets.model("clip-tiny")))
    with pytest.raises(UserError, match="a Towers is not a model that servers call"):
        forward.forward_of(presets.model("clip-tiny"), towers, LENGTH, "contrast")
    with pytest.raises(ValueError, match="format=onnx is for whole models"):
        ExportOptions(run="a", to="b", format="onnx", adapter=True)
    with pytest.raises(ValueError, match="length=9 is for --format=stablehlo or onnx"):
        ExportOptions(run="a", to="b", length=9)
    with pytest.raises(ValueError, match="average=3 is for a folder that is written, and without to=FOLDER certify"):
        ExportOptions(run="a", certify=True, average=3)
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(UserError, match=r'needs flatbuffers; pip install -e "\.\[stablehlo\]"'):
        stablehlo.write(folder_of(run_of("tag")), model_of("tag"), tmp_path / "out", LENGTH)
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(UserError, match=r'pip install -e "\.\[onnx\]" and then .* or take --format=stablehlo'):
        onnx.write(folder_of(run_of("tag")), model_of("tag"), tmp_path / "out", LENGTH)

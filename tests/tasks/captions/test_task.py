"""Contrast of pictures and captions: batches, the loss by parts and on meshes, runs on small files, bad input."""

import dataclasses
import json
import types

import jax
import numpy as np
import pytest
from contracts import MESHES, assert_near
from PIL import Image
from random_params import random_params
from small import call, read_lines, run

import tfm
from train import UserError, evaluate, plan, predict
from train.data import feed
from train.data.tokens import in_memory
from train.images import drawings, sources
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.lab import embed, inspect
from train.main import main
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks import resolve
from train.tasks.captions.predict import Question, encode_items, inputs, label_vectors
from train.tasks.captions.rows import CAPTION_PROCESSOR, CaptionProcessor, CaptionRows, TextFrame, until_end
from train.tasks.captions.task import CAPTIONS, encode_rows
from train.tasks.contrast.task import CONTRAST
from train.tasks.table import AnyRun, task_of
from train.text import control_tokens, tokenize
from train.training.gradient_cache import cached_gradient

SMALL = (
    "--task=contrast --preset=clip-tiny --model.layers=1 --model.width=32 --model.heads=2 --model.images.layers=1 "
    "--model.images.width=32 --model.images.heads=2 --model.images.input.size=16 --model.images.projection=16 "
    "--tokenizer.vocab=300 --batch.size=16 --steps=60 --log.every=20 --eval.every=30 --checkpoint.every=60"
).split()


def settings(*flags):
    return resolve.resolve([*SMALL, *flags], None, None)[0]


def small_drawings(monkeypatch, train=120, valid=20, withheld=20):
    generate = drawings.generate
    monkeypatch.setattr(drawings, "generate", lambda: generate(train, valid, withheld))


def test_a_tower_of_images_chooses_the_task():
    assert task_of(settings()) is CAPTIONS
    assert task_of(Run(task=settings().task, data=settings().data)) is CONTRAST


def test_batch():
    """A caption stands between its marks, and loses its end; an empty row has marks alone, and counts for nothing."""
    texts = ["a cat sat on the mat", "it ran", "a cat"]
    tokenizer = tokenize.load(AnyRun().tokenizer, texts * 20, Log(quiet=True))
    parts = drawings.generate(train=2, valid=0, withheld=1)
    rows = drawings.rows([*parts.train, *parts.withheld], "caption")
    images = ImageRows(rows, np.zeros(3, np.int32), ImageProcessor((16, 16)), 5)
    captions_of = CaptionRows(images, in_memory(tokenizer, texts), tokenizer, 6)
    assert captions_of.cut == pytest.approx(1 / 3)
    assert captions_of.tokens == 6 + 4 + 4 + 3 * 5
    batch = captions_of.batch(np.array([2, -1, 0]), np.random.default_rng(0))
    names = [[tokenizer.id_to_token(token) for token in row] for row in batch["tokens"].tolist()]
    assert names[0] == "[CLS] a cat [SEP] [PAD] [PAD]".split()
    assert names[1] == "[CLS] [SEP] [PAD] [PAD] [PAD] [PAD]".split()
    assert names[2] == "[CLS] a cat sat on [SEP]".split()
    assert batch["valid"].sum(1).tolist() == [4, 2, 6]
    assert (batch["weights"].tolist(), batch["withheld"].tolist()) == ([1, 0, 1], [1, 0, 0])
    assert captions_of.contents[:, 1].tolist() == [3, 4, 5], "apart from pictures"
    assert batch["contents"].tolist() == [captions_of.contents[2].tolist(), [-1, -1], captions_of.contents[0].tolist()]
    np.testing.assert_array_equal(
        batch["pixels"][0], images.batch(np.array([2]), np.random.default_rng(0))["pixels"][0]
    )


def model_of(*flags):
    """A model that divides on every mesh, and a batch with an empty row."""
    model = tfm.override(
        settings(*flags).model,
        {"heads": 8, "width": 16, "ffn": 16, "vocab": 60, "pad_vocab_to": 64, "length": 8}
        | {"images.heads": 8, "images.width": 16, "images.ffn": 16, "images.input.size": 8, "images.projection": 16}
        | {"init_std": 0.2},
    )
    rng = np.random.default_rng(0)
    valid = np.arange(8) < rng.integers(2, 9, (16, 1))
    batch = {
        "pixels": rng.normal(size=(16, 8, 8, 3)).astype(np.float32),
        "tokens": np.int32(rng.integers(5, 60, valid.shape) * valid),
        "valid": np.int32(valid),
        "weights": np.float32(np.arange(16) != 5),
        "withheld": np.zeros(16, np.float32),
        "contents": np.arange(32, dtype=np.int32).reshape(16, 2),
    }
    return model, batch


def loss_of_loop(vectors, weights, log_scale, bias):
    """The loss of Radford et al. 2021, figure 3, or of Zhai et al. 2023, algorithm 1, in float64."""
    rows = np.flatnonzero(weights)
    logits = np.array([[float(np.float64(vectors[i, 0]) @ vectors[j, 1]) for j in rows] for i in rows])
    logits = logits * np.exp(np.float64(log_scale)) + (0 if bias is None else bias)
    total = 0.0
    for i in range(len(rows)):
        if bias is None:
            total += (np.log(np.exp(logits[i]).sum()) + np.log(np.exp(logits[:, i]).sum())) / 2 - logits[i, i]
        else:
            total += sum(np.log1p(np.exp(logits[i, j] * (-1 if i == j else 1))) for j in range(len(rows)))
    return total


def undivided(params, model, batch):
    """Loss and gradients of a batch in one part."""

    @jax.jit
    def gradients(params, batch):
        return jax.value_and_grad(lambda params: CAPTIONS.loss(params, model, batch, None)["loss"])(params)

    return gradients(params, batch)


def by_parts(params, model, parts):
    """Loss and gradients of a batch in parts [parts, rows, ...]."""

    @jax.jit
    def gradients(params, parts):
        grads, sums, _ = cached_gradient(CAPTIONS.loss, model, lambda changing, _: changing, params, parts, None)
        return sums["loss"], grads

    return gradients(params, parts)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_parts_are_the_whole_batch(loss):
    """The loss is that of a loop; its gradients, of the scale and the bias too, do not depend on parts."""
    model, batch = model_of(f"--model.images.loss={loss}", "--batch.length=8")
    params = random_params(tfm.towers_specs(model))
    expected = undivided(params, model, batch)
    vectors = np.asarray(encode_rows(params, model, batch, None))
    assert float(expected[0]) == pytest.approx(
        loss_of_loop(vectors, batch["weights"], params.log_scale, params.bias), rel=1e-4
    )
    assert abs(float(expected[1].log_scale)) > 1e-3
    parts = {name: field.reshape(4, -1, *field.shape[1:]) for name, field in batch.items()}
    assert_near(by_parts(params, model, parts), expected, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
@pytest.mark.parametrize("name", [*MESHES])
def test_eight_devices_are_one(loss, name):
    flags = (f"--model.images.loss={loss}", "--batch.length=8")
    model, batch = model_of(*flags)
    specs = tfm.towers_specs(model)
    params = random_params(specs)
    mesh = tfm.make_mesh(*MESHES[name])
    spec = CAPTIONS.batch_spec(settings(*flags, "--model.images.input.size=8"))
    with jax.set_mesh(mesh):
        sharded = jax.device_put(params, tfm.shardings(specs, mesh))
        assert_near(
            by_parts(sharded, model, feed.to_devices(batch, spec, mesh, 2)), undivided(params, model, batch), 1e-4
        )


def write_drawings(folder, count=40):
    """Drawings with a table of captions, of which the first drawing has two."""
    folder.mkdir()
    lines = ["image\tcaption"]
    for n, drawing in enumerate(drawings.generate(train=count, valid=0, withheld=0).train):
        Image.fromarray(drawings.draw(drawing)).save(folder / f"{n}.png")
        lines.append(f"{n}.png\t{drawing.caption}")
    (folder / "all.tsv").write_text("\n".join([*lines, "0.png\ttwo shapes"]) + "\n")


@pytest.mark.slow
def test_a_run_on_a_table(home):
    """Trained in parts, resumed, evaluated, asked, encoded, looked at and planned."""
    write_drawings(home / "shapes")
    flags = (*SMALL, "--data=shapes/all.tsv", "--eval-data=shapes/all.tsv", "--batch.accumulate=2", "--out=run")
    err = run(*flags, "--stop-at=30")
    assert "41 with captions to train on, 41 to validate on" in err
    run("--resume", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    run(*flags[:-1], "--out=straight")
    assert json.loads((home / "straight/result.json").read_text())["eval_loss"] == pytest.approx(result["eval_loss"])
    assert result["eval_retrieval_1"] > 2 * result["eval_chance"] == pytest.approx(2 / 41)
    assert {"preprocessor_config.json", "tokenizer.json"} < {path.name for path in (home / "run").iterdir()}
    assert {"similarity.png", "positions.png", "loss.png"} <= {path.name for path in (home / "run/plots").iterdir()}

    code, out, err = call(evaluate.main, "--run=run", "--data=shapes/all.tsv")
    assert code == 0, err
    assert json.loads(out)["retrieval_5_back"] == pytest.approx(result["eval_retrieval_5_back"])
    (home / "templates.txt").write_text("a photo of {}\n\na drawing of {}\n")
    asked = ("--file=shapes/*.png", "--labels=a circle,a square,two shapes", "--template=templates.txt")
    code, out, err = call(predict.main, "--run=run", *asked, "--to=out.jsonl", "--batch=16")
    assert (code, out) == (0, ""), err
    lines = read_lines(home / "out.jsonl")
    assert len(lines) == 40
    texts = [f"a {kind} of a {shape}" for shape in ("circle", "square") for kind in ("photo", "drawing")]
    (home / "texts.txt").write_text("\n".join(texts) + "\n")
    for name, file in (("labels", "texts.txt"), ("pictures", "shapes")):
        code, out, err = call(embed.main, "--run=run", f"--file={file}", f"--to={name}.npy", "--query=a red circle")
        assert code == 0, err
    assert out.splitlines()[0].split("\t")[2].startswith("shapes/")
    pictures, circle, square = np.load("pictures.npy"), *np.load("labels.npy").reshape(2, 2, 16).mean(1)
    differences = pictures @ (circle / np.linalg.norm(circle) - square / np.linalg.norm(square))
    odds = [row["probabilities"]["a circle"] / row["probabilities"]["a square"] for row in lines]
    assert [row["file"] for row in lines] == [str(picture) for picture in sources.named_pictures("shapes")]
    assert np.corrcoef(np.log(odds), differences)[0, 1] > 0.999
    code, _, err = call(inspect.main, *flags[:-1], "--to=page.png", "--rows=4")
    assert code == 0, err
    code, out, err = call(plan.main, *SMALL, "--topology=h100:8", "--search=false")
    assert code == 0, err
    assert json.loads(out)["tokens_a_step"] == 16 * (16 + 5)


@pytest.mark.slow
def test_withheld_drawings_are_reported_apart(home, monkeypatch):
    small_drawings(monkeypatch)
    run(*SMALL, "--model.images.loss=sigmoid", "--task.candidates=10", "--steps=4", "--eval.every=4", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert {"eval_retrieval_1", "eval_retrieval_1_withheld", "eval_retrieval_1_back_withheld"} <= result.keys()
    assert (result["eval_chance"], result["eval_n"]) == (0.1, 40)


def table(folder, *lines):
    """A table of pictures and captions beside a picture."""
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    Image.new("RGB", (8, 8), "red").save(folder / "b.png")
    (folder / "t.tsv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("lines", "flags", "sentence"),
    [
        (
            ("image\tcaption", "a.png\t "),
            "",
            "t.tsv, line 2, column 'caption': the caption ' ' says nothing; write one",
        ),
        (("image\tname", "a.png\ta cat"), "", "t.tsv, line 2 has no column 'caption' (it has image, name)"),
        (("image\tcaption", "a.png\tx", "b.png\tx"), "", "every picture of --data=t.tsv has the caption 'x'; name a"),
        ((), "--data.field=image,caption", "data.field=image,caption must name the column of pictures alone; say"),
        ((), "--task.temperature=0.1", "task.temperature=0.1 is for texts alone; with model.images it is a parameter"),
        ((), "--task.kind=scores", "task.kind=scores is for texts alone; leave it out with model.images"),
        ((), "--task.augment.mixup=1", "captions do not mix; leave them out"),
        ((), "--data.label=kind", "--data.label=kind is no label of the built-in drawings"),
        ((), "--batch.size=1", "batch.size=1 leaves no other text to tell apart"),
    ],
)
def test_bad_input(home, lines, flags, sentence):
    data = ("--data=t.tsv",) if lines else ()
    if lines:
        table(home, *lines)
    code, out, err = call(main, *SMALL, *data, *flags.split(), "--out=bad")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1]
    assert not (home / "bad").exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            "--task=contrast --task.augment.flip=true",
            r"task.pixels and task.augment are for models of pictures and cap",
        ),
        ("--task=mlm --model.images=tower", r"model.images=tower reads pictures beside texts, and task=mlm does not"),
        (
            "--preset=siglip-tiny --batch.length=8",
            r"batch.length=8 must be model.length=16: model.images.reads_padding",
        ),
    ],
)
def test_bad_settings(flags, sentence):
    with pytest.raises(UserError, match=sentence):
        resolve.resolve(resolve.infer_task(flags.split(), None), None, None)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"text": "a"}, "--text=a is for models of texts; name pictures with --file"),
        ({"labels": "cat"}, "--labels=cat must name two labels or more"),
        ({"labels": ""}, "--labels= must name two labels or more"),
        ({"labels": "cat,dog, cat"}, "--labels names 'cat' twice; leave one of them out"),
        ({"template": "a photo"}, "--template=a photo has no {}, the place of the label"),
        ({}, "no file matches 'x*.png'"),
    ],
)
def test_bad_questions(values, sentence):
    options = {"text": "", "file": "x*.png", "labels": "cat,dog", "template": ""} | values
    with pytest.raises(UserError) as error:
        inputs(types.SimpleNamespace(**options), None)
    assert sentence in str(error.value)


@pytest.mark.slow
def test_templates_are_averaged():
    """The vector of a label is the mean of its texts, of length 1; pictures and texts keep their order."""
    model, _ = model_of("--batch.length=8")
    params = random_params(tfm.towers_specs(model))
    tokenizer = tokenize.load(AnyRun().tokenizer, ["a cat sat on the mat", "it ran"] * 20, Log(quiet=True))
    processor = types.SimpleNamespace(images=ImageProcessor((8, 8)), tokenizer=tokenizer)
    folder = types.SimpleNamespace(
        config=types.SimpleNamespace(model=model, batch=types.SimpleNamespace(length=8)), processor=processor
    )
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    pictures = [sources.PictureInArray("pixels", pixels, n) for n in range(2)]
    asked = Question([], ["cat", "mat"], ["a {}", "it ran on the {}"])
    texts = ["a cat", "it ran on the cat", "a mat", "it ran on the mat"]
    log = Log(quiet=True)
    items = encode_items(params, folder, [texts[0], pictures[0], *texts[1:], pictures[1]], log, 4)
    fields = TextFrame.of(tokenizer).fill(in_memory(tokenizer, texts), np.arange(4), 8)
    encode = [jax.jit(function, static_argnums=1) for function in (tfm.text_vectors, tfm.image_vectors)]
    expected = encode[0](params, model, fields["tokens"], fields["valid"] > 0)
    np.testing.assert_allclose(items[[0, 2, 3, 4]], expected, atol=1e-5)
    of_images = encode[1](params, model, processor.images.normalize(pixels[[0, 1, 1, 1]]))
    np.testing.assert_allclose(items[[1, 5]], of_images[:2], atol=1e-5)
    np.testing.assert_allclose(encode_items(params, folder, pictures, log, 4), of_images[:2], atol=1e-5)
    means = np.asarray(expected).reshape(2, 2, -1).mean(1)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(label_vectors(params, folder, asked, log, 4), means, atol=1e-5)


@pytest.mark.parity
def test_transformers_reads_an_exported_folder(tmp_path):
    """Its CLIP, tokenizer and image processor make the vectors that train.embed makes."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    run_settings = settings("--model.vocab=60", "--model.pad-vocab-to=4")
    texts = ["a cat sat on the mat", "it ran"]
    tokenizer = tokenize.load(AnyRun().tokenizer, texts * 20, Log(quiet=True))
    model = tfm.override(run_settings.model, {"vocab": tokenizer.get_vocab_size()})
    run_settings = dataclasses.replace(run_settings, model=model)
    params = random_params(tfm.towers_specs(model))
    processor = CaptionProcessor(ImageProcessor((16, 16), None, (0.4, 0.5, 0.6), (0.3, 0.2, 0.1)), tokenizer)
    tfm.to_hf(model, params, tmp_path, like=CAPTION_PROCESSOR.hf_fields(processor))
    CAPTION_PROCESSOR.save_hf(processor, CAPTIONS, run_settings, tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), np.uint8)
    pictures = [sources.PictureInArray("pixels", pixels, n) for n in range(2)]
    folder = types.SimpleNamespace(config=run_settings, processor=processor)
    texts.append("a cat [SEP] sat [SEP] on the mat")
    with control_tokens.reading("keep"):
        expected = encode_items(params, folder, [*texts, *pictures], Log(quiet=True))
    hf_model = transformers.CLIPModel.from_pretrained(tmp_path).eval()
    hf_processor = transformers.CLIPProcessor.from_pretrained(tmp_path)
    hf_inputs = hf_processor(text=texts, images=list(pixels), return_tensors="pt", padding=True)
    with torch.no_grad():
        outputs = hf_model(**hf_inputs)
    np.testing.assert_allclose(outputs.text_embeds.numpy(), expected[:3], atol=1e-5)
    np.testing.assert_allclose(outputs.image_embeds.numpy(), expected[3:], atol=1e-5)
    read = CAPTION_PROCESSOR.read_hf(tmp_path, model)
    assert read.images == processor.images
    assert read.tokenizer.to_str() == tokenizer.to_str()


def test_a_causal_tower_reads_a_text_as_far_as_its_first_end():
    """Texts behind one another lose what follows a token that is kept as the end; an encoder reads all of it."""
    model, _ = model_of("--batch.length=8")
    tokenizer = tokenize.load(AnyRun().tokenizer, ["a cat sat on the mat", "it ran"] * 20, Log(quiet=True))
    texts = ["[SEP]", "it ran", "", "a cat [SEP] sat [SEP] on", "the mat [SEP]"]
    with control_tokens.reading("keep"):
        tokens = in_memory(tokenizer, texts)
    read = [tokenizer.decode(ids.tolist()) for ids in until_end(tokens, tokenizer, model).split()]
    assert read == ["", "it ran", "", "a cat", "the mat"]
    assert until_end(tokens, tokenizer, tfm.override(model, {"head.causal": False})) is tokens
    text = in_memory(tokenizer, texts)
    assert until_end(text, tokenizer, model) is text


def test_the_end_of_a_text_is_that_of_config_json(tmp_path):
    """A token of config.json that ends no text here is refused, as 2 is where the largest token ends no text."""
    run_settings = settings("--model.vocab=60", "--model.pad-vocab-to=4")
    tokenizer = tokenize.load(AnyRun().tokenizer, ["a cat sat on the mat", "it ran"] * 20, Log(quiet=True))
    processor = CaptionProcessor(ImageProcessor((16, 16), None, (0.4, 0.5, 0.6), (0.3, 0.2, 0.1)), tokenizer)
    CAPTION_PROCESSOR.save_hf(processor, CAPTIONS, run_settings, tmp_path)
    last = TextFrame.of(tokenizer).suffix[-1]
    model = tfm.override(run_settings.model, {"vocab": tokenizer.get_vocab_size()})
    for end in (last, None):
        (tmp_path / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": end}}))
        assert CAPTION_PROCESSOR.read_hf(tmp_path, model).images == processor.images
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": last + 3}}))
    with pytest.raises(UserError, match=rf"text_config.eos_token_id={last + 3}, and the token .* is {last} \("):
        CAPTION_PROCESSOR.read_hf(tmp_path, model)
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": 2}}))
    largest = tokenizer.get_vocab_size() - 1
    with pytest.raises(
        UserError, match=f"eos_token_id=2, which stands for the largest token, {largest}, and the token"
    ):
        CAPTION_PROCESSOR.read_hf(tmp_path, model)


def test_a_model_of_texts_embeds_no_pictures(home):
    from train.lab.embedding import options

    Image.new("RGB", (8, 8)).save(home / "a.png")
    (home / "vectors.txt").write_text("cat 1 2\n")
    with pytest.raises(UserError, match=r"--encoder=bow:vectors.txt reads words; name a run of pictures"):
        options.open_encoder(options.TextEncoderOptions(encoder="bow:vectors.txt"), Log(quiet=True), pictures=True)

"""Folders of SegFormer in and out of --task=segment: trained, written, read, asked, and gone on from."""

import json
import warnings

import numpy as np
import pytest
from hf_models import stored
from PIL import Image
from small import call, run
from tasks.segment.test_task import write_masks

from train import evaluate, export, predict
from train.runs.hf_folder import HfFolder

SEGFORMER = (
    "--task=segment --preset=segformer-micro --data=squares --task.classes=ground,square --model.input.size=16 "
    "--model.width=8 --model.stages=1 --model.ffn=16 --model.stages.0.width=16 --model.stages.0.heads=2 "
    "--model.stages.0.ffn=32 --model.head.decoder_width=16 --batch.size=8 --log.every=20"
).split()


def processor_file(folder, **fields):
    """Writes the processor of a folder, with squares of 8 pixels."""
    values = {"image_processor_type": "SegformerImageProcessor", "size": {"height": 8, "width": 8}} | fields
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return folder


def segformer_folder(path, **fields):
    """A folder of random weights, of two classes and pictures of 8 x 8 pixels."""
    stored(path, "segformer", "SegformerForSemanticSegmentation")
    return processor_file(path, **fields)


@pytest.mark.parametrize(
    ("fields", "reduces", "shape"),
    [
        ({}, False, (8, 8)),
        ({"do_reduce_labels": True}, True, (8, 8)),
        ({"reduce_labels": True, "size": 16, "do_center_crop": True, "crop_size": 4}, True, (16, 16)),
        ({"do_reduce_labels": False, "reduce_labels": None, "size": {"height": 8, "width": 16}}, False, (8, 16)),
    ],
)
def test_the_processor_says_sizes_and_labels(fields, reduces, shape, tmp_path):
    """transformers reads pictures of any size with such a model, and crops none."""
    config = HfFolder(segformer_folder(tmp_path, **fields)).config
    assert config.task.name == "segment"
    assert (config.task.reduce_labels, config.task.ignore) == (reduces, 255)
    assert config.model.input.pixels == (*shape, 3)


@pytest.mark.parametrize(
    ("fields", "config_fields", "sentence"),
    [
        ({"do_reduce_labels": 1}, {}, "do_reduce_labels"),
        ({"size": {"shortest_edge": 8}}, {}, "size=8 leaves pictures of several shapes: name a height and a width"),
        ({"size": 8, "do_resize": False}, {}, "do_resize=false"),
        ({}, {"id2label": {"0": "a"}, "label2id": {"a": 0}}, "decode_head.classifier"),
        ({}, {"semantic_loss_ignore_index": "x"}, "semantic_loss_ignore_index"),
        ({}, {"decoder_hidden_size": 12}, "decoder_hidden_size=12, where 10 fits"),
    ],
)
def test_bad_folders(fields, config_fields, sentence, home):
    folder = segformer_folder(home / "folder", **fields)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config_fields))
    write_masks(home / "squares", 2)
    code, out, err = call(evaluate.main, "--run=folder", "--data=squares")
    assert (code, out) == (2, ""), err
    assert sentence in err.splitlines()[-1]


@pytest.mark.slow
def test_a_segformer_there_and_back(home):
    """The folder of a run says what the run says, with pictures of its size and of another one."""
    write_masks(home / "squares")
    run(*SEGFORMER, "--steps=60", "--eval.every=60", "--checkpoint.every=60", "--optim.rate=4e-3", "--out=run")
    result = json.loads((home / "run/result.json").read_text())
    assert result["eval_mean_iou"] > 0.7 > result["eval_majority_iou"]
    code, out, err = call(export.main, "--run=run", "--to=folder")
    assert code == 0, err
    assert max(json.loads(out).values()) < 1e-4
    fields, processor = (
        json.loads((home / "folder" / name).read_text()) for name in ("config.json", "preprocessor_config.json")
    )
    assert fields["architectures"] == ["SegformerForSemanticSegmentation"]
    assert (fields["id2label"], fields["decoder_hidden_size"]) == ({"0": "ground", "1": "square"}, 16)
    assert processor["image_processor_type"] == "SegformerImageProcessor"

    measured = [json.loads(call(evaluate.main, f"--run={folder}", "--data=squares")[1]) for folder in ("run", "folder")]
    assert measured[0]["mean_iou"] == pytest.approx(measured[1]["mean_iou"], abs=1e-4)
    for folder in ("run", "folder"):
        assert call(predict.main, f"--run={folder}", "--file=squares/images", f"--pictures={folder}-masks")[0] == 0
    for path in (home / "run-masks").iterdir():
        masks = [np.asarray(Image.open(home / f"{folder}-masks" / path.name)) for folder in ("run", "folder")]
        assert (masks[0] != masks[1]).mean() < 0.01

    task = SEGFORMER[0], *SEGFORMER[2:4]
    err = run(*task, "--init=folder", "--steps=2", "--batch.size=8", "--out=on")
    assert "fresh" not in err
    (home / "folder/preprocessor_config.json").write_text(json.dumps(processor | {"size": {"height": 32, "width": 32}}))
    larger = json.loads(call(evaluate.main, "--run=folder", "--data=squares")[1])
    assert 0.4 < larger["mean_iou"] != measured[1]["mean_iou"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Pvt", "Segformer"])
def test_classifiers_are_started_from(kind, home):
    """The decoder of all stages over encoders whose folders have none."""
    write_masks(home / "squares", 12)
    name = kind.lower()
    stored(home / name, name, f"{kind}ForImageClassification")
    processor_file(home / name, image_processor_type=f"{kind}ImageProcessor")
    flags = ["--model.head.decoder_width=16", "--steps=2", "--batch.size=8", "--eval.every=2", "--out=on"]
    err = run("--task=segment", "--data=squares", "--task.classes=ground,square", f"--init={name}", *flags)
    assert "what it lacks starts fresh: fusion, output" in err
    assert json.loads((home / "on/result.json").read_text())["eval_mean_iou"] > 0


@pytest.mark.parity
def test_transformers_reads_what_is_written(home):
    """Pixels and scores, by train.export --certify."""
    pytest.importorskip("transformers")
    write_masks(home / "squares")
    run(
        *SEGFORMER,
        "--steps=4",
        "--eval.every=4",
        "--task.reduce_labels=true",
        "--task.classes=square,hole",
        "--out=run",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code, out, err = call(export.main, "--run=run", "--to=folder", "--certify")
    assert code == 0, err
    differences = json.loads(out)
    assert differences["transformers: output"] < 1e-4
    assert differences["transformers: pixels"] < 1e-4
    assert json.loads((home / "folder/preprocessor_config.json").read_text())["do_reduce_labels"] is True

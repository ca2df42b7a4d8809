"""Models that compute values that are not finite are refused by every command, with the first layer named."""

import dataclasses
import functools
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hf_models import stored
from PIL import Image
from random_params import random_params
from runs.test_hf_folder import tokenizer
from small import call

import tfm
from train.evaluate import main as evaluate
from train.export import main as export
from train.generate import main as generate
from train.images import palette
from train.lab.embed import main as embed
from train.predict import main as predict
from train.runs.hf_folder import HfFolder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]

CONFIG = tfm.Config(layers=2, heads=2, width=16, ffn=32, vocab=103, length=16, dropout=0.0, classes=2)
GPT2 = {"residual": "pre", "input.token_types": None, "input.norm": False}
DAMAGES = {"nan": lambda kernel: kernel.at[0, 0].set(jnp.nan), "huge": lambda kernel: 3e38 * jnp.sign(kernel)}
ARCHITECTURES = {"bart": "BartForConditionalGeneration", "vit": "ViTForImageClassification"}
SPECS = {"lm": tfm.causal_lm_specs, "classify": tfm.classifier_specs}


def changed(params, change):
    """Parameters with the feed-forward kernels of the second layer changed."""

    def leaf_of(path, leaf):
        is_kernel = "feed_forward.up.kernel" in jax.tree_util.keystr(path, simple=True, separator=".")
        return leaf.at[1].set(change(leaf[1])) if is_kernel else leaf

    return jax.tree_util.tree_map_with_path(leaf_of, params)


def write_texts_and_pictures(folder):
    """Pairs of texts, and pictures of two classes."""
    (folder / "pairs.tsv").write_text("en\tde\n" + "".join(f"w{n} w{n + 1}\tw{n + 2}\n" for n in range(40)))
    pictures = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)
    np.savez(folder / "pictures.npz", x=pictures, y=np.array(["LABEL_0", "LABEL_1"])[np.arange(20) % 2])
    Image.fromarray(pictures[0]).save(folder / "picture.png")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folders of a language model and of a classifier: with a weight that is nan, and with weights that overflow."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text("w1 w2 w3 w4 w5 w6 w7 w8 w9\n" * 20)
    (folder / "rows.tsv").write_text("text\tlabel\n" + "w1 w2 w3\tLABEL_0\nw4 w5\tLABEL_1\n" * 8)
    write_texts_and_pictures(folder)
    for name, architecture in ARCHITECTURES.items():
        good = folder / f"{name}-good"
        stored(good, name, architecture)
        (good / "tokenizer.json").write_text(tokenizer().to_str())
        (good / palette.FILE).write_text(palette.to_text(palette.ImageProcessor((6, 4))))
        config, params = tfm.from_hf(good)
        for damage, change in DAMAGES.items():
            to = shutil.copytree(good, folder / f"{name}-{damage}")
            tfm.to_hf(config, changed(params, change), to, like=good)
    for name, specs in SPECS.items():
        config = tfm.override(CONFIG, GPT2 if name == "lm" else {"head.pool": "first"})
        params = random_params(specs(config))
        tfm.to_hf(config, params, folder / f"{name}-good", tokenizer())
        for damage, change in DAMAGES.items():
            tfm.to_hf(config, changed(params, change), folder / f"{name}-{damage}", tokenizer())
    return folder


COMMANDS = {
    "evaluate lm": (evaluate, "lm", ["--data=text.txt"]),
    "evaluate classify": (evaluate, "classify", ["--data=rows.tsv"]),
    "generate sample": (generate, "lm", ["--prompt=w1 w2", "--max-new-tokens=4"]),
    "generate greedy": (generate, "lm", ["--prompt=w1 w2", "--max-new-tokens=4", "--strategy=greedy", "--to=out.txt"]),
    "generate beam": (generate, "lm", ["--prompt=w1 w2", "--max-new-tokens=4", "--strategy=beam"]),
    "predict": (predict, "classify", ["--text=w1 w2"]),
    "export": (export, "lm", ["--to=copy"]),
    "embed": (embed, "classify", ["--file=text.txt", "--to=out.npy"]),
    "evaluate translate": (evaluate, "bart", ["--data=pairs.tsv"]),
    "generate translate": (generate, "bart", ["--prompt=w1 w2", "--max-new-tokens=4", "--to=out.txt"]),
    "export translate": (export, "bart", ["--to=copy"]),
    "evaluate image": (evaluate, "vit", ["--data=pictures.npz"]),
    "predict image": (predict, "vit", ["--file=picture.png"]),
    "export image": (export, "vit", ["--to=copy"]),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_commands_refuse(name, damage):
    command, folder, flags = COMMANDS[name]
    code, out, err = call(command, f"--run={folder}-{damage}", *flags)
    sentence = err.splitlines()[-1]
    assert code == 2, err
    assert sentence.startswith("error: ")
    assert "Traceback" not in err
    assert "layer 1" in sentence if damage == "huge" else "feed_forward.up.kernel" in sentence
    assert "finite" in sentence
    assert not Path("copy").exists()
    assert not [*Path().glob("out.*")]
    assert not out.strip("w12 \n"), "nothing but the prompt"


@pytest.mark.parametrize("name", COMMANDS)
def test_good_models_are_not_refused(name):
    command, folder, flags = COMMANDS[name]
    names = {"copy": f"{folder}-copy", "out.": f"{folder}-written."}
    flags = [functools.reduce(lambda flag, pair: flag.replace(*pair), names.items(), flag) for flag in flags]
    code, out, err = call(command, f"--run={folder}-good", *flags)
    assert code == 0, err
    if command in (evaluate, export):
        json.loads(out, parse_constant=pytest.fail)


def test_a_field_that_makes_nan(tmp_path):
    """The norm of a negative epsilon: its weights are finite, and what it computes is not."""
    folder = tmp_path / "copy"
    params = HfFolder("lm-good").load()
    config = dataclasses.replace(HfFolder("lm-good").config.model)
    tfm.to_hf(config, params, folder, tokenizer())
    fields = json.loads((folder / "config.json").read_text())
    name = next(name for name in fields if name.startswith("layer_norm"))
    (folder / "config.json").write_text(json.dumps(fields | {name: -1.0}))
    code, out, err = call(evaluate, f"--run={folder}", "--data=text.txt")
    assert (code, out) == (2, "")
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1

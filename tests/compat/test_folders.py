"""The old Flax classes load and save folders, of safetensors and of flax_model.msgpack."""

import json
import warnings

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compat.models import assert_close, opened, saved
from flax import serialization
from hf_models import inputs, weights

import tfm.compat
from tfm.hf.folder import from_hf


def test_save_and_load(tmp_path):
    model = opened(tmp_path / "first", "bert", "BertForSequenceClassification", num_labels=3)
    assert model.config.num_labels == 2 + 1
    model.save_pretrained(tmp_path / "again")
    again = tfm.compat.FlaxAutoModelForSequenceClassification.from_pretrained(tmp_path / "again")
    assert again.config.vocab_size == again.config.to_dict()["vocab_size"] == 103
    assert_close(again.params, model.params, atol=0)
    halved = jax.tree.map(lambda x: x / 2, model.params)
    model.save_pretrained(tmp_path / "halved", params=halved)
    assert_close(type(model).from_pretrained(tmp_path / "halved").params, halved, atol=0)
    assert_close(model.params, again.params, atol=0)


@pytest.mark.slow
def test_a_head_that_is_missing_starts_anew(tmp_path):
    saved(tmp_path, "bert", "BertForMaskedLM")
    with pytest.warns(
        UserWarning, match=r"has no such bert\.pooler\.dense\.weight.*classifier\.weight.*they start anew"
    ):
        model = tfm.compat.FlaxBertForSequenceClassification.from_pretrained(tmp_path, num_labels=4)
    assert model(inputs()["tokens"]).logits.shape == (2, 4)
    word = model.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    assert_close(word, weights("bert.embeddings.word_embeddings.weight", (103, 24)), atol=0)
    saved(tmp_path / "other", "bert", "BertForSequenceClassification")
    with pytest.raises(ValueError, match=r"classifier\.weight of shape \(2, 24\) instead of \(4, 24\)"):
        tfm.compat.FlaxBertForSequenceClassification.from_pretrained(tmp_path / "other", num_labels=4)
    with pytest.warns(UserWarning, match=r"instead of \(4, 24\), .*; the shapes did not match: they start anew"):
        tfm.compat.FlaxBertForSequenceClassification.from_pretrained(
            tmp_path / "other", num_labels=4, ignore_mismatched_sizes=True
        )


def test_what_cannot_be_loaded(tmp_path):
    saved(tmp_path, "bert", "BertForMaskedLM")
    with pytest.raises(TypeError, match="no argument 'banana'"):
        tfm.compat.FlaxBertForMaskedLM.from_pretrained(tmp_path, banana=1)
    with pytest.raises(ValueError, match="the model is of type bert, and FlaxRobertaForMaskedLM is of roberta"):
        tfm.compat.FlaxRobertaForMaskedLM.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="FlaxAutoModelForSeq2SeqLM has no model of type bert; it has t5"):
        tfm.compat.FlaxAutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="dtype=int32 must be float32, bfloat16 or float16"):
        tfm.compat.FlaxBertForMaskedLM.from_pretrained(tmp_path, dtype=jnp.int32)
    with pytest.raises(ValueError, match="does not exist"):
        tfm.compat.FlaxBertForMaskedLM.from_pretrained(tmp_path / "nowhere")


def msgpacked(folder, model, parts=1):
    """The folder with flax_model.msgpack instead of safetensors, in one file or in several."""
    (folder / "model.safetensors").unlink()
    flat = {"/".join(path): np.asarray(value) for path, value in flax.traverse_util.flatten_dict(model.params).items()}
    files = {f"flax_model-{n + 1:05}-of-{parts:05}.msgpack": dict(list(flat.items())[n::parts]) for n in range(parts)}
    if parts == 1:
        files = {"flax_model.msgpack": flat}
    for name, part in files.items():
        (folder / name).write_bytes(serialization.to_bytes(flax.traverse_util.unflatten_dict(part, sep="/")))
    if parts > 1:
        names = {key: name for name, part in files.items() for key in part}
        (folder / "flax_model.msgpack.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parts"), [("bert", 1), ("bert", 3), ("gpt2", 1), ("t5_gated", 1), ("bart", 2)])
def test_old_files(name, parts, tmp_path):
    model = opened(tmp_path, name)
    before = from_hf(tmp_path)[1]
    msgpacked(tmp_path, model, parts)
    assert_close(from_hf(tmp_path)[1], before, atol=1e-6)
    assert_close(type(model).from_pretrained(tmp_path, from_pt=False).params, model.params, atol=1e-6)


def test_damaged_old_files(tmp_path):
    model = opened(tmp_path, "bert")
    msgpacked(tmp_path, model)
    file = tmp_path / "flax_model.msgpack"
    intact = file.read_bytes()
    for data in (
        intact[:1000],
        intact[:-1],
        b"",
        b"\xc1",
        b"banana" * 50,
        intact + b"more",
        serialization.to_bytes({"a": {"b": 1}}),
    ):
        file.write_bytes(data)
        with pytest.raises(ValueError, match=r"flax_model\.msgpack .*; it is damaged: download it again"):
            from_hf(tmp_path)
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match="git lfs pull"):
        from_hf(tmp_path)
    file.write_bytes(serialization.to_bytes({"a": {"b": np.zeros(3)}}))
    with pytest.raises(ValueError, match="lacks"), warnings.catch_warnings():
        from_hf(tmp_path)
    file.unlink()
    index = tmp_path / "flax_model.msgpack.index.json"
    for text, message in (
        ("{}", "no weight_map"),
        ("[", "no weight_map"),
        ('{"weight_map": {"a": "b.msgpack"}}', r"b\.msgpack, which is missing"),
    ):
        index.write_text(text)
        with pytest.raises(ValueError, match=message):
            from_hf(tmp_path)


@pytest.mark.slow
def test_an_old_file_of_an_encoder_of_images(tmp_path):
    """Kernels of convolutions are [h, w, in, out] in Flax, and [out, in, h, w] in torch."""
    pixels = np.random.default_rng(0).normal(size=(2, 3, 6, 4)).astype(np.float32)
    model = opened(tmp_path / "torch", "vit", "ViTForImageClassification", num_labels=5)
    embeddings = model.params["vit"]["embeddings"]
    assert embeddings["cls_token"].shape == (1, 1, 24)
    assert embeddings["position_embeddings"].shape == (1, 7, 24)
    kernel = embeddings["patch_embeddings"]["projection"]["kernel"]
    torch_kernel = weights("vit.embeddings.patch_embeddings.projection.weight", (24, 3, 2, 2))
    np.testing.assert_array_equal(kernel, np.moveaxis(torch_kernel, (0, 1), (3, 2)))
    (tmp_path / "flax").mkdir()
    (tmp_path / "flax/config.json").write_text((tmp_path / "torch/config.json").read_text())
    (tmp_path / "flax/flax_model.msgpack").write_bytes(serialization.to_bytes(model.params))
    again = tfm.compat.FlaxAutoModelForImageClassification.from_pretrained(tmp_path / "flax", num_labels=5)
    assert_close(again.params, model.params, atol=0)
    assert_close(again(pixels).logits, model(pixels, params=model.params).logits)
    with pytest.raises(ValueError, match=r"pixel_values have shape \(3, 6, 4\); they must be images"):
        model(pixels[0])

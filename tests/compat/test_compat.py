"""The old Flax classes: with weights drawn by name, against themselves; under `parity`, against the classes of torch."""

import itertools
import json
import warnings

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import serialization
from flax.training import train_state
from flax.training.common_utils import onehot, shard, shard_prng_key
from hf_models import CASES, MODELS, inputs, torch_model, weights
from small import quick_compilation  # noqa: F401

import tfm.compat
from tfm.compat.forward import layout
from tfm.hf import FAMILIES
from tfm.hf.folder import from_hf
from tfm.hf.names import leaves
from tfm.hf.tensors import write_folder

COVERED = [case for case in CASES if hasattr(tfm.compat, f"Flax{case[1]}")]
WRITERS = ["gpt2", "t5", "bart", "marian", "pegasus"]


def saved(folder, name, architecture=None, **more):
    """A folder of one of the small models, written without torch."""
    kind, fields, architectures = MODELS[name]
    architecture = architecture or architectures[0]
    family = FAMILIES[kind]
    fields = {"model_type": kind, "architectures": [architecture], **fields, **more}
    head = family.heads[architecture]
    config = family.config(fields, head)
    shapes = {
        name: leaf.shape for leaf in leaves(head.specs(config), family.table(config, head)) for name in leaf.names
    }
    folder.mkdir(parents=True, exist_ok=True)
    entries = [
        (name, np.float32, shape, lambda name=name, shape=shape: weights(name, shape)) for name, shape in shapes.items()
    ]
    write_folder(folder, entries)
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def opened(folder, name, architecture=None, **more):
    """Such a model."""
    architecture = architecture or MODELS[name][2][0]
    return getattr(tfm.compat, f"Flax{architecture}").from_pretrained(saved(folder, name, architecture, **more))


def same(one, other, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=1e-5), one, other)


def paths(tree):
    return {".".join(path) for path in flax.traverse_util.flatten_dict(tree)}


# ---- what there is


def test_what_there_is():
    assert len(tfm.compat.__all__) == 45
    assert set(dir(tfm.compat)) >= {"FlaxBertForMaskedLM", "FlaxAutoModelForSeq2SeqLM", "FlaxMarianMTModel"}
    from tfm.compat import FlaxAutoModelForPreTraining, FlaxBertModel

    assert FlaxBertModel.__name__ == "FlaxBertModel"
    assert {name: each.__name__ for name, each in FlaxAutoModelForPreTraining.choices.items()}[
        "roberta"
    ] == "FlaxRobertaForMaskedLM"
    assert "gpt2" not in tfm.compat.FlaxAutoModel.choices
    with pytest.raises(AttributeError, match="no 'FlaxVisionModel'; it has FlaxAlbertForMaskedLM, .*FlaxT5ForCond"):
        _ = tfm.compat.FlaxVisionModel


# ---- parameters


def test_params_are_laid_out_as_they_were(tmp_path):
    """Names and shapes as `FlaxBertForMaskedLM(config).params` of transformers 4 printed them."""
    params = opened(tmp_path / "bert", "bert", "BertForMaskedLM").params
    assert set(params) == {"bert", "cls"}
    assert set(params["bert"]["encoder"]["layer"]) == {"0", "1", "2"}
    assert params["bert"]["embeddings"]["word_embeddings"]["embedding"].shape == (103, 24)
    assert params["bert"]["encoder"]["layer"]["0"]["intermediate"]["dense"]["kernel"].shape == (24, 40)
    assert set(params["cls"]["predictions"]["transform"]["LayerNorm"]) == {"scale", "bias"}
    assert set(opened(tmp_path / "bare", "bert", "BertModel").params) == {"embeddings", "encoder", "pooler"}
    gpt = opened(tmp_path / "gpt2", "gpt2").params["transformer"]
    assert gpt["h"]["0"]["attn"]["c_attn"]["kernel"].shape == (72, 24)  # the old Conv1D kept [out, in]
    t5 = opened(tmp_path / "t5", "t5_gated").params
    assert t5["encoder"]["block"]["0"]["layer"]["0"]["layer_norm"]["weight"].shape == (24,)
    assert t5["lm_head"]["kernel"].shape == (24, 103)
    bart = opened(tmp_path / "bart", "bart").params
    assert bart["model"]["encoder"]["embed_positions"]["embedding"].shape == (33, 24)
    assert bart["final_logits_bias"].shape == (1, 103)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "architecture"), COVERED)
def test_params_there_and_back(name, architecture, tmp_path):
    model = opened(tmp_path, name, architecture)
    place = layout(model._program)
    assert paths(model.params) == {".".join(path) for path in place.shapes}
    again = jax.jit(place.take)(flax.core.freeze(model.params))
    same(again, model._ours)


def test_params_are_checked(tmp_path):
    model = opened(tmp_path, "bert", "BertForSequenceClassification")
    with pytest.raises(ValueError, match=r"params lack (bert|classifier)\..*; give the whole tree"):
        model.params = {"classifier": {}}
    with pytest.raises(ValueError, match=r"params have more\.kernel, which this model has not"):
        model.params = {**model.params, "more": {"kernel": jnp.zeros(3)}}
    wrong = {**model.params, "classifier": {"kernel": jnp.zeros((24, 7)), "bias": jnp.zeros(2)}}
    with pytest.raises(ValueError, match=r"classifier\.kernel of shape \(24, 7\) instead of \(24, 2\)"):
        model(np.ones((1, 3), int), params=wrong)
    tokens = inputs()["tokens"]
    before = model(tokens).logits
    changed = jax.tree.map(lambda x: 0.5 * x, model.params)
    asked = model(tokens, params=flax.core.freeze(changed)).logits
    assert not np.allclose(before, asked)
    model.params = changed
    same(model(tokens).logits, asked)


@pytest.mark.slow
def test_a_new_model_and_one_without_params(tmp_path):
    fields = json.loads((saved(tmp_path, "roberta", "RobertaForMaskedLM") / "config.json").read_text())
    model = tfm.compat.FlaxAutoModelForMaskedLM.from_config(fields, seed=3)
    other = tfm.compat.FlaxRobertaForMaskedLM(model.config, seed=3)
    same(model.params, other.params)
    empty, params = tfm.compat.FlaxRobertaForMaskedLM.from_pretrained(tmp_path, _do_init=False)
    same(
        empty(inputs()["tokens"], params=params).logits,
        tfm.compat.FlaxRobertaForMaskedLM.from_pretrained(tmp_path)(inputs()["tokens"])[0],
    )
    bare = tfm.compat.FlaxRobertaForMaskedLM(fields, _do_init=False)
    with pytest.raises(ValueError, match="_do_init=False"):
        _ = bare.params
    assert paths(bare.init_weights(jax.random.PRNGKey(0), (1, 1))) == paths(params)


# ---- folders


def test_save_and_load(tmp_path):
    model = opened(tmp_path / "one", "bert", "BertForSequenceClassification", num_labels=3)
    assert model.config.num_labels == 2 + 1
    model.save_pretrained(tmp_path / "two")
    again = tfm.compat.FlaxAutoModelForSequenceClassification.from_pretrained(tmp_path / "two")
    assert again.config.vocab_size == again.config.to_dict()["vocab_size"] == 103
    same(again.params, model.params, atol=0)
    halved = jax.tree.map(lambda x: x / 2, model.params)
    model.save_pretrained(tmp_path / "three", params=halved)
    same(type(model).from_pretrained(tmp_path / "three").params, halved, atol=0)
    same(model.params, again.params, atol=0)


@pytest.mark.slow
def test_a_head_that_is_missing_starts_anew(tmp_path):
    saved(tmp_path, "bert", "BertForMaskedLM")
    with pytest.warns(
        UserWarning, match=r"has no such bert\.pooler\.dense\.weight.*classifier\.weight.*they start anew"
    ):
        model = tfm.compat.FlaxBertForSequenceClassification.from_pretrained(tmp_path, num_labels=4)
    assert model(inputs()["tokens"]).logits.shape == (2, 4)
    word = model.params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    same(word, weights("bert.embeddings.word_embeddings.weight", (103, 24)), atol=0)
    saved(tmp_path / "other", "bert", "BertForSequenceClassification")
    with pytest.raises(ValueError, match=r"classifier\.weight of shape \(2, 24\) instead of \(4, 24\)"):
        tfm.compat.FlaxBertForSequenceClassification.from_pretrained(tmp_path / "other", num_labels=4)
    with pytest.warns(UserWarning, match="start anew"):
        tfm.compat.FlaxBertForSequenceClassification.from_pretrained(
            tmp_path / "other", num_labels=4, ignore_mismatched_sizes=True
        )


def test_what_cannot_be_loaded(tmp_path):
    saved(tmp_path, "bert", "BertForMaskedLM")
    with pytest.raises(TypeError, match="no argument 'banana'"):
        tfm.compat.FlaxBertForMaskedLM.from_pretrained(tmp_path, banana=1)
    with pytest.raises(ValueError, match="the model is of type bert, and FlaxRobertaForMaskedLM is of roberta"):
        tfm.compat.FlaxRobertaForMaskedLM.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="FlaxAutoModelForCausalLM has no model of type bert; it has gpt2"):
        tfm.compat.FlaxAutoModelForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="float16 is not supported"):
        tfm.compat.FlaxBertForMaskedLM.from_pretrained(tmp_path, dtype=jnp.float16)
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
    same(from_hf(tmp_path)[1], before, atol=1e-6)
    same(type(model).from_pretrained(tmp_path, from_pt=False).params, model.params, atol=1e-6)


def test_damaged_old_files(tmp_path):
    model = opened(tmp_path, "bert")
    msgpacked(tmp_path, model)
    file = tmp_path / "flax_model.msgpack"
    whole = file.read_bytes()
    for data in (
        whole[:1000],
        whole[:-1],
        b"",
        b"\xc1",
        b"banana" * 50,
        whole + b"more",
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


# ---- forward passes


def test_outputs(tmp_path):
    model, given = opened(tmp_path, "bert", "BertModel"), inputs()
    out = model(given["tokens"], given["valid"], given["types"], output_hidden_states=True, output_attentions=True)
    assert list(out) == ["last_hidden_state", "pooler_output", "hidden_states", "attentions"]
    assert out[0] is out.last_hidden_state is out["last_hidden_state"] is out.to_tuple()[0]
    assert [states.shape for states in out.hidden_states] == [(2, 17, 24)] * 4
    same(out.hidden_states[-1], out.last_hidden_state)
    assert [each.shape for each in out.attentions] == [(2, 3, 17, 17)] * 3
    np.testing.assert_allclose(out.attentions[0].sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(out.attentions[0][1, :, :, 11:], 0)
    assert out.past_key_values is None
    assert len(out[:2]) == 2
    with pytest.raises(AttributeError, match="no 'logit'; it has last_hidden_state, pooler_output"):
        _ = out.logit
    plain = model(given["tokens"], given["valid"], given["types"], return_dict=False)
    assert isinstance(plain, tuple)
    same(plain, out.to_tuple()[:2])
    model.config.output_attentions = True
    assert "attentions" in jax.jit(lambda tokens: model(tokens))(given["tokens"])
    with pytest.raises(ValueError, match="head_mask is not supported"):
        model(given["tokens"], head_mask=np.ones(3))
    with pytest.raises(ValueError, match="30 tokens are more than the 29 positions"):
        model(np.ones((1, 30), int))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "electra", "albert"])
def test_padding_changes_nothing(name, tmp_path):
    model, given = opened(tmp_path, name), inputs()
    short = model(given["tokens"][1:, :11]).last_hidden_state
    padded = np.where(given["valid"], given["tokens"], 1)
    same(model(padded, given["valid"].astype(int)).last_hidden_state[1:, :11], short)


def test_roberta_counts_tokens(tmp_path):
    """Padding, which is token 1, has no position: on the left it changes nothing."""
    model, tokens = opened(tmp_path, "roberta"), inputs()["tokens"][:1, :9]
    left = np.concatenate([np.ones((1, 4), int), tokens], axis=1)
    same(model(left, left != 1).last_hidden_state[:, 4:], model(tokens).last_hidden_state)
    same(model(tokens, position_ids=np.arange(2, 11)[None]).last_hidden_state, model(tokens).last_hidden_state)


@pytest.mark.slow
def test_train_and_its_key(tmp_path):
    model, tokens = opened(tmp_path, "bert", "BertForTokenClassification"), inputs()["tokens"]
    with pytest.raises(ValueError, match="train=True needs dropout_rng"):
        model(tokens, train=True)
    one, two, other = (model(tokens, train=True, dropout_rng=jax.random.PRNGKey(n)).logits for n in (0, 0, 1))
    same(one, two)
    assert not np.allclose(one, other)
    same(model(tokens, dropout_rng=jax.random.PRNGKey(0)).logits, model(tokens).logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "bart"])
def test_gradients_reach_every_parameter(name, tmp_path):
    architecture = {"bert": "BertForPreTraining"}.get(name)
    model, given = opened(tmp_path, name, architecture), inputs(padded=False)
    target = {"decoder_input_ids": given["target"]} if name in ("t5", "bart") else {}

    def loss(params):
        out = model(given["tokens"], **target, params=params, train=True, dropout_rng=jax.random.PRNGKey(0))
        return sum(jnp.square(x).sum() for x in out.to_tuple() if not isinstance(x, tuple) and x.ndim < 4)

    grads = jax.jit(jax.grad(loss))(model.params)
    assert jax.tree.map(jnp.shape, grads) == jax.tree.map(jnp.shape, model.params)
    zero = {path for path, grad in flax.traverse_util.flatten_dict(grads, sep=".").items() if not np.any(grad)}
    assert zero == set()


@pytest.mark.slow
def test_bfloat16(tmp_path):
    saved(tmp_path, "bert", "BertModel")
    model = tfm.compat.FlaxBertModel.from_pretrained(tmp_path, dtype=jnp.bfloat16)
    assert model(inputs()["tokens"]).last_hidden_state.dtype == jnp.bfloat16
    assert model.params["pooler"]["dense"]["kernel"].dtype == jnp.float32


# ---- writing


def test_cached_is_full(tmp_path):
    model, tokens = opened(tmp_path, "gpt2"), inputs()["tokens"]
    valid = np.ones((2, 17), int)
    valid[1, :4] = 0
    positions = np.maximum(valid.cumsum(1) - 1, 0)
    full = model(tokens, valid, positions).logits
    cache = model.init_cache(2, 20)
    mask = np.ones((2, 20), int)
    mask[:, :17] = valid
    found = []
    for start, stop in ((0, 9), *((n, n + 1) for n in range(9, 17))):
        out = model(tokens[:, start:stop], mask, positions[:, start:stop], past_key_values=cache)
        cache = out.past_key_values
        found.append(out.logits)
    same(np.concatenate(found, axis=1)[valid > 0], full[valid > 0], atol=1e-4)
    with pytest.raises(ValueError, match="output_attentions is not supported together with past_key_values"):
        model(tokens[:, :1], past_key_values=cache, output_attentions=True)
    with pytest.raises(ValueError, match="do not fit into a cache of max_length=3"):
        model(tokens[:, :5], past_key_values=model.init_cache(2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "bart", "marian", "pegasus"])
def test_encode_and_decode(name, tmp_path):
    model, given = opened(tmp_path, name), inputs()
    full = model(given["tokens"], given["valid"], given["target"], output_hidden_states=True, output_attentions=True)
    read = model.encode(given["tokens"], given["valid"])
    same(read.last_hidden_state, full.encoder_last_hidden_state)
    at_once = model.decode(given["target"], read, given["valid"], output_attentions=True)
    same(at_once.logits, full.logits)
    same(at_once.cross_attentions, full.cross_attentions)
    assert len(full.decoder_hidden_states) == 4
    cache, found = model.init_cache(2, 9, read), []
    for n in range(9):
        out = model.decode(given["target"][:, n : n + 1], read, given["valid"], past_key_values=cache)
        cache = out.past_key_values
        found.append(out.logits)
    same(np.concatenate(found, axis=1), full.logits, atol=1e-4)
    if name == "t5":
        with pytest.raises(ValueError, match="decoder_input_ids are missing"):
            model(given["tokens"])
    else:
        shifted = np.concatenate([[[2], [2]], given["tokens"][:, :-1]], axis=1)
        same(model(given["tokens"]).logits, model(given["tokens"], decoder_input_ids=shifted).logits)


def greedy(model, tokens, steps):
    """The most probable next token, again and again, from full passes."""
    for _ in range(steps):
        tokens = np.concatenate([tokens, np.asarray(model(tokens).logits[:, -1:].argmax(-1))], axis=1)
    return tokens


@pytest.mark.slow
def test_generate(tmp_path):
    model, tokens = opened(tmp_path, "gpt2"), inputs()["tokens"][:, :6]
    expected = greedy(model, tokens, 8)
    out = model.generate(tokens, max_length=14, eos_token_id=None)
    assert out.sequences.tolist() == expected.tolist()
    assert model.generate(tokens, max_new_tokens=3).sequences.tolist() == expected[:, :9].tolist()
    assert model.generate(tokens, num_beams=1).sequences.shape == (2, 20)
    end = int(expected[0, 8])
    first = expected[0].tolist().index(end, 6)
    stopped = model.generate(tokens, max_length=14, eos_token_id=end, pad_token_id=99).sequences[0].tolist()
    assert stopped == [*expected[0, : first + 1].tolist(), *[99] * (13 - first)]
    left = np.concatenate([np.zeros((2, 3), int), tokens], axis=1)
    padded = model.generate(left, attention_mask=(np.arange(9) >= 3)[None].repeat(2, 0), max_length=17)
    assert padded.sequences[:, 3:].tolist() == expected.tolist()
    assert jax.jit(lambda tokens, params: model.generate(tokens, params=params, max_length=14).sequences)(
        tokens, model.params
    ).tolist() == (expected.tolist())
    assert (
        model.generate(tokens, max_length=14, suppress_tokens=[int(expected[0, 6])]).sequences[0, 6] != expected[0, 6]
    )


@pytest.mark.slow
def test_sampling(tmp_path):
    model, tokens = opened(tmp_path, "gpt2"), np.repeat(inputs()["tokens"][:1, :6], 3, axis=0)
    one, two, other = (
        model.generate(tokens, do_sample=True, max_length=16, temperature=3.0, prng_key=jax.random.PRNGKey(n))
        for n in (0, 0, 1)
    )
    assert one.sequences.tolist() == two.sequences.tolist() != other.sequences.tolist()
    assert len(set(map(tuple, one.sequences.tolist()))) == 3
    assert (
        model.generate(tokens, do_sample=True, top_k=1).sequences.tolist() == model.generate(tokens).sequences.tolist()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "beams"), [("t5", 1), ("bart", 3)])
def test_rules(name, beams, tmp_path):
    model, tokens = opened(tmp_path, name), inputs(padded=False)["tokens"]

    def make(**more):
        usual = {"max_length": 15, "num_beams": beams, "eos_token_id": 40, "pad_token_id": 1}
        return np.asarray(model.generate(tokens, **usual, **more).sequences)

    found = make(forced_bos_token_id=77, forced_eos_token_id=40, min_length=9)
    assert (found[:, 0] == model.config.decoder_start_token_id).all()
    assert (found[:, 1] == 77).all()
    assert not (found[:, :9] == 40).any()
    assert all(40 in row for row in found.tolist())
    found = make(no_repeat_ngram_size=2, min_length=15, bad_words_ids=[[n] for n in range(50)])
    assert (found[:, 1:] >= 50).all()
    for row in found.tolist():
        pairs = list(itertools.pairwise(row))
        assert len(set(pairs)) == len(pairs)


@pytest.mark.slow
def test_beams_have_scores_and_settings_have_sources(tmp_path):
    saved(tmp_path, "bart", num_beams=3, max_length=9)
    (tmp_path / "generation_config.json").write_text(json.dumps({"max_length": 11, "repetition_penalty": 1.2}))
    model = tfm.compat.FlaxAutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    tokens = inputs()["tokens"]
    with pytest.warns(UserWarning, match=r"repetition_penalty=1\.2, which is not supported and is ignored"):
        out = model.generate(tokens, num_return_sequences=2)
    assert out.sequences.shape == (4, 11)
    assert (out.scores[::2] >= out.scores[1::2]).all()
    model.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again/generation_config.json").read_text())["max_length"] == 11


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"banana": 1}, "generate has no argument banana"),
        ({"repetition_penalty": 2.0}, "repetition_penalty=2.0 is not supported"),
        ({"max_length": 3, "max_new_tokens": 3}, "both given"),
        ({"max_length": 6}, "leaves no room after a prompt of 6 tokens"),
        ({"max_length": 41}, "more than the 40 positions"),
        ({"num_beams": 2, "do_sample": True}, "not supported together"),
        ({"num_return_sequences": 2}, "at most num_beams=1"),
        ({"num_beams": 2, "early_stopping": "soon"}, "early_stopping=soon must be True, False or 'never'"),
        ({"bad_words_ids": [[1, 2]]}, "a phrase of several tokens"),
        ({"do_sample": True, "top_p": 2.0}, "top_p=2.0 must be above 0"),
    ],
)
def test_what_cannot_be_generated(asked, message, tmp_path):
    model = opened(tmp_path, "gpt2")
    with pytest.raises(ValueError, match=message):
        model.generate(inputs()["tokens"][:, :6], **asked)


# ---- scripts of before: only their import line has changed


@pytest.mark.slow
def test_script_fine_tuning_on_all_devices(tmp_path):
    """run_flax_glue.py of transformers 4: pmap, optax, TrainState, decay by name."""
    saved(tmp_path, "bert", "BertForMaskedLM")
    from tfm.compat import FlaxAutoModelForSequenceClassification  # was: from transformers import ...

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FlaxAutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3, hidden_dropout_prob=0.02)

    def decay_mask_fn(params):
        flat = flax.traverse_util.flatten_dict(params)
        return flax.traverse_util.unflatten_dict(
            {path: path[-1] != "bias" and path[-2:] != ("LayerNorm", "scale") for path in flat}
        )

    tx = optax.adamw(5e-3, weight_decay=0.01, mask=decay_mask_fn)
    state = train_state.TrainState.create(apply_fn=model.__call__, params=model.params, tx=tx)

    def train_step(state, batch, dropout_rng):
        dropout_rng, new_dropout_rng = jax.random.split(dropout_rng)
        targets = batch.pop("labels")

        def loss_fn(params):
            logits = state.apply_fn(**batch, params=params, dropout_rng=dropout_rng, train=True)[0]
            return optax.softmax_cross_entropy(logits, onehot(targets, num_classes=3)).mean()

        loss, grad = jax.value_and_grad(loss_fn)(state.params)
        new_state = state.apply_gradients(grads=jax.lax.pmean(grad, "batch"))
        return new_state, jax.lax.pmean({"loss": loss}, axis_name="batch"), new_dropout_rng

    p_train_step = jax.pmap(train_step, axis_name="batch", donate_argnums=(0,))
    devices = jax.device_count()
    rngs = jax.random.split(jax.random.PRNGKey(0), devices)
    state, losses, rng = flax.jax_utils.replicate(state), [], np.random.default_rng(0)
    labels = rng.integers(0, 3, devices * 2)
    tokens = rng.integers(3, 103, (devices * 2, 8))
    tokens[:, 0] = 10 + labels
    batch = {
        "input_ids": tokens,
        "attention_mask": np.ones_like(tokens),
        "token_type_ids": np.zeros_like(tokens),
        "labels": labels,
    }
    for _ in range(40):
        state, metrics, rngs = p_train_step(state, shard(batch), rngs)
        losses.append(float(metrics["loss"][0]))
    assert losses[-1] < losses[0] / 2
    params = jax.device_get(jax.tree_util.tree_map(lambda x: x[0], state.params))
    model.save_pretrained(tmp_path / "tuned", params=params)
    tuned = FlaxAutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned")
    assert tuned.config.hidden_dropout_prob == 0.02
    same(tuned(tokens).logits, model(tokens, params=params).logits)
    assert (tuned(tokens).logits.argmax(-1) == labels).mean() > 0.9, losses


def test_script_masked_words(tmp_path):
    saved(tmp_path, "roberta", "RobertaForMaskedLM")
    from tfm.compat import FlaxRobertaForMaskedLM  # was: from transformers import FlaxRobertaForMaskedLM

    model = FlaxRobertaForMaskedLM.from_pretrained(tmp_path)
    batch = {"input_ids": inputs()["tokens"], "attention_mask": inputs()["valid"].astype(int)}
    logits = model(**batch).logits
    assert logits.shape == (2, 17, model.config.vocab_size)
    assert jax.lax.top_k(logits[0, 4], 5)[1].shape == (5,)


@pytest.mark.slow
def test_script_summaries_on_all_devices(tmp_path):
    """run_summarization_flax.py of transformers 4: generate under pmap."""
    saved(tmp_path, "bart")
    from tfm.compat import (
        FlaxBartForConditionalGeneration,  # was: from transformers import FlaxBartForConditionalGeneration
    )

    model = FlaxBartForConditionalGeneration.from_pretrained(tmp_path)
    gen_kwargs = {"max_length": 12, "num_beams": 3}

    def generate_step(params, batch):
        model.params = params
        output_ids = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **gen_kwargs)
        return output_ids.sequences

    params = model.params
    alone = model.generate(inputs()["tokens"], attention_mask=inputs()["valid"], **gen_kwargs).sequences
    batch = {
        "input_ids": np.tile(inputs()["tokens"], (jax.device_count(), 1)),
        "attention_mask": np.tile(inputs()["valid"], (jax.device_count(), 1)),
    }
    p_generate_step = jax.pmap(generate_step, "batch")
    generated = p_generate_step(flax.jax_utils.replicate(params), shard(batch))
    assert generated.shape == (jax.device_count(), 2, 12)
    for each in np.asarray(generated):
        assert each.tolist() == alone.tolist()


@pytest.mark.slow
def test_script_sampling(tmp_path):
    saved(tmp_path, "gpt2")
    from tfm.compat import FlaxGPT2LMHeadModel  # was: from transformers import FlaxGPT2LMHeadModel

    model = FlaxGPT2LMHeadModel.from_pretrained(tmp_path)
    keys = shard_prng_key(jax.random.PRNGKey(0))[0]
    out = model.generate(
        inputs()["tokens"][:1, :5], do_sample=True, max_length=12, top_k=30, top_p=0.9, temperature=0.8, prng_key=keys
    )
    assert out.sequences.shape == (1, 12)
    assert out["sequences"][0, :5].tolist() == inputs()["tokens"][0, :5].tolist()


# ---- against torch


def theirs(model):
    """What torch computes: every output, with hidden states and attention weights."""
    import torch

    given = {name: torch.from_numpy(values) for name, values in inputs().items()}
    arguments = {"attention_mask": given["valid"].long()}
    if model.config.is_encoder_decoder:
        arguments |= {"decoder_input_ids": given["target"]}
    elif getattr(model.config, "type_vocab_size", 0) > 1:
        arguments |= {"token_type_ids": given["types"]}
    with torch.no_grad():
        found = model(given["tokens"], **arguments, output_hidden_states=True, output_attentions=True)
    found = {name: values for name, values in found.items() if name != "past_key_values" and len(values)}
    return {name: values.numpy() for name, values in arguments.items()}, found


@pytest.mark.parity
@pytest.mark.parametrize(("name", "architecture"), COVERED)
def test_outputs_equal_torch(name, architecture, tmp_path):
    model = torch_model(name, architecture)
    model.save_pretrained(tmp_path)
    old = getattr(tfm.compat, f"Flax{architecture}").from_pretrained(tmp_path)
    arguments, expected = theirs(model)
    valid = inputs()["valid"]
    for more in ({}, {"params": old.params}):
        found = old(inputs()["tokens"], **arguments, output_hidden_states=True, output_attentions=True, **more)
        assert set(found) == set(expected)
        for each, values in expected.items():
            pairs = zip(found[each], values, strict=True) if isinstance(values, tuple) else [(found[each], values)]
            for mine, their in pairs:
                mine, their = np.asarray(mine), their.numpy()
                assert mine.shape == their.shape
                if each in ("attentions", "encoder_attentions"):
                    mine, their = np.moveaxis(mine, 1, 2), np.moveaxis(their, 1, 2)
                if mine.shape[:2] == valid.shape:
                    mine, their = mine[valid], their[valid]
                np.testing.assert_allclose(mine, their, atol=1e-4, rtol=1e-4, err_msg=each)


@pytest.mark.parity
@pytest.mark.parametrize("name", WRITERS)
def test_generate_equals_torch(name, tmp_path):
    """Greedily, and with beams whose scores are those of transformers; rules included."""
    import torch

    model = torch_model(name, MODELS[name][2][0])
    model.save_pretrained(tmp_path)
    old = getattr(tfm.compat, f"Flax{MODELS[name][2][0]}").from_pretrained(tmp_path)
    tokens, valid = inputs(padded=False)["tokens"][:, :8], np.ones((2, 8), int)
    valid[1, slice(3) if name == "gpt2" else slice(5, 8)] = 0
    usual = {"pad_token_id": 1, "eos_token_id": 40, "max_length": 18}
    for asked in (
        {},
        {"min_length": 17, "suppress_tokens": [5, 60, 33, 21]},
        {"num_beams": 4, "no_repeat_ngram_size": 2},
        {"num_beams": 3, "early_stopping": True, "length_penalty": 2.0, "forced_eos_token_id": 40},
        {
            "num_beams": 3,
            "early_stopping": "never",
            "length_penalty": 0.5,
            "bad_words_ids": [[n] for n in (60, 54, 77)],
        },
    ):
        arguments = {
            "attention_mask": torch.from_numpy(valid),
            "use_cache": False,
            "return_dict_in_generate": True,
            "output_scores": True,
        }
        with torch.no_grad():
            expected = model.generate(torch.from_numpy(tokens), **arguments, **usual, **asked)
        found = old.generate(tokens, attention_mask=valid, **usual, **asked)
        length = expected.sequences.shape[1]
        assert found.sequences[:, :length].tolist() == expected.sequences.tolist(), asked
        assert (np.asarray(found.sequences[:, length:]) == 1).all()
        if "num_beams" in asked:
            np.testing.assert_allclose(found.scores, expected.sequences_scores.numpy(), atol=1e-4, rtol=1e-4)


@pytest.mark.parity
@pytest.mark.parametrize(
    ("name", "architecture"),
    [("bert", "BertForMaskedLM"), ("gpt2", "GPT2LMHeadModel"), ("bart", "BartForConditionalGeneration")],
)
def test_old_files_equal_torch(name, architecture, tmp_path):
    """flax_model.msgpack as transformers 4 converted it: each name of torch split at the dots, its last word and its matrix turned."""
    model = torch_model(name, architecture)
    model.config.save_pretrained(tmp_path)
    tables = ("embed", "shared", "wte", "wpe")
    tree = {}
    tensors = {each: values.detach().numpy() for each, values in model.named_parameters()}
    tensors |= {each: values.numpy() for each, values in model.named_buffers() if each == "final_logits_bias"}
    for each, values in tensors.items():
        *parts, last = each.split(".")
        if last == "weight" and values.ndim == 1:
            last = "scale"
        elif last == "weight" and any(table in parts[-1] for table in tables):
            last = "embedding"
        elif last == "weight":
            last, values = "kernel", values.T
        tree[(*parts, last)] = values
    (tmp_path / "flax_model.msgpack").write_bytes(serialization.to_bytes(flax.traverse_util.unflatten_dict(tree)))
    old = getattr(tfm.compat, f"Flax{architecture}").from_pretrained(tmp_path)
    assert paths(old.params) == {".".join(path) for path in tree}
    arguments, expected = theirs(model)
    found = old(inputs()["tokens"], **arguments).logits
    valid = inputs()["valid"] if found.shape[1] == 17 else slice(None)
    np.testing.assert_allclose(np.asarray(found)[valid], expected["logits"].numpy()[valid], atol=1e-4, rtol=1e-4)


@pytest.mark.parity
def test_a_configuration_of_transformers(tmp_path):
    """AutoConfig still gives one; so do scripts that train from nothing."""
    import transformers

    saved(tmp_path, "bert", "BertForMaskedLM")
    config = transformers.AutoConfig.from_pretrained(tmp_path, num_labels=4, hidden_dropout_prob=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tfm.compat.FlaxAutoModelForSequenceClassification.from_pretrained(tmp_path, config=config)
    assert model._program.config.dropout == 0.2
    assert model(inputs()["tokens"]).logits.shape == (2, 4)
    model.save_pretrained(tmp_path / "again")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again").eval()
    import torch

    with torch.no_grad():
        expected = again(torch.from_numpy(inputs()["tokens"])).logits.numpy()
    same(model(inputs()["tokens"]).logits, expected, atol=1e-4)

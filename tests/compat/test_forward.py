"""Calls of the old Flax classes, with weights drawn by name, against themselves."""

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compat.models import assert_close, opened, saved
from hf_models import inputs

import tfm.compat


@pytest.mark.slow
def test_outputs(tmp_path):
    model, arrays = opened(tmp_path, "bert", "BertModel"), inputs()
    tokens, valid, types = arrays["tokens"], arrays["valid"], arrays["types"]
    out = model(tokens, valid, types, output_hidden_states=True, output_attentions=True)
    assert list(out) == ["last_hidden_state", "pooler_output", "hidden_states", "attentions"]
    assert out[0] is out.last_hidden_state is out["last_hidden_state"] is out.to_tuple()[0]
    assert [states.shape for states in out.hidden_states] == [(2, 17, 24)] * 4
    assert_close(out.hidden_states[-1], out.last_hidden_state)
    assert [weights.shape for weights in out.attentions] == [(2, 3, 17, 17)] * 3
    np.testing.assert_allclose(out.attentions[0].sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(out.attentions[0][1, :, :, 11:], 0)
    assert out.past_key_values is None
    assert len(out[:2]) == 2
    with pytest.raises(AttributeError, match="no 'logit'; it has last_hidden_state, pooler_output"):
        _ = out.logit
    plain = model(tokens, valid, types, return_dict=False)
    assert isinstance(plain, tuple)
    assert_close(plain, out.to_tuple()[:2])
    model.config.output_attentions = True
    assert "attentions" in jax.jit(lambda tokens: model(tokens))(tokens)
    with pytest.raises(ValueError, match=r"head_mask has shape \(4,\); it must be .*\(3, 3\)"):
        model(tokens, head_mask=np.ones(4))
    with pytest.raises(ValueError, match="encoder_hidden_states is not supported"):
        model(tokens, encoder_hidden_states=np.ones((2, 17, 24)))
    with pytest.raises(ValueError, match="30 tokens are more than the 29 positions"):
        model(np.ones((1, 30), int))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "electra", "albert"])
def test_padding_changes_nothing(name, tmp_path):
    model, arrays = opened(tmp_path, name), inputs()
    short = model(arrays["tokens"][1:, :11]).last_hidden_state
    padded = np.where(arrays["valid"], arrays["tokens"], 1)
    assert_close(model(padded, arrays["valid"].astype(int)).last_hidden_state[1:, :11], short)


@pytest.mark.slow
def test_roberta_counts_tokens(tmp_path):
    """Padding, which is token 1, has no position: on the left it changes nothing."""
    model, tokens = opened(tmp_path, "roberta"), inputs()["tokens"][:1, :9]
    left = np.concatenate([np.ones((1, 4), int), tokens], axis=1)
    assert_close(model(left, left != 1).last_hidden_state[:, 4:], model(tokens).last_hidden_state)
    assert_close(model(tokens, position_ids=np.arange(2, 11)[None]).last_hidden_state, model(tokens).last_hidden_state)


@pytest.mark.slow
def test_train_and_its_key(tmp_path):
    model, tokens = opened(tmp_path, "bert", "BertForTokenClassification"), inputs()["tokens"]
    with pytest.raises(ValueError, match="train=True needs dropout_rng"):
        model(tokens, train=True)
    first, again, different = (
        model(tokens, train=True, dropout_rng=jax.random.PRNGKey(seed)).logits for seed in (0, 0, 1)
    )
    assert_close(first, again)
    assert not np.allclose(first, different)
    assert_close(model(tokens, dropout_rng=jax.random.PRNGKey(0)).logits, model(tokens).logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "bart"])
def test_gradients_reach_every_parameter(name, tmp_path):
    architecture = {"bert": "BertForPreTraining"}.get(name)
    model, arrays = opened(tmp_path, name, architecture), inputs(padded=False)
    target = {"decoder_input_ids": arrays["target"]} if name in ("t5", "bart") else {}

    def loss(params):
        out = model(arrays["tokens"], **target, params=params, train=True, dropout_rng=jax.random.PRNGKey(0))
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


@pytest.mark.slow
def test_cached_is_full(tmp_path):
    model, tokens = opened(tmp_path, "gpt2"), inputs()["tokens"]
    valid = np.ones((2, 17), int)
    valid[1, :4] = 0
    positions = np.maximum(valid.cumsum(1) - 1, 0)
    full = model(tokens, valid, positions).logits
    cache = model.init_cache(2, 20)
    mask = np.ones((2, 20), int)
    mask[:, :17] = valid
    logits = []
    for start, stop in ((0, 9), *((n, n + 1) for n in range(9, 17))):
        out = model(tokens[:, start:stop], mask, positions[:, start:stop], past_key_values=cache)
        cache = out.past_key_values
        logits.append(out.logits)
    assert_close(np.concatenate(logits, axis=1)[valid > 0], full[valid > 0], atol=1e-4)
    with pytest.raises(ValueError, match="output_attentions is not supported together with past_key_values"):
        model(tokens[:, :1], past_key_values=cache, output_attentions=True)
    with pytest.raises(ValueError, match="do not fit into a cache of max_length=3"):
        model(tokens[:, :5], past_key_values=model.init_cache(2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "bart", "marian", "pegasus"])
def test_encode_and_decode(name, tmp_path):
    model, arrays = opened(tmp_path, name), inputs()
    tokens, valid, target = arrays["tokens"], arrays["valid"], arrays["target"]
    full = model(tokens, valid, target, output_hidden_states=True, output_attentions=True)
    read = model.encode(tokens, valid)
    assert_close(read.last_hidden_state, full.encoder_last_hidden_state)
    at_once = model.decode(target, read, valid, output_attentions=True)
    assert_close(at_once.logits, full.logits)
    assert_close(at_once.cross_attentions, full.cross_attentions)
    assert len(full.decoder_hidden_states) == 4
    cache, logits = model.init_cache(2, 9, read), []
    for n in range(9):
        out = model.decode(target[:, n : n + 1], read, valid, past_key_values=cache)
        cache = out.past_key_values
        logits.append(out.logits)
    assert_close(np.concatenate(logits, axis=1), full.logits, atol=1e-4)
    if name == "t5":
        with pytest.raises(ValueError, match="decoder_input_ids are missing"):
            model(tokens)
    else:
        shifted = np.concatenate([[[2], [2]], tokens[:, :-1]], axis=1)
        assert_close(model(tokens).logits, model(tokens, decoder_input_ids=shifted).logits)

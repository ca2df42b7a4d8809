"""Scripts for transformers 4: only their import line has changed."""

import warnings

import flax
import jax
import numpy as np
import optax
import pytest
from compat.models import assert_close, saved
from flax.training import train_state
from flax.training.common_utils import onehot, shard, shard_prng_key
from hf_models import inputs


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
    assert_close(tuned(tokens).logits, model(tokens, params=params).logits)
    assert (tuned(tokens).logits.argmax(-1) == labels).mean() > 0.9, losses


@pytest.mark.slow
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
    for sequences in np.asarray(generated):
        assert sequences.tolist() == alone.tolist()


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

"""Longformer and BigBird on long texts, and the random blocks of BigBird in training, against transformers."""

import jax.numpy as jnp
import numpy as np
import pytest
from hf_models import BIG_BIRD, LONGFORMER, MODELS, inputs, results, torch_model, torch_results

import tfm
from tfm import from_hf
from tfm.catalogue.patterns.bigbird import random_blocks

pytestmark = pytest.mark.parity
LENGTH = 900
LONG = {"max_position_embeddings": 1030}


@pytest.mark.parametrize(
    ("model_type", "architecture", "fields"),
    [
        (
            "longformer",
            "LongformerForSequenceClassification",
            LONGFORMER | LONG | dict(attention_window=[64, 128, 128]),
        ),
        ("big_bird", "BigBirdForMaskedLM", BIG_BIRD | LONG | dict(block_size=64, num_random_blocks=3)),
    ],
)
def test_texts_that_are_read_in_blocks(model_type, architecture, fields, tmp_path, monkeypatch):
    """The last row has padding; so many scores are computed block by block."""
    import torch

    monkeypatch.setitem(MODELS, "long", (model_type, fields, []))
    model = torch_model("long", architecture)
    model.save_pretrained(tmp_path)
    config, params = from_hf(tmp_path)
    tokens = np.random.default_rng(0).integers(3, 103, (2, LENGTH))
    valid = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 150]])
    with torch.no_grad():
        outputs = model(torch.as_tensor(tokens), torch.as_tensor(valid).long(), output_hidden_states=True)
    expected = outputs.hidden_states[-1][:, :LENGTH].numpy()
    states = tfm.encoder(params.encoder, config, jnp.asarray(tokens), tfm.padding(jnp.asarray(valid)))
    np.testing.assert_allclose(np.asarray(states)[valid], expected[valid], atol=1e-4, rtol=1e-4)


def test_random_blocks_of_training(tmp_path, monkeypatch):
    """The blocks that tfm draws, in transformers: it draws others, for each layer and head."""
    from transformers.models.big_bird import modeling_big_bird

    fields = BIG_BIRD | dict(max_position_embeddings=18, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    monkeypatch.setitem(MODELS, "trained", ("big_bird", fields, []))
    model = torch_model("trained", "BigBirdForMaskedLM").train()
    model.save_pretrained(tmp_path)
    config, params = from_hf(tmp_path)
    drawn = tfm.override(config, {"mixer.pattern.draw": "seeded", "mixer.pattern.seed": 5})
    table = np.array(random_blocks(drawn.mixer.pattern, config.length, False))
    assert table.shape == (9, 1)
    assert (table >= 0).all()

    def plan(self, *, num_heads, **sizes):
        return [table[1:-1]] * num_heads

    monkeypatch.setattr(modeling_big_bird.BigBirdBlockSparseAttention, "_bigbird_block_rand_mask_with_head", plan)
    expected, valid = torch_results(model)["hidden"], inputs()["valid"]
    states = np.asarray(results(drawn, params)["hidden"])
    np.testing.assert_allclose(states[valid], expected[valid], atol=1e-4, rtol=1e-4)
    assert not np.allclose(np.asarray(results(config, params)["hidden"])[valid], expected[valid], atol=1e-2)

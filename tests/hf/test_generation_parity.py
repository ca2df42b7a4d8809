"""Constraints of folders against the processors of transformers, on random scores and texts."""

import json

import numpy as np
import pytest

import tfm
from tfm.decoding.sampling import distribution
from tfm.hf.generation import read_generation

VOCAB, LENGTH = 12, 6


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def settings(rng):
    """Some fields at random."""
    fields = {
        "eos_token_id": [2, 3],
        "bad_words_ids": [[4], [5, 6], [1, 2, 7], [2]],
        "suppress_tokens": [8],
        "begin_suppress_tokens": [9],
        "no_repeat_ngram_size": int(rng.integers(1, 4)),
        "encoder_no_repeat_ngram_size": int(rng.integers(1, 4)),
        "min_length": int(rng.integers(1, 9)),
        "min_new_tokens": int(rng.integers(1, 5)),
        "forced_bos_token_id": 10,
        "forced_eos_token_id": [2, 3],
        "repetition_penalty": 1.7,
        "renormalize_logits": True,
    }
    return {name: value for name, value in fields.items() if name == "eos_token_id" or rng.random() < 0.4}


def by_transformers(torch, transformers, fields, prompt, text, source, scores):
    config = transformers.GenerationConfig(**fields, max_length=len(prompt) + LENGTH)
    config._eos_token_tensor = torch.tensor(fields["eos_token_id"])
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB, n_embd=4, n_layer=1, n_head=1))
    processors = model._get_logits_processor(
        config,
        input_ids_seq_length=len(prompt),
        encoder_input_ids=torch.tensor([source]),
        device="cpu",
    )
    return processors(torch.tensor([[*prompt, *text]]), torch.tensor(scores)).numpy()


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(60))
def test_constraints_are_those_of_transformers(torch, transformers, tmp_path, seed):
    rng = np.random.default_rng(seed)
    fields = settings(rng)
    prompt, source = (rng.integers(0, VOCAB, rng.integers(1, 5)).tolist() for _ in range(2))
    text = rng.integers(0, VOCAB, rng.integers(0, LENGTH)).tolist()
    scores = torch.tensor(rng.normal(size=(1, VOCAB)).astype(np.float32)).log_softmax(-1).numpy()
    (tmp_path / "generation_config.json").write_text(json.dumps(fields))
    saved = read_generation(tmp_path, {})
    constraints = saved.constraints([prompt], [source], VOCAB, [LENGTH], fields.get("repetition_penalty"))
    tokens = np.array([[*text, *[0] * (LENGTH - len(text))]], np.int32)
    is_stop = np.isin(np.arange(VOCAB), saved.stop)
    constrained = (
        scores if constraints is None else np.asarray(constraints(scores, tokens, np.int32(len(text)), is_stop))
    )
    expected = by_transformers(torch, transformers, fields, prompt, text, source, scores)
    np.testing.assert_allclose(constrained, expected, atol=1e-5)


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(30))
def test_draws_are_those_of_transformers(torch, transformers, seed):
    """Which tokens may be drawn, and with what probabilities."""
    rng = np.random.default_rng(seed)
    options = {
        "temperature": 0.7, "top_k": 9, "top_p": 0.8, "min_p": 0.05, "typical_p": float(rng.uniform(0.1, 0.99)),
        "epsilon_cutoff": float(rng.uniform(0.01, 0.3)), "eta_cutoff": float(rng.uniform(0.01, 0.5)),
    }  # fmt: skip
    options = {name: value for name, value in options.items() if rng.random() < 0.5}
    config = transformers.GenerationConfig(**{"top_k": 0, **options}, do_sample=True)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB, n_embd=4, n_layer=1, n_head=1))
    logits = 2 * rng.normal(size=(5, VOCAB)).astype(np.float32)
    processors = model._get_logits_processor(config, input_ids_seq_length=1, device="cpu")
    expected = processors(torch.zeros((5, 1), dtype=torch.long), torch.tensor(logits)).softmax(-1).numpy()
    np.testing.assert_allclose(distribution(tfm.Sample(**options), logits, None), expected, atol=1e-6)

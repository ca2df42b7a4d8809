"""Vectors of decoders whose folders hold the bare model, without an output."""

import json

import numpy as np
import pytest
from hf_models import torch_model
from tokenizers import Tokenizer, models, pre_tokenizers

from train.lab.embedding import embed

pytestmark = pytest.mark.parity
TEXTS = ["a b c", "b", "c c a b a"]


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("llama", "LlamaModel"),
        ("qwen3", "Qwen3Model"),
        ("mistral", "MistralModel"),
        ("gpt2", "GPT2Model"),
        ("gpt_neo", "GPTNeoModel"),
        ("gpt_neox", "GPTNeoXModel"),
        ("bloom", "BloomModel"),
        ("mpt", "MptModel"),
        ("openai_gpt", "OpenAIGPTModel"),
    ],
)
@pytest.mark.parametrize("pool", ["mean", "last"])
def test_vectors_of_a_bare_decoder(tmp_path, name, architecture, pool):
    import torch

    model = torch_model(name, architecture)
    model.save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(["</s>", "?", *"abc"])}, "?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "unk_token": "?"}))
    with torch.no_grad():
        states = [model(torch.tensor([words.encode(text).ids])).last_hidden_state[0].numpy() for text in TEXTS]
    expected = [rows.mean(0) if pool == "mean" else rows[-1] for rows in states]
    np.testing.assert_allclose(embed(str(tmp_path), TEXTS, pool=pool), np.array(expected), atol=1e-5)

"""The perplexity of a folder of transformers is the one that the guide of transformers computes."""

import json
import math

import numpy as np
import pytest
from small import call

from train import evaluate, predict

pytestmark = pytest.mark.parity

WORDS = "the a cat dog sea ship sat ran on under red old house bread sun moon".split()
LENGTH = 16


def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, size)) for size in (90, 1, 12, 40)]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def folder(request, tmp_path_factory):
    """A small model; Llama's tokenizer puts <s> before a text."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = ["<unk>", "<s>", "</s>", *WORDS]
    tokenizer = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    sizes = {"vocab_size": len(names), "bos_token_id": 1, "eos_token_id": 2}
    if request.param == "llama":
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
        config = transformers.LlamaConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=64, initializer_range=0.4, **sizes,
        )  # fmt: skip
    else:
        config = transformers.GPT2Config(n_embd=24, n_layer=2, n_head=2, n_positions=64, initializer_range=0.4, **sizes)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path)
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    wrapped.save_pretrained(path)
    return path, model, wrapped


def guide(model, tokenizer, text, stride):
    """The losses of all targets: windows of LENGTH tokens, of which those count that were in no window before."""
    import torch

    ids = tokenizer(text, return_tensors="pt").input_ids
    losses, before = [], 0
    for begin in range(0, ids.shape[1], stride):
        end = min(begin + LENGTH, ids.shape[1])
        labels = ids[:, begin:end].clone()
        labels[:, : -(end - before)] = -100
        with torch.no_grad():
            logits = model(ids[:, begin:end]).logits
        values = torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:], reduction="none")
        losses += values[labels[0, 1:] != -100].tolist()
        before = end
        if end == ids.shape[1]:
            break
    return losses


@pytest.mark.parametrize("stride", [8, 5, 16, None])
def test_perplexity_with_a_stride(folder, tmp_path, stride):
    path, model, tokenizer = folder
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts()))
    losses = [loss for text in texts() for loss in guide(model, tokenizer, text, stride or LENGTH - 1)]
    flags = [f"--run={path}", f"--data={tmp_path / 'texts.jsonl'}", f"--length={LENGTH}"]
    code, out, err = call(evaluate.main, *flags, *([f"--stride={stride}"] if stride else []))
    assert code == 0, err
    metrics = json.loads(out)
    assert metrics["n"] == len(losses)
    assert metrics["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
    if stride is None:  # no token but the first is left out, so the bits are those of the whole text
        size = sum(len(text.encode()) for text in texts() if len(tokenizer(text).input_ids) > 0)
        assert metrics["bits_per_byte"] == pytest.approx(sum(losses) / math.log(2) / size, rel=1e-5)


def test_a_short_text_has_one_perplexity_in_both_commands(folder, tmp_path):
    path, model, tokenizer = folder
    text = texts()[2]
    (tmp_path / "text.txt").write_text(text)
    evaluated = json.loads(call(evaluate.main, f"--run={path}", f"--data={tmp_path / 'text.txt'}")[1])["perplexity"]
    predicted = call(predict.main, f"--run={path}", f"--text={text}")[1].split("\t")[0]
    assert float(predicted) == pytest.approx(evaluated, rel=1e-5)
    assert evaluated == pytest.approx(math.exp(np.mean(guide(model, tokenizer, text, LENGTH))), rel=1e-5)


def test_a_text_of_one_token_has_nothing_to_predict(folder, tmp_path):
    path, _, tokenizer = folder
    (tmp_path / "text.txt").write_text("cat")
    code, out, err = call(evaluate.main, f"--run={path}", f"--data={tmp_path / 'text.txt'}")
    if len(tokenizer("cat").input_ids) == 1:
        assert (code, out) == (2, ""), err
        assert "nothing in the validation data" in err
    else:
        assert (code, json.loads(out)["n"]) == (0, 1)

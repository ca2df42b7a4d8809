"""SmolLM2-135M-Instruct: it writes what transformers writes, token for token, and reads as well."""

import json

import jax
import numpy as np
import pytest
from small import call, read_lines

import tfm
from real import folders
from train import evaluate, generate

pytestmark = pytest.mark.real

TEXTS, NEW_TOKENS = 200, 24
LENGTH, STRIDE = 1024, 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folders.smollm2(tmp_path_factory.mktemp("smollm2"))


@pytest.fixture(scope="module")
def reference(folder):
    """The model and the tokenizer of transformers."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def prompts():
    """The first words of lines of a play."""
    lines = next(iter(sorted(folders.data("tinyshakespeare").rglob("*.txt")))).read_text().splitlines()
    starts = [" ".join(line.split()[:5]) for line in lines if len(line.split()) >= 5]
    return starts[:: len(starts) // TEXTS][:TEXTS]


def written(model, tokenizer, texts):
    """What transformers writes, greedily, without special tokens; texts of one length share a batch without padding."""
    import torch

    encoded = [tokenizer(text).input_ids for text in texts]
    continued = [""] * len(texts)
    for length in {len(ids) for ids in encoded}:
        rows = [row for row, ids in enumerate(encoded) if len(ids) == length]
        inputs = torch.tensor([encoded[row] for row in rows])
        with torch.no_grad():
            outputs = model.generate(inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
        for row, ids in zip(rows, outputs, strict=True):
            continued[row] = tokenizer.decode(ids[length:], skip_special_tokens=True)
    return continued


@pytest.fixture(scope="module")
def expected(request, reference):
    """What transformers writes for every prompt; kept by pytest, as it takes minutes."""
    import transformers

    key = f"smollm2/{transformers.__version__}-{TEXTS}-{NEW_TOKENS}"
    texts = request.config.cache.get(key, None) or written(*reference, prompts())
    request.config.cache.set(key, texts)
    return texts


@pytest.mark.parametrize("extra", ["--batch=16", "--batch=16 --draft=ngram", "--batch=1", "--batch=1 --draft=ngram"])
def test_greedy_texts(folder, expected, tmp_path, extra):
    """Token for token, alone and in batches, with and without a draft."""
    texts, to = prompts(), tmp_path / "out.jsonl"
    (tmp_path / "prompts.txt").write_text("\n".join(texts) + "\n")
    flags = (
        f"--run={folder} --file={tmp_path / 'prompts.txt'} --strategy=greedy --max-new-tokens={NEW_TOKENS} --to={to}"
    )
    code, _, err = call(generate.main, *flags.split(), *extra.split())
    assert code == 0, err
    continued = [row["completion"].strip() for row in read_lines(to)]
    different = [pair for pair in zip(continued, expected, strict=True) if pair[0] != pair[1].strip()]
    print(f"{extra}: {len(texts) - len(different)} of {len(texts)} texts are equal")
    assert not different, different[:3]


@pytest.fixture(scope="module", params=[{"data": 2}, {"data": 1, "tensor": 2}], ids=str)
def on_two_devices(request, folder):
    """A mesh, the configuration and the parameters on it."""
    mesh = tfm.make_mesh(**request.param, devices=jax.devices()[:2])
    return mesh, *tfm.from_hf(folder, mesh)


@pytest.mark.parametrize("draft", [None, tfm.NGram()], ids=["alone", "draft"])
def test_greedy_texts_on_two_devices(on_two_devices, reference, expected, draft):
    """All texts, 16 at a time, those of similar lengths together; 16 with a draft, which writes one at a time (M81).
    All 200, with a draft and one at a time too, were compared once: docs/numbers.md."""
    tokenizer, (mesh, config, params) = reference[1], on_two_devices
    encoded = [tokenizer(text).input_ids for text in prompts()]
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))[: 16 if draft else TEXTS]
    settings = (NEW_TOKENS, *([] if draft is None else [draft]), tfm.Greedy(), [tokenizer.eos_token_id])
    different = []
    for first in range(0, len(order), 16):
        rows = order[first : first + 16]
        batch = [encoded[row] for row in rows]
        with jax.set_mesh(mesh):
            if draft is None:
                continued = tfm.generate(params, config, batch, *settings).tokens
            else:
                speculation = tfm.Speculation(params, config, batch, *settings)
                speculation.advance(NEW_TOKENS)
                continued = speculation.tokens
        texts = [tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in continued]
        different += [
            (text, expected[row]) for text, row in zip(texts, rows, strict=True) if text != expected[row].strip()
        ]
    print(f"{mesh.shape}: {len(order) - len(different)} of {len(order)} texts are equal")
    assert not different, different[:3]


def test_perplexity(folder, reference, tmp_path):
    """Windows of 1,024 tokens, 512 apart, of which the new ones count, as the guide of transformers says."""
    import torch

    model, tokenizer = reference
    source = next(path for path in sorted(folders.data("wikitext-2").rglob("*")) if "test" in path.name)
    text = source.read_text(encoding="utf-8")[:20_000]
    (tmp_path / "text.txt").write_text(text)
    ids = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids])
    losses, end = [], 0
    for start in range(0, ids.shape[1], STRIDE):
        stop = min(start + LENGTH, ids.shape[1])
        with torch.no_grad():
            logits = model(ids[:, start:stop]).logits.log_softmax(-1)[0, :-1]
        losses.append(-logits.gather(1, ids[0, start + 1 : stop, None])[-(stop - max(end, start + 1)) :, 0])
        end = stop
        if stop == ids.shape[1]:
            break
    expected = float(torch.cat(losses).mean().exp())
    flags = f"--run={folder} --data={tmp_path / 'text.txt'} --length={LENGTH} --stride={STRIDE}"
    code, out, err = call(evaluate.main, *flags.split())
    assert code == 0, err
    print(f"perplexity {json.loads(out)['perplexity']:.4f}, transformers {expected:.4f}")
    np.testing.assert_allclose(json.loads(out)["perplexity"], expected, rtol=1e-4)

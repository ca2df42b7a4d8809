"""Adapter folders: what PEFT writes is read, and what is written PEFT loads, with equal results."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from hf.test_regressions import LLAMA, save
from hf_models import inputs, results, torch_model, torch_results

import tfm
from tfm.hf import tensors
from tfm.hf.adapter import load_adapter, read_adapter, targets_of, to_adapter
from tfm.low_rank import low_rank_specs, with_base

CASES = [
    ("bert", "BertForSequenceClassification", ["query", "value", "attention.output.dense"], "classifier"),
    ("bert", "BertForTokenClassification", ["value", "word_embeddings"], "classifier"),
    ("roberta", "RobertaForTokenClassification", ["key", "intermediate.dense"], "classifier"),
    ("distilbert", "DistilBertForSequenceClassification", ["q_lin", "lin2"], "classifier"),
    ("gpt2", "GPT2LMHeadModel", ["c_attn"], None),
    ("gpt_neox", "GPTNeoXForCausalLM", ["query_key_value"], None),
    ("llama", "LlamaForCausalLM", ["q_proj", "v_proj", "down_proj"], None),
    ("llama", "LlamaForCausalLM", ["q_proj"], "lm_head"),
    ("llama", "LlamaForCausalLM", ["embed_tokens"], None),
    ("t5", "T5ForConditionalGeneration", ["q", "v", "wo"], None),
    ("modernbert", "ModernBertForSequenceClassification", ["Wqkv"], "classifier"),
]


def with_updates(config, params, specs, targets, adapter=None, seed=0):
    """Parameters with low-rank updates: those of an adapter, or random ones."""
    options = adapter.options if adapter else {"rank": 3, "scale": 0.5}
    low_rank = tfm.init(low_rank_specs(specs, targets, **options), jax.random.key(seed))
    params = with_base(low_rank, params)
    return load_adapter(adapter, config, params) if adapter else jax.tree.map(jax.numpy.asarray, params)


def specs_of(params, config):
    """The specs of a model that was read."""
    kinds = {"MaskedLM": tfm.masked_lm_specs, "Classifier": tfm.classifier_specs, "Tagger": tfm.tagger_specs}
    kinds |= {"CausalLM": tfm.causal_lm_specs, "Seq2Seq": tfm.seq2seq_specs}
    return kinds[type(params).__name__](config)


def assert_logits(actual, expected):
    logits, torch_logits = np.asarray(actual["logits"]), expected["logits"]
    logits = logits[tuple(slice(0, size) for size in torch_logits.shape)]
    valid = inputs()["valid"]
    if torch_logits.ndim > 2 and torch_logits.shape[:2] == valid.shape:
        logits, torch_logits = logits[valid], torch_logits[valid]
    np.testing.assert_allclose(logits, torch_logits, atol=2e-4, rtol=2e-4)


def randomize(model):
    """Other values for everything that the adapter holds."""
    import torch

    torch.manual_seed(3)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                values.copy_(torch.randn(values.shape) * 0.2)
    return model.eval()


@pytest.mark.parity
@pytest.mark.parametrize(("name", "architecture", "modules", "head"), CASES)
def test_there_and_back(name, architecture, modules, head, tmp_path):
    import peft

    base = torch_model(name, architecture)
    base.save_pretrained(tmp_path / "base")
    plain = torch_results(base)["logits"]
    options = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules=modules, modules_to_save=head and [head], fan_in_fan_out=name == "gpt2"
    )
    model = randomize(peft.get_peft_model(base, options))
    model.save_pretrained(tmp_path / "adapter")
    expected = torch_results(model)
    assert np.abs(expected["logits"] - plain).max() > 1e-2

    config, params = tfm.from_hf(tmp_path / "base")
    adapter = read_adapter(tmp_path / "adapter")
    updated = with_updates(config, params, specs_of(params, config), targets_of(adapter, config), adapter)
    assert_logits(results(config, updated), expected)

    fields = json.loads((tmp_path / "base" / "config.json").read_text())
    to_adapter(config, updated, tmp_path / "written", str(tmp_path / "base"), fields)
    again = peft.PeftModel.from_pretrained(torch_model(name, architecture), tmp_path / "written").eval()
    np.testing.assert_allclose(torch_results(again)["logits"], expected["logits"], atol=1e-4, rtol=1e-4)


CONFIG = tfm.Config(layers=2, heads=2, width=16, vocab=40, length=12, classes=3, dropout=0.0)


@pytest.mark.slow
def test_what_is_written_is_read(tmp_path):
    """Without torch: updates of all kinds of kernels and the head, over zeros."""
    specs = tfm.classifier_specs(CONFIG)
    base = tfm.init(specs, jax.random.key(0))
    rng = np.random.default_rng(1)
    targets = ["query", "key", "value", "output", "up", "down", "tokens"]
    low_rank = tfm.init(low_rank_specs(specs, targets, rank=2, scale=1.5), jax.random.key(1))
    params = with_base(
        jax.tree.map(lambda leaf: jax.numpy.asarray(rng.normal(size=leaf.shape), "float32"), low_rank), base
    )
    table = params.encoder.embed.tokens
    table = dataclasses.replace(table, down=table.down.at[CONFIG.vocab :].set(0))  # padding of the vocabulary
    embeddings = dataclasses.replace(params.encoder.embed, tokens=table)
    params = dataclasses.replace(params, encoder=dataclasses.replace(params.encoder, embed=embeddings))
    to_adapter(CONFIG, params, tmp_path, "somewhere", {"model_type": "bert"})
    adapter = read_adapter(tmp_path)
    assert adapter.options == {"rank": 2, "scale": 1.5, "dropout": 0.0}
    assert targets_of(adapter, CONFIG) == set(targets)
    blank = with_base(jax.tree.map(jax.numpy.zeros_like, low_rank), base)
    blank = dataclasses.replace(blank, pooler=jax.tree.map(jax.numpy.zeros_like, blank.pooler))
    jax.tree.map(np.testing.assert_array_equal, load_adapter(adapter, CONFIG, blank), params)


@pytest.mark.slow
def test_bad_folders(tmp_path):
    specs = tfm.masked_lm_specs(CONFIG)
    params = tfm.init(low_rank_specs(specs, ["query"], rank=2, scale=1.0), jax.random.key(0))
    with pytest.raises(ValueError, match="cannot hold cls.predictions.bias of bert without the table"):
        to_adapter(CONFIG, params, tmp_path / "a", "", {"model_type": "bert"})
    with pytest.raises(ValueError, match="has no low-rank updates"):
        to_adapter(CONFIG, tfm.init(specs, jax.random.key(0)), tmp_path / "a", "", {"model_type": "bert"})
    assert not (tmp_path / "a").exists()

    specs = tfm.classifier_specs(CONFIG)
    params = tfm.init(low_rank_specs(specs, ["query"], rank=2, scale=1.0), jax.random.key(0))
    to_adapter(CONFIG, params, tmp_path / "b", "", {"model_type": "bert"})
    path = tmp_path / "b" / "adapter_config.json"
    good = json.loads(path.read_text())
    for fields, message in (
        ({"peft_type": "IA3"}, "has peft_type='IA3'; only 'LORA' is supported"),
        ({"use_dora": True}, "has use_dora=True"),
        ({"r": "eight"}, "r='eight' must be a whole number"),
    ):
        path.write_text(json.dumps(good | fields))
        with pytest.raises(ValueError, match=message):
            read_adapter(tmp_path / "b")
    path.write_text("{")
    with pytest.raises(ValueError, match="adapter_config.json is not JSON"):
        read_adapter(tmp_path / "b")
    path.write_text(json.dumps(good))
    wide = dataclasses.replace(CONFIG, width=32)
    params = tfm.init(low_rank_specs(tfm.classifier_specs(wide), ["query"], rank=2, scale=1.0), jax.random.key(0))
    with pytest.raises(ValueError, match="is it an adapter of another base"):
        load_adapter(read_adapter(tmp_path / "b"), wide, params)
    (tmp_path / "b" / "adapter_model.safetensors").unlink()
    with pytest.raises(ValueError, match="adapter_model.safetensors does not exist"):
        read_adapter(tmp_path / "b")


@pytest.mark.slow
def test_saved_tables_are_padded(tmp_path):
    """`modules_to_save` of both tables, of 11 tokens; here a table has rows up to a multiple of 128."""
    folder, arrays = save(tmp_path / "base", LLAMA)
    config, params = tfm.from_hf(folder)
    query = "model.layers.0.self_attn.q_proj"
    values = {name: arrays[name] + 1 for name in ("model.embed_tokens.weight", "lm_head.weight")}
    values |= {
        f"{query}.lora_A.weight": np.ones((2, 8), np.float32),
        f"{query}.lora_B.weight": np.ones((8, 2), np.float32),
    }
    (tmp_path / "adapter").mkdir()
    entries = [(f"base_model.model.{name}", array.dtype, array.shape, array.copy) for name, array in values.items()]
    tensors.write(tmp_path / "adapter" / "adapter_model.safetensors", entries)
    fields = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "task_type": "CAUSAL_LM"}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(fields))
    adapter = read_adapter(tmp_path / "adapter")
    loaded = with_updates(config, params, specs_of(params, config), targets_of(adapter, config), adapter)
    for table, name in ((loaded.decoder.embed.tokens, "model.embed_tokens.weight"), (loaded.table, "lm_head.weight")):
        assert table.shape == (config.padded_vocab, 8)
        np.testing.assert_array_equal(table[:11], values[name])
        assert not np.asarray(table[11:]).any()


def saved_adapter(folder, values, **fields):
    """An adapter folder with these tensors."""
    folder.mkdir()
    entries = [(f"base_model.model.{name}", array.dtype, array.shape, array.copy) for name, array in values.items()]
    tensors.write(folder / "adapter_model.safetensors", entries)
    options = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "task_type": "CAUSAL_LM", **fields}
    (folder / "adapter_config.json").write_text(json.dumps(options))
    return read_adapter(folder)


QUERY = "model.layers.0.self_attn.q_proj"
UPDATE = {f"{QUERY}.lora_A.weight": np.ones((2, 8), np.float32), f"{QUERY}.lora_B.weight": np.ones((8, 2), np.float32)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alora_invocation_tokens": [3]}, r"has alora_invocation_tokens=\[3\]; only None is supported"),
        ({"use_bdlora": {"nblocks": 2}}, "has use_bdlora="),
        ({"kasa_config": {}}, "has kasa_config={}; only None"),
        ({"arrow_config": {"top_k": 1}}, "has arrow_config="),
        ({"use_qalora": True}, "has use_qalora=True; only False"),
        ({"init_lora_weights": "pissa"}, "has init_lora_weights='pissa'; only True"),
        (
            {"target_modules": ["v_proj"]},
            rf"has target_modules=\['v_proj'\], and the folder updates {QUERY}; correct",
        ),
        (
            {"target_modules": "q_proj"},
            "has target_modules='q_proj', and",
        ),  # a pattern is of whole names
        ({"target_modules": 5}, "target_modules=5 must be"),
        ({"exclude_modules": ["self_attn.q_proj"]}, "has exclude_modules="),
        ({"r": 4}, "has r=4, and .*lora_A.weight has the rank 2; correct r"),
        ({"use_mirrors": True}, "has use_mirrors=True, which is unknown; remove it if it changes nothing"),
    ],
)
def test_fields_that_change_the_result_are_refused(fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        saved_adapter(tmp_path / "adapter", UPDATE, **{"target_modules": ["q_proj"], **fields})


def test_fields_that_change_nothing(tmp_path):
    saved_adapter(
        tmp_path / "adapter",
        UPDATE,
        target_modules=r".*\.q_proj",
        exclude_modules=["down_proj"],
        use_mirrors=False,
        alora_invocation_tokens=None,
        velora_config=None,
        runtime_config={},
        init_lora_weights="gaussian",
    )
    with pytest.warns(UserWarning, match="has no target_modules"):
        saved_adapter(tmp_path / "nameless", UPDATE)


def test_updates_of_a_head_are_refused_with_the_field(tmp_path):
    config = tfm.Config(layers=1, heads=2, width=8, ffn=16, vocab=11)
    head = {
        f"lm_head.lora_{factor}.weight": np.ones(shape, np.float32) for factor, shape in (("A", (2, 8)), ("B", (11, 2)))
    }
    adapter = saved_adapter(tmp_path / "head", UPDATE | head, target_modules=["q_proj", "lm_head"])
    with pytest.raises(
        ValueError, match="lm_head has updates by target_modules, and is outside of the layers; merge the"
    ):
        targets_of(adapter, config)
    with pytest.raises(ValueError, match="lm_head has updates by ensure_weight_tying, and is outside"):
        saved_adapter(tmp_path / "tied", UPDATE | head, target_modules=["q_proj"], ensure_weight_tying=True)


@pytest.mark.slow
def test_both_tables_of_a_tied_base_must_be_equal(tmp_path):
    folder, arrays = save(tmp_path / "base", LLAMA | {"tie_word_embeddings": True})
    config, params = tfm.from_hf(folder)
    query = "model.layers.0.self_attn.q_proj"
    values = {
        f"{query}.lora_A.weight": np.ones((2, 8), np.float32),
        f"{query}.lora_B.weight": np.ones((8, 2), np.float32),
        "model.embed_tokens.weight": arrays["model.embed_tokens.weight"] + 1,
        "lm_head.weight": arrays["model.embed_tokens.weight"] + 1,
    }

    def load(adapter):
        return with_updates(config, params, specs_of(params, config), targets_of(adapter, config), adapter)

    loaded = load(saved_adapter(tmp_path / "equal", values))
    np.testing.assert_array_equal(loaded.decoder.embed.tokens[:11], values["lm_head.weight"])
    with pytest.raises(ValueError, match="changes model.embed_tokens.weight and not lm_head.weight, which the base"):
        load(saved_adapter(tmp_path / "one", {name: array for name, array in values.items() if "lm_head" not in name}))
    with pytest.raises(ValueError, match="PEFT unties model.embed_tokens.weight and lm_head.weight where the former"):
        to_adapter(config, with_updates(config, params, specs_of(params, config), ["tokens"]), tmp_path, "", LLAMA)
    values["lm_head.weight"] = values["lm_head.weight"] + 1
    with pytest.raises(ValueError, match=r"model.embed_tokens.weight and lm_head.weight with different values, which"):
        load(saved_adapter(tmp_path / "differ", values))
    with pytest.raises(ValueError, match="lora_bias=True"):
        saved_adapter(tmp_path / "biased", values, lora_bias=True)

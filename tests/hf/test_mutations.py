"""One field of one file of a folder changed or removed: the answer of transformers, or a sentence with the field.

The rows were silent once: another answer than that of transformers, without a word.
"""

import json
import warnings

import numpy as np
import pytest
from hf_models import inputs, results, torch_model, torch_results

from tfm import from_hf, to_hf
from train.text import hf_tokenizer

pytestmark = pytest.mark.parity

MASKED = ("electra", "ElectraForMaskedLM")
DEBERTA = ("deberta", "DebertaV2ForMaskedLM")
NEO = ("gpt_neo", "GPTNeoForCausalLM")
WINDOWED = ("longformer", "LongformerForMaskedLM")
ROTARY = ("roformer", "RoFormerForMaskedLM")
HASHED = ("reformer", "ReformerModelWithLMHead")
T5 = ("t5", "T5ForConditionalGeneration")
LONG_T5 = ("longt5", "LongT5ForConditionalGeneration")
LLAMA = ("llama", "LlamaForCausalLM")
SWIN = ("swin", "SwinModel")
VIT = ("vit", "ViTForImageClassification")
GPT2 = ("gpt2", "GPT2LMHeadModel")
QWEN = ("qwen2", "Qwen2ForCausalLM")
NEOX = ("gpt_neox", "GPTNeoXForCausalLM")
MIXTRAL = ("mixtral", "MixtralForCausalLM")
LONG_ROPE = ("llama_longrope", "LlamaForCausalLM")
SWITCH = ("switch_transformers", "SwitchTransformersForConditionalGeneration")
ABSENT = object()


def changed(folder, file, field, value):
    """Writes another value of a field into a file of a folder."""
    fields = json.loads((folder / file).read_text())
    fields = {name: stated for name, stated in (fields | {field: value}).items() if stated is not ABSENT}
    (folder / file).write_text(json.dumps(fields))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of every model, made once."""
    folders = {}

    def folder(name, architecture):
        if (name, architecture) not in folders:
            folders[name, architecture] = tmp_path_factory.mktemp(name)
            torch_model(name, architecture).save_pretrained(folders[name, architecture])
        return folders[name, architecture]

    return folder


@pytest.mark.parametrize(
    ("model", "field", "value", "sentence"),
    [
        (MASKED, "vocab_size", 104, r"\(vocab_size=104, where 103 fits\)"),
        (MASKED, "embedding_size", ABSENT, r"\(embedding_size=absent, where 14 fits\)"),
        (MASKED, "hidden_size", 25, "num_attention_heads=3 must divide hidden_size=25"),
        (MASKED, "intermediate_size", ABSENT, r"\(intermediate_size=absent, where 40 fits\)"),
        (MASKED, "num_hidden_layers", 4, r"\(num_hidden_layers=4, where 3 fits\)"),
        (ROTARY, "num_attention_heads", 4, r"\(.*num_attention_heads=4, where 3 fits"),
        (HASHED, "num_hidden_layers", 2, "num_hidden_layers=2 and the number of attn_layers=3, which must be equal"),
        (T5, "is_gated_act", None, "is_gated_act=None must be true or false"),
        (LONG_T5, "dense_act_fn", None, "dense_act_fn=None must be text"),
        (NEO, "attention_layers", ["local"] * 3, "attention_layers=.* and attention_types=.*must be equal"),
        (LLAMA, "num_attention_heads", 12, r"\(.*num_attention_heads=12, where 6 fits"),
        (LLAMA, "num_key_value_heads", None, r"\(.*num_key_value_heads=None, where 2 fits\)"),
        (LLAMA, "num_key_value_heads", 4, r"kv_heads=4 must divide .* \(kv_heads is of num_key_value_heads\)"),
        (LLAMA, "head_dim", 5, r"head_size=5; .* \(head_size is of head_dim\)"),
        (LLAMA, "rope_parameters", {"rope_theta": 1}, r"position.base=1.0 .* \(position.base is of rope_parameters\)"),
        (T5, "d_kv", 9, r"\(d_kv=9, where 10 fits\)"),
        (GPT2, "tie_word_embeddings", False, r"head of GPT2LMHeadModel \(tie_word_embeddings=False, where True fits\)"),
        (QWEN, "num_attention_heads", ABSENT, r"head_size=0 .*\(head_size is of .*num_attention_heads\)"),
        (VIT, "image_size", ABSENT, r"position_embeddings of shape .*\(of .*image_size=absent"),
        (VIT, "patch_size", 4, r"size=6 must be a multiple of patch=4; .*\(.*patch is of patch_size\)"),
        (NEOX, "head_dim", 16, "head_dim=16, and hidden_size=24 of 3 heads"),
        (NEOX, "num_attention_heads", 4, "num_attention_heads=4 do not fit"),
        (HASHED, "axial_pos_embds_dim", [14, 10], r"axial_pos_embds_dim=\[14, 10\], where \[10, 14\] fits"),
        (HASHED, "axial_pos_shape", ABSENT, r"\(of .*axial_pos_shape=absent"),
        (WINDOWED, "num_hidden_layers", ABSENT, "for the layers of num_hidden_layers=12"),
        (LONG_ROPE, "head_dim", 4, r"4 factors for 2 pairs .*head_size is of head_dim"),
        (DEBERTA, "embedding_size", 5, r"\(.*embedding_size=5, where 24 fits"),
        (DEBERTA, "position_biased_input", ABSENT, r"\(.*position_biased_input=absent, where False fits"),
        (SWITCH, "num_layers", 3, r"of 3 layers \(num_layers=3\), so encoder_sparse_step=3"),
        (QWEN, "num_hidden_layers", 3, "2 layer_types and num_hidden_layers=3, which must be equal"),
        (SWIN, "mlp_ratio", 8.05, r"\(mlp_ratio=8.05, where 4.0 fits\)"),
    ],
)
def test_refused_with_the_field(saved, tmp_path, model, field, value, sentence):
    copy = _changed_copy(saved(*model), tmp_path, field, value)
    with pytest.raises(ValueError, match=sentence):
        from_hf(copy)


@pytest.mark.parametrize(
    ("model", "field", "value", "sentence"),
    [
        (DEBERTA, "legacy", False, "legacy=True, and config.json says legacy=False"),
        (HASHED, "hash_seed", ABSENT, "config.json has no hash_seed: transformers draws other hashes"),
        (HASHED, "num_buckets", ABSENT, "config.json has no num_buckets: transformers takes them"),
        (WINDOWED, "type_vocab_size", 0, r"\(type_vocab_size=0, where 1 fits\)"),
        (MASKED, "num_hidden_layers", 2, r"\(num_hidden_layers=2, where 3 fits\)"),
    ],
)
def test_said_with_the_field(saved, tmp_path, model, field, value, sentence):
    copy = _changed_copy(saved(*model), tmp_path, field, value)
    with pytest.warns(UserWarning, match=sentence):
        from_hf(copy)


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        (NEO, "attention_layers", ["global", "local", "local"]),
        (MIXTRAL, "rope_parameters", ABSENT),
        (SWITCH, "feed_forward_proj", 1),
        (DEBERTA, "legacy", ABSENT),
        (T5, "tie_word_embeddings", False),
        (LONG_T5, "tie_word_embeddings", False),
        (LONG_T5, "scale_decoder_outputs", False),
    ],
)
def test_the_answer_is_that_of_transformers(saved, tmp_path, model, field, value):
    import transformers

    copy = _changed_copy(saved(*model), tmp_path, field, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = results(*from_hf(copy))
    _assert_equal(outputs, getattr(transformers, model[1]), copy)


def _assert_equal(outputs, model_class, folder):
    """Compares logits with those of transformers, where tokens are valid."""
    expected = torch_results(model_class.from_pretrained(folder, attn_implementation="eager").eval())["logits"]
    valid = inputs()["valid"]
    valid = valid[:, : expected.shape[1]] if valid.shape[1] != expected.shape[1] else valid
    logits = np.asarray(outputs["logits"])[..., : expected.shape[-1]]
    np.testing.assert_allclose(logits[valid], expected[valid], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scales", [True, False])
def test_an_output_of_its_own_of_longt5_is_read_and_written(saved, tmp_path, scales):
    """transformers reads both tables, though it says that the output is tied."""
    import transformers
    from safetensors.numpy import load_file, save_file

    for name in ("read", "written"):
        (tmp_path / name).mkdir()
    folder = _changed_copy(saved(*LONG_T5), tmp_path / "read", "tie_word_embeddings", False)
    changed(folder, "config.json", "scale_decoder_outputs", scales)
    weights = folder / "model.safetensors"
    stored = load_file(weights)
    weights.unlink()
    save_file(stored | {"lm_head.weight": -stored["shared.weight"] / 2}, weights, {"format": "pt"})
    config, params = from_hf(folder)
    outputs = results(config, params)
    for path in (folder, to_hf(config, params, tmp_path / "written", like=folder)):
        _assert_equal(outputs, transformers.LongT5ForConditionalGeneration, path)


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "[", "]", "mask"]
FIELDS = {
    "tokenizer_class": "BertTokenizer", "do_lower_case": True, "unk_token": "[UNK]", "sep_token": "[SEP]",
    "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
}  # fmt: skip


@pytest.fixture
def bert_tokenizer(tmp_path):
    """A folder with a small tokenizer.json of BERT."""
    import transformers

    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(FIELDS))
    return tmp_path


class Model:
    """What reading a tokenizer asks of a model."""

    vocab = 1000


@pytest.mark.parametrize(
    ("file", "field", "value", "sentence"),
    [
        ("tokenizer_config.json", "tokenizer_class", "GPT2Tokenizer", "tokenizer_class=GPT2Tokenizer has .* BPE"),
        ("tokenizer.json", "post_processor", None, r"tokenizer_class=BertTokenizer puts .* tokenizer.json \[\]"),
        ("tokenizer_config.json", "mask_token", "[NEW]", r"mask_token='\[NEW\]' is no token of the tokenizer"),
    ],
)
def test_tokenizer_fields_are_said(bert_tokenizer, file, field, value, sentence):
    changed(bert_tokenizer, file, field, value)
    with pytest.warns(UserWarning, match=sentence):
        hf_tokenizer.read(bert_tokenizer, Model())


@pytest.mark.parametrize(
    ("field", "value"),
    [("split_special_tokens", True), ("split_special_tokens", False), ("pad_token", "a")],
)
def test_tokenizer_fields_are_followed(bert_tokenizer, field, value):
    import transformers

    changed(bert_tokenizer, "tokenizer_config.json", field, value)
    expected = transformers.AutoTokenizer.from_pretrained(bert_tokenizer)
    tokenizer = hf_tokenizer.read(bert_tokenizer, Model())
    for text in ("a [MASK] ab", "abb b a"):
        assert tokenizer.encode(text).ids == expected(text)["input_ids"]


def _changed_copy(folder, to, field, value):
    """The files of a folder in another one, weights as links; a field of config.json has another value."""
    for path in folder.iterdir():
        if path.name == "config.json":
            (to / path.name).write_text(path.read_text())
        else:
            (to / path.name).symlink_to(path)
    changed(to, "config.json", field, value)
    return to

"""The record of a folder of sentence-transformers: each field read, or refused by its name; layers against numbers."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tfm
from tfm.hf.tensors import write
from train import UserError
from train.text import pooled, sentence_transformers, vector_layers

MODEL = tfm.Config(width=4, length=32)
NEW = "sentence_transformers.sentence_transformer.modules"


def entry(kind, path=""):
    return {"idx": 0, "name": path or "0", "path": path, "type": kind}


def written(folder, *modules, pooling=None, transformer=None, prompts=None):
    """A folder of modules.json and the configurations beside it."""
    transformer_name, pooling_name = "sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"
    entries = [entry(transformer_name), entry(pooling_name, "1_Pooling"), *modules]
    contents = {
        "modules.json": entries,
        "1_Pooling/config.json": {"word_embedding_dimension": 4} if pooling is None else pooling,
        "sentence_bert_config.json": {"max_seq_length": 16} if transformer is None else transformer,
        "config_sentence_transformers.json": prompts or {},
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


POOLINGS = [
    ({}, ("mean",)),
    ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("first",)),
    ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("first", "mean")),
    ({"pooling_mode_mean_tokens": False}, ("mean",)),
    ({"pooling_mode": "lasttoken", "embedding_dimension": 4}, ("last",)),
    ({"pooling_mode": ["weightedmean", "mean_sqrt_len_tokens"]}, ("weighted_mean", "mean_sqrt")),
    ({"pooling_mode": "max", "pooling_mode_max_tokens": True, "include_prompt": True}, ("max",)),
]


@pytest.mark.parametrize(("fields", "pools"), POOLINGS)
def test_poolings(fields, pools, tmp_path):
    assert sentence_transformers.read(written(tmp_path, pooling=fields), MODEL).pools == pools


def test_all_that_a_folder_says(tmp_path):
    folder = written(
        tmp_path,
        entry("sentence_transformers.base.modules.normalize.Normalize", "2_Normalize"),
        entry("sentence_transformers.models.Dropout", "3_Dropout"),
        pooling={"pooling_mode": "cls", "include_prompt": False},
        transformer={"max_seq_length": 16, "do_lower_case": True, "model_args": {}},
        prompts={
            "__version__": {"pytorch": "2"},
            "prompts": {"query": "q: ", "document": None},
            "default_prompt_name": "query",
            "similarity_fn_name": "dot",
            "truncate_dim": 2,
            "model_type": "SentenceTransformer",
        },
    )
    modules = sentence_transformers.read(folder, MODEL)
    assert str(modules) == (
        "first of the states, Normalize, texts cut at 16 tokens, texts in lower case, 2 numbers are kept, the prompt "
        "'query' ('q: '), which is not pooled"
    )
    assert (modules.similarity, modules.prompts) == ("dot", {"query": "q: ", "document": ""})
    np.testing.assert_allclose(modules.apply(np.array([[3, 0, 4, 0]], np.float32)), [[0.6, 0]], atol=1e-7)
    assert modules.trained_pool is None


def test_lengths_of_the_tokenizer_and_of_the_model(tmp_path):
    """Where no max_seq_length is named, the smaller of both."""
    folder = written(tmp_path, transformer={})
    assert sentence_transformers.read(folder, MODEL).length == 32
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    assert sentence_transformers.read(folder, MODEL).length == 32
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 12}')
    assert sentence_transformers.read(folder, MODEL).length == 12


REFUSED = [
    ({"pooling": {"pooling_mode": "first"}}, r"pooling_mode=\[.first.\] must be of cls"),
    ({"pooling": {"pooling_mode": []}}, r"pooling_mode=\[\] must be of cls"),
    ({"pooling": {"pooling_mode": "cls", "pooling_mode_mean_tokens": True}}, r"pooling_mode=\['cls'\] and the older"),
    ({"pooling": {"word_embedding_dimension": 5}}, "word_embedding_dimension=5 differs from the width .*, 4"),
    ({"pooling": {"pooling_mode_cls": True}}, "pooling_mode_cls=True is not understood"),
    ({"transformer": {"max_seq_length": 64}}, "max_seq_length=64 is more than the 32 positions of config.json"),
    ({"transformer": {"transformer_task": "fill-mask"}}, "transformer_task=fill-mask"),
    ({"transformer": {"processing_kwargs": {"text": {"padding": True}}}}, "processing_kwargs=.* is not understood"),
    ({"transformer": {"max_length": 3}}, "max_length=3 is not understood"),
    ({"prompts": {"default_prompt_name": "passage"}}, "default_prompt_name=passage is none of its prompts"),
    ({"prompts": {"similarity_fn_name": "maxsim"}}, "similarity_fn_name=maxsim"),
    ({"prompts": {"truncate_dim": 0}}, "truncate_dim=0 must be"),
    ({"transformer": {"max_seq_length": 0}}, "max_seq_length=0 must be"),
    (
        {"pooling": {"pooling_mode": "cls", "pooling_mode_mean_tokens": True}},
        r"older fields \(pooling_mode_mean_tokens\)",
    ),
]


@pytest.mark.parametrize(("files", "message"), REFUSED)
def test_a_field_that_is_not_understood(files, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        sentence_transformers.read(written(tmp_path, **files), MODEL)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ({"type": f"{NEW}.Normalize", "name": "2"}, "module 2 has no path"),
        ({"path": "2", "name": "2"}, "module 2 has no type"),
        ({"path": "2", "type": f"{NEW}.Normalize"}, "module 2 has no name"),
        ({**entry(f"{NEW}.Normalize"), "name": "2"}, r"path='' of type='.*Normalize' is the folder of the model"),
        ({**entry(f"{NEW}.Normalize"), "name": "2", "path": "./"}, r"path='./' of type='.*Normalize' is the folder of"),
        ({**entry(f"{NEW}.Normalize", "2"), "name": "0"}, "name='0' stands 2 times"),
        ({**entry(f"{NEW}.Normalize", "2"), "kwargs": ["task"]}, r"kwargs=\['task'\] of Normalize is not understood"),
        (entry(f"{NEW}.Normalize", "C:\\2"), r"path=C:\\2 leaves the folder"),
        (entry(f"{NEW}.Normalize", "2\\..\\1_Pooling"), "leaves the folder"),
        (
            {**entry(f"{NEW}.Normalize", "1_Pooling"), "name": "2"},
            r"word_embedding_dimension=4 .* \(modules.json: path=1_Pooling, type=No",
        ),
        (
            entry(f"{NEW}.LayerNorm", "2"),
            r"2/config.json has no dimension; .* \(modules.json: path=2, type=LayerNorm\)",
        ),
    ],
)
def test_a_module_without_a_place(module, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        sentence_transformers.read(written(tmp_path, module), MODEL)


def test_files_that_are_absent(tmp_path):
    folder = written(tmp_path)
    (folder / "1_Pooling/config.json").unlink()
    with pytest.raises(ValueError, match=r"1_Pooling/config.json is absent, and modules.json names its folder"):
        sentence_transformers.read(folder, MODEL)
    (folder / "modules.json").unlink()
    with pytest.raises(ValueError, match=r"has config_sentence_transformers.json and no modules.json"):
        sentence_transformers.check_no_parts(folder)


def test_both_roles_have_a_prompt(tmp_path):
    """As in the library: an empty one where the folder names none, also beside a default."""
    fields = {"prompts": {"passage": "p: "}, "default_prompt_name": "passage"}
    modules = sentence_transformers.read(written(tmp_path, prompts=fields), MODEL)
    assert (modules.prompts, modules.prompt) == ({"query": "", "document": "", "passage": "p: "}, "passage")


def test_a_prompt_that_is_not_pooled_may_be_longer_than_a_text(tmp_path):
    tokenizer = words_tokenizer()
    modules = sentence_transformers.Modules(
        length=5, pools_prompt=False, prompts={"query": "a b a b a b", "odd": "[SEP] a"}, source="modules.json"
    )
    assert pooled.unpooled_tokens(modules, tokenizer, 1, 1) == 0
    assert pooled.unpooled_tokens(replace(modules, prompt="query"), tokenizer, 1, 1) == 4
    assert pooled.unpooled_tokens(replace(modules, prompt="query", length=None), tokenizer, 1, 1) == 7
    with pytest.raises(UserError, match=r"modules.json: prompts.odd has the control token \[SEP\]"):
        pooled.unpooled_tokens(replace(modules, prompt="odd"), tokenizer, 1, 1)


def words_tokenizer():
    """Words a and b, and [SEP]."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[SEP]"])
    return tokenizer


REFUSED_MODULES = [
    "sentence_transformers.models.WordWeights",
    "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
    "custom_st.Transformer",
    "my_sentence_transformers.models.Normalize",
]


@pytest.mark.parametrize("kind", REFUSED_MODULES)
def test_a_module_that_is_not_understood(kind, tmp_path):
    folder = written(tmp_path, entry(kind, "2"))
    assert not sentence_transformers.is_folder(folder)
    with pytest.raises(ValueError, match=f"the module of type='{kind}' is not understood"):
        sentence_transformers.read(folder, MODEL)


def test_the_order_of_modules_and_their_folders(tmp_path):
    with pytest.raises(
        ValueError, match="of type Transformer, Pooling, Pooling; a Transformer and a Pooling must stand"
    ):
        sentence_transformers.read(written(tmp_path, entry(f"{NEW}.pooling.Pooling", "2")), MODEL)
    with pytest.raises(ValueError, match=r"path=\.\./2 leaves the folder"):
        sentence_transformers.read(written(tmp_path, entry(f"{NEW}.layer_norm.LayerNorm", "../2")), MODEL)


def test_the_folder_of_the_model(tmp_path):
    """That of 2020 has the model's files in 0_Transformer; a copy has them in itself."""
    old = written(tmp_path / "old")
    entries = json.loads((old / "modules.json").read_text())
    (old / "modules.json").write_text(json.dumps([{**entries[0], "path": "0_Transformer"}, entries[1]]))
    (old / "0_Transformer").mkdir()
    (old / "sentence_bert_config.json").rename(old / "0_Transformer" / "sentence_bert_config.json")
    (old / "0_Transformer" / "config.json").write_text('{"model_type": "bert"}')
    (old / "config.json").write_text('{"model_type": "bert"}')  # of another model, which modules.json does not name
    assert sentence_transformers.transformer_folder(old) == old / "0_Transformer"
    assert sentence_transformers.transformer_folder(tmp_path) == tmp_path
    (tmp_path / "new").mkdir()
    sentence_transformers.copy(old, tmp_path / "new")
    before, after = (sentence_transformers.read(tmp_path / name, MODEL) for name in ("old", "new"))
    assert (before.length, before.pools) == (after.length, after.pools) == (16, ("mean",))


def test_a_folder_without_the_model(tmp_path):
    folder = written(tmp_path)
    entries = json.loads((folder / "modules.json").read_text())
    (folder / "config.json").write_text('{"model_type": "bert"}')
    for path in ("nowhere", "1_Pooling"):
        (folder / "modules.json").write_text(json.dumps([{**entries[0], "path": path}, entries[1]]))
        with pytest.raises(ValueError, match=f"modules.json: path={path} of the Transformer has no config.json"):
            sentence_transformers.read(folder, MODEL)


def dense(folder, kernel, bias=None, **fields):
    """A Dense module: kernel [O,I]."""
    folder.mkdir(exist_ok=True)
    kernel = np.asarray(kernel, np.float32)
    values = {"in_features": kernel.shape[1], "out_features": kernel.shape[0], "bias": bias is not None}
    (folder / "config.json").write_text(json.dumps({**values, **fields}))
    arrays = {"linear.weight": kernel} | ({} if bias is None else {"linear.bias": np.asarray(bias, np.float32)})
    entries = [(name, array.dtype, array.shape, lambda array=array: array) for name, array in arrays.items()]
    write(folder / "model.safetensors", entries)
    return vector_layers.read_layer("Dense", folder)


ACTIVATED = {
    "torch.nn.modules.linear.Identity": [1.0, -1.5],
    "torch.nn.modules.activation.Tanh": [0.7615942, -0.9051483],
    "torch.nn.modules.activation.ReLU": [1.0, 0.0],
    "torch.nn.modules.activation.GELU": [0.8413447, -0.1002108],
    "torch.nn.modules.activation.SiLU": [0.7310586, -0.2736383],
    "torch.nn.Sigmoid": [0.7310586, 0.1824255],
    "torch.nn.modules.activation.LeakyReLU": [1.0, -0.015],
    "torch.nn.modules.activation.ELU": [1.0, -0.7768698],
}


@pytest.mark.parametrize(("activation", "expected"), ACTIVATED.items())
def test_dense(activation, expected, tmp_path):
    layer = dense(tmp_path / "2", [[1, 0], [0, 1]], [0.5, -1], activation_function=activation)
    np.testing.assert_allclose(layer(np.array([[0.5, -0.5]], np.float32))[0], expected, atol=1e-6)


def test_dense_without_bias_and_with_a_residual(tmp_path):
    """Without a word about it, the activation is tanh."""
    layer = dense(tmp_path / "2", [[1, 2], [0, 1]], use_residual=True)
    vectors = np.array([[0.5, 0.25]], np.float32)
    np.testing.assert_allclose(layer(vectors)[0], [0.5 + np.tanh(1), 0.25 + np.tanh(0.25)], atol=1e-6)
    with pytest.raises(ValueError, match="in_features=2, and what stands before it makes 3 numbers"):
        layer(np.zeros((1, 3), np.float32))


def test_faults_of_dense(tmp_path):
    with pytest.raises(ValueError, match="activation_function=my.Swish is none of torch.nn's Identity"):
        dense(tmp_path / "2", [[1, 2]], activation_function="my.Swish")
    with pytest.raises(ValueError, match=r"linear.weight is \(1, 2\), and .*config.json says \(3, 2\)"):
        dense(tmp_path / "2", [[1, 2]], out_features=3)
    with pytest.raises(ValueError, match="module_input_name=token_embeddings"):
        dense(tmp_path / "2", [[1, 2]], module_input_name="token_embeddings")
    (tmp_path / "2" / "config.json").write_text('{"in_features": 2, "out_features": 1}')
    with pytest.raises(ValueError, match=r"linear.bias is absent, and .* says \(1,\)"):
        vector_layers.read_layer("Dense", tmp_path / "2")

"""Folders of sentence-transformers, against the vectors of the library itself: each module, alone and joined."""

import json
import shutil

import numpy as np
import pytest
from small import call

from train import export, predict
from train.lab import search
from train.lab.embed import main
from train.lab.embedding import embed

pytestmark = [pytest.mark.parity, pytest.mark.slow]

WORDS = "the cat sat on a sea dog ran under old house bread sun moon tree stone Red Sun red .".split()
TEXTS = ["the cat sat on the sea .", "a dog ran under old house bread sun moon tree stone the cat", "Red Sun"]
TEXTS += [" ".join(["house"] * 40), "sun"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random BERT with its tokenizer, as transformers saves them."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("base")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = Tokenizer(models.WordLevel({name: token for token, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = transformers.BertConfig(vocab_size=len(names), max_position_embeddings=64, initializer_range=0.5, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def saved(base, folder, pooling, *modules, length=64, lower=False, **settings):
    """The library's model of these modules, and the folder that it saves."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    first = Transformer(str(base), max_seq_length=length, do_lower_case=lower)
    layers = [first, Pooling(32, **pooling), *modules]
    model = SentenceTransformer(modules=layers, device="cpu", **settings)
    model.save(str(folder), create_model_card=False)
    return SentenceTransformer(str(folder), device="cpu")


POOLINGS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "mean"), ("max", "cls")]
PROMPT = {"prompts": {"query": "red sun . "}, "default_prompt_name": "query"}


@pytest.mark.parametrize("mode", POOLINGS)
@pytest.mark.parametrize("with_prompt", [True, False])
def test_poolings(base, tmp_path, mode, with_prompt):
    """Against the library in float64: two results in float32 differ by the rounding of both."""
    model = saved(base, tmp_path, {"pooling_mode": mode, "include_prompt": with_prompt}, length=12, **PROMPT)
    expected = model.double().encode(TEXTS, batch_size=2)
    # In float32 the library is as far from it: up to 9.3e-7 of the largest number with maxima, 7.3e-7 here.
    np.testing.assert_allclose(embed(tmp_path, TEXTS), expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("activation", ["Tanh", "Identity", "GELU", "ReLU", "SiLU", "Sigmoid", "ELU", "LeakyReLU"])
def test_dense_and_what_follows(base, tmp_path, activation):
    import torch
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm

    torch.manual_seed(0)
    dense = Dense(32, 16, bias=activation != "ReLU", activation_function=getattr(torch.nn, activation)())
    norm = LayerNorm(16)
    torch.nn.init.normal_(norm.norm.weight)
    model = saved(base, tmp_path, {"pooling_mode": "mean"}, dense, norm, Dropout(0.5), Normalize(), lower=True)
    np.testing.assert_allclose(embed(tmp_path, TEXTS), model.double().encode(TEXTS), rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def normalized(base, tmp_path_factory):
    """A folder of [CLS] and Normalize."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Normalize

    folder = tmp_path_factory.mktemp("normalized")
    return folder, saved(base, folder, {"pooling_mode": "cls"}, Normalize())


def test_older_folders_and_types(normalized, tmp_path):
    """Types of all versions, and the model in a folder of its own."""
    folder, model = normalized
    shutil.copytree(folder, tmp_path / "old")
    entries = json.loads((folder / "modules.json").read_text())
    kinds = "sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling.Pooling"
    kinds = *kinds, "sentence_transformers.sentence_transformer.modules.normalize.Normalize"
    paths = "0_Transformer", entries[1]["path"], entries[2]["path"]
    changed = [{**old, "type": kind, "path": path} for old, kind, path in zip(entries, kinds, paths, strict=True)]
    (tmp_path / "old" / "modules.json").write_text(json.dumps(changed))
    (tmp_path / "old" / "0_Transformer").mkdir()
    for path in (tmp_path / "old").glob("*"):
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(tmp_path / "old" / "0_Transformer" / path.name)
    np.testing.assert_allclose(embed(tmp_path / "old", TEXTS), model.encode(TEXTS), atol=1e-6)


def test_a_folder_is_exported_with_its_modules(normalized, tmp_path):
    """The library reads the export, and so does this one."""
    from sentence_transformers import SentenceTransformer

    folder, model = normalized
    code, _, err = call(export.main, f"--run={folder}", f"--to={tmp_path / 'again'}")
    assert code == 0, err
    expected = model.encode(TEXTS)
    np.testing.assert_allclose(embed(tmp_path / "again", TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "again")).encode(TEXTS), expected, atol=1e-6)


def test_predict_says_the_cosine_of_the_library(normalized):
    folder, model = normalized
    code, out, err = call(predict.main, f"--run={folder}", f"--text={TEXTS[0]}", f"--pair={TEXTS[1]}")
    assert code == 0, err
    assert "modules.json: first of the states, Normalize, texts cut at 64 tokens" in err
    x, y = model.encode(TEXTS[:2])
    assert float(out) == pytest.approx(float(x @ y), abs=1e-4)


FURTHER_PROMPTS = [
    {"prompts": {"passage": "red sun . "}},
    {"prompts": {"query": "red sun . "}, "default_prompt_name": "query"},
    {"prompts": {"document": "sun . ", "corpus": "sea "}, "default_prompt_name": "document"},
    {"prompts": {"query": "the " * 12}, "default_prompt_name": "query"},
]


@pytest.mark.parametrize("fields", FURTHER_PROMPTS)
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_a_search_has_the_prompts_of_both_roles(base, tmp_path, fields, similarity):
    """Those of encode_query and encode_document, which fall back to no default; and the similarity of the folder."""
    from sentence_transformers import SentenceTransformer

    settings = {"pooling_mode": "mean", "include_prompt": False}
    saved(base, tmp_path / "folder", settings, length=8, similarity_fn_name=similarity)
    path = tmp_path / "folder" / "config_sentence_transformers.json"
    kept = {name: value for name, value in json.loads(path.read_text()).items() if name != "prompts"}
    path.write_text(json.dumps(kept | fields))
    model = SentenceTransformer(str(tmp_path / "folder"), device="cpu")
    texts, index = tmp_path / "in.txt", tmp_path / "index"
    texts.write_text("\n".join(TEXTS) + "\n")
    assert call(main, f"--run={tmp_path / 'folder'}", f"--file={texts}", f"--index={index}")[0] == 0
    code, out, err = call(search.main, f"--index={index}", "--query=the dog sat", f"--nearest={len(TEXTS)}")
    assert code == 0, err
    rows = [line.split("\t") for line in out.splitlines()]
    scores = model.similarity(model.encode_query(["the dog sat"]), model.encode_document(TEXTS)).numpy()[0]
    assert {int(row): float(score) for score, row, _ in rows} == {
        row + 1: pytest.approx(float(score), rel=2e-4, abs=2e-4) for row, score in enumerate(scores)
    }


def test_flags_override(normalized, tmp_path):
    """A pooling in place of the folder's, windows in place of a cut, no prompt; and the start says what is applied."""
    folder, model = normalized
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    code, _, err = call(
        main, f"--run={folder}", f"--file={tmp_path / 'in.txt'}", f"--to={tmp_path / 'x.npy'}", "--pool=max"
    )
    assert code == 0, err
    assert "modules.json: max of the states, Normalize, texts cut at 64 tokens" in err
    assert not np.allclose(np.load(tmp_path / "x.npy"), model.encode(TEXTS), atol=0.1)
    code, _, err = call(main, f"--run={folder}", "--prompt=answer", f"--file={tmp_path / 'in.txt'}", "--to=x.npy")
    assert (code, "--prompt=answer is no prompt of" in err) == (2, True)

"""Small folders whose ids, blanks or pictures transformers 5 reads in another way than 4 did; values by hand.

Positions, kinds of layers and tied tensors are in tests/hf/test_regressions.py.
"""

import json

import numpy as np
import pytest
from hf.test_regressions import BERT, save
from PIL import Image
from small import call
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tfm.config.model import Config
from train import predict
from train.images import palette
from train.text import hf_tokenizer

# Bytes and pairs of them: a merge joins digits, and a digit with the space before it, where nothing keeps them apart.
PIECES = ["<unk>", "<s>", "</s>", "Ġ", "2", "0", "3", "a", "20", "Ġ20", "Ġa"]
MERGES = [("2", "0"), ("Ġ", "20"), ("Ġ", "a")]
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\d"), "isolated"), BYTES])


def ids(folder, text):
    """Those of a folder's tokenizer, without marks."""
    return hf_tokenizer.read(folder, Config(vocab=128)).encode(text, add_special_tokens=False).ids


def write(folder, **files):
    """Files of JSON, by their names without the ending."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


# ---------------------------------------------------------------- ids


@pytest.mark.filterwarnings("ignore:.*tokenizer.json is followed")
@pytest.mark.parametrize("name", ["GPT2Tokenizer", "LlamaTokenizer", "LlamaTokenizerFast", "Qwen2Tokenizer"])
@pytest.mark.parametrize(
    ("words", "expected"), [(DIGITS, [7, 3, 4, 5, 4, 6, 10]), (BYTES, [7, 9, 4, 6, 10])], ids=["digits", "bytes"]
)
def test_words_are_cut_as_tokenizer_json_says(tmp_path, name, words, expected):
    """In version 5.24 two classes have rules of their own: GPT2Tokenizer joins digits, and Qwen2Tokenizer cuts them."""
    tokenizer = Tokenizer(models.BPE({piece: token for token, piece in enumerate(PIECES)}, MERGES, unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = words, decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, tokenizer_config={"tokenizer_class": name, "eos_token": "</s>", "unk_token": "<unk>"})
    assert ids(tmp_path, "a 2023 a") == expected


# ---------------------------------------------------------------- blanks


def test_a_blank_takes_the_space_before_it(tmp_path):
    """The mask of RoBERTa says so, in a file that gives no other token."""
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "Ġ": 5, "Ġa": 6, "<mask>": 7}
    mask = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False}
    write(tmp_path, vocab=vocab, tokenizer_config={"tokenizer_class": "RobertaTokenizer", "mask_token": mask})
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ a\n")
    assert ids(tmp_path, "a <mask> a") == [4, 7, 6]
    write(tmp_path, tokenizer_config={"tokenizer_class": "RobertaTokenizer", "mask_token": mask | {"lstrip": False}})
    assert ids(tmp_path, "a <mask> a") == [4, 5, 7, 6]


@pytest.mark.parametrize("bias", ["cls.predictions.bias", "cls.predictions.decoder.bias"])
def test_a_blank_is_filled_by_the_bias_of_the_output(tmp_path, bias):
    """Of two names of one bias a folder has either; where version 5 misses it, the word is that of an empty bias."""

    def edit(arrays):
        arrays[bias] = 50 * np.eye(11, dtype=np.float32)[7] + 0 * arrays.pop("cls.predictions.bias")

    save(tmp_path, BERT | {"max_position_embeddings": 16}, edit)
    write(tmp_path, tokenizer_config={"tokenizer_class": "BertTokenizer"})
    (tmp_path / "vocab.txt").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] the a cat sat on sea".split()) + "\n")
    code, out, err = call(predict.main, f"--run={tmp_path}", "--text=the [MASK] sat", "--top-k=1")
    assert code == 0, err
    assert out.split()[0] == "cat"


# ---------------------------------------------------------------- pictures


@pytest.mark.parametrize(
    "files",
    [
        {"processor_config": {"processor_class": "CLIPProcessor", "image_processor": {"image_processor_type": "CLIP"}}},
        {"preprocessor_config": {"image_processor_type": "CLIP"}},
        {"preprocessor_config": {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224}},
    ],
    ids=["version 5", "version 4", "older"],
)
@pytest.mark.parametrize("ending", ["ImageProcessor", "ImageProcessorFast"])
def test_pixels_of_a_white_picture(tmp_path, files, ending):
    """(1 - mean) / deviation of CLIP, whatever the file is called and whoever wrote it."""
    text = json.dumps(files).replace('"image_processor_type": "CLIP"', f'"image_processor_type": "CLIP{ending}"')
    write(tmp_path, **json.loads(text))
    processor = palette.read_hf(tmp_path, Config())
    white = processor.normalize(processor.prepare(Image.new("RGB", (300, 260), "white")))
    deviations = (0.26862954, 0.26130258, 0.27577711)
    expected = (1 - np.array([0.48145466, 0.4578275, 0.40821073])) / deviations
    np.testing.assert_allclose(white[5, 7], expected, rtol=1e-5)

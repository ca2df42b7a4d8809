"""Small folders of tokenizers: with a tokenizer.json, and with the files of a class alone."""

import json
from types import SimpleNamespace

from sentencepiece_files import model
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from train.text import tokenizer_classes

SPACE = "\u2581"
BYTES = {f"<0x{byte:02X}>": index for index, byte in enumerate(range(256), start=9)}
WORDS = {text: index for index, text in enumerate(("<unk>", "<s>", "</s>", SPACE, "a", "b", f"{SPACE}a", "c", "ab"))}
WORDS |= BYTES
SIZES = SimpleNamespace(vocab=1000)


def write(folder, files, model_type="", **fields):
    """A folder of these files and fields of tokenizer_config.json."""
    contents = {"config.json": {"model_type": model_type} if model_type else {}, "tokenizer_config.json": fields}
    for name, content in (contents | files).items():
        content = content if isinstance(content, str | bytes) else json.dumps(content)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def llama(**parts):
    """A tokenizer.json as the class of Llama makes it, but for some parts; `model` changes the model."""
    options = {"fuse_unk": True, "byte_fallback": True, **parts.pop("model", {})}
    tokenizer = Tokenizer(models.BPE(WORDS, [(SPACE, "a")], **options))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first", split=False)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B")
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return {"tokenizer.json": tokenizer.to_str()}


def of_llama(folder, files, **fields):
    return write(folder, files, "llama", **{"tokenizer_class": "LlamaTokenizer", "legacy": False, **fields})


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]


def bert(folder, **changes):
    """A folder of BERT's class with tokenizer.json, whose fields are changed."""
    write(folder, {"vocab.txt": "\n".join(BERT) + "\n"}, "bert", tokenizer_class="BertTokenizer")
    saved = json.loads(tokenizer_classes.read(folder).to_str())
    (folder / "tokenizer.json").write_text(json.dumps(saved | {name: saved[name] | changes[name] for name in changes}))
    return folder


XLM_R = {"sentencepiece.bpe.model": model(SPACE, f"{SPACE}a", "b")}
M2M_100 = {
    "vocab.json": {text: index for index, text in enumerate(("<s>", "<pad>", "</s>", "<unk>", SPACE, f"{SPACE}a"))},
    "sentencepiece.bpe.model": model(SPACE, f"{SPACE}a", kind=2),
}


def spaced(folder, **changes):
    """A folder of mBART-50's class with tokenizer.json, whose fields are changed, and whose config.json is of mBART."""
    path = write(folder, XLM_R, "mbart", tokenizer_class="MBart50Tokenizer", additional_special_tokens=["de_DE"])
    saved = json.loads(tokenizer_classes.read(path).to_str())
    (path / "tokenizer.json").write_text(json.dumps(saved | changes))
    return path


def nllb(folder, **fields):
    """A folder of NLLB's class with tokenizer.json, one language and fields of tokenizer_config.json."""
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, SPACE: 4, f"{SPACE}a": 5}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always")
    tokenizer.decoder = decoders.Metaspace(SPACE, "always")
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "deu_Latn", AddedToken("<mask>", lstrip=True)])
    frame = {"special_tokens": [("</s>", 2), ("deu_Latn", 6)]}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="deu_Latn $A </s>", pair="deu_Latn $A $B </s>", **frame
    )
    files = {"tokenizer.json": tokenizer.to_str()}
    return write(folder, files, "m2m_100", **{"tokenizer_class": "NllbTokenizer", "src_lang": "deu_Latn"} | fields)

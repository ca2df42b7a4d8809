"""Models of several languages against transformers: ids of texts, and translations into a language."""

import json

import pytest
from sentencepiece_files import m2m_100, pieces

from tfm.options.json_text import read_object
from train.export import main as export
from train.generate import main
from train.text import hf_tokenizer, languages
from train.text.same_ids import STRINGS

pytestmark = pytest.mark.parity

SIZES = dict(
    d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=80, init_std=0.4, decoder_start_token_id=2,
    pad_token_id=1, bos_token_id=0, eos_token_id=2, forced_eos_token_id=None,
)  # fmt: skip


def sentencepiece(**options):
    return lambda: pieces("sentencepiece.bpe.model", normalization_rule_name="identity", **options)


# A case: the class, the files, the model, source and target, fields of the tokenizer, and whether it is saved anew.
CASES = {
    "M2M100": ("M2M100Tokenizer", m2m_100, "M2M100", "de", "fr", {}, False),
    "MBart": ("MBartTokenizer", sentencepiece(), "MBart", "de_DE", "fr_XX", {}, False),
    "MBart50": ("MBart50Tokenizer", sentencepiece(), "MBart", "de_DE", "fr_XX", {}, False),
    "MBart50 saved": ("MBart50Tokenizer", sentencepiece(), "MBart", "de_DE", "fr_XX", {}, True),
    "Nllb": ("NllbTokenizer", sentencepiece(model_type="bpe"), "M2M100", "deu_Latn", "fra_Latn", {}, False),
    "Nllb saved": ("NllbTokenizer", sentencepiece(model_type="bpe"), "M2M100", "deu_Latn", "fra_Latn", {}, True),
    "Nllb of old": (
        *("NllbTokenizer", sentencepiece(model_type="bpe"), "M2M100", "deu_Latn", "fra_Latn"),
        *({"legacy_behaviour": True}, True),
    ),
}


def numbered(path):
    """The tokens of NLLB by their ids, as its folder has them; else transformers 5 puts the mask before languages."""
    from sentencepiece import SentencePieceProcessor

    first = SentencePieceProcessor(model_file=str(path / "sentencepiece.bpe.model")).get_piece_size() + 1
    tokens = dict(enumerate([*languages.NLLB, "<mask>"], start=first)) | dict(
        enumerate(["<s>", "<pad>", "</s>", "<unk>"])
    )
    return {str(index): {"content": token, "special": True, "normalized": False} for index, token in tokens.items()}


@pytest.mark.parametrize("case", CASES)
def test_texts_and_translations_are_those_of_transformers(case, tmp_path, capsys):
    import torch
    import transformers

    name, files, model, source, target, fields, saves = CASES[case]
    for file, content in files().items():
        (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    scheme = languages.SCHEMES[name]
    codes = {"M2M100Tokenizer": languages.M2M_100, "NllbTokenizer": languages.NLLB}.get(name)
    tokens = [scheme.token.format(code) for code in codes or [*languages.MBART, *languages.MBART_50]]
    options = {"tokenizer_class": name, **fields}
    if codes:
        options["additional_special_tokens"] = tokens
    if name == "NllbTokenizer":
        options["added_tokens_decoder"] = numbered(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    tokenizer = getattr(transformers, name).from_pretrained(tmp_path, src_lang=source)
    if saves:
        tokenizer.save_pretrained(tmp_path)
        (tmp_path / "sentencepiece.bpe.model").unlink()
    torch.manual_seed(0)
    config = getattr(transformers, f"{model}Config")(vocab_size=len(tokenizer), **SIZES)
    reference = getattr(transformers, f"{model}ForConditionalGeneration")(config).eval()
    reference.save_pretrained(tmp_path)
    sizes = read_object(tmp_path / "config.json")

    class Model:
        vocab = sizes["vocab_size"]

    own = hf_tokenizer.read(tmp_path, Model)
    (tmp_path / "texts.txt").write_text("\n".join(" ".join(text.split()) for text in STRINGS))
    flags = [f"--source={source}", f"--target={target}", "--strategy=greedy", "--max-new-tokens=12", "--batch=8"]
    flags.append(f"--to={tmp_path / 'written.jsonl'}")
    assert main([f"--run={tmp_path}", f"--file={tmp_path / 'texts.txt'}", *flags]) == 0
    rows = [json.loads(row) for row in (tmp_path / "written.jsonl").read_text().split("\n") if row]
    token = tokenizer.convert_tokens_to_ids(scheme.token.format(target))
    texts = [" ".join(text.split()) for text in STRINGS]
    for text, row in zip(texts, rows, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        spoken = languages.of(own)
        prefix, suffix = spoken.frame(spoken.ids[source])
        ids = own.encode(text, add_special_tokens=False).ids
        assert [*prefix, *ids, *suffix] == inputs.input_ids[0].tolist(), text
        written = reference.generate(
            **inputs, forced_bos_token_id=token, max_new_tokens=12, num_beams=1, do_sample=False
        )
        assert row["completion"].strip() == tokenizer.decode(written[0], skip_special_tokens=True).strip()
    assert main([f"--run={tmp_path}", "--prompt=a", "--strategy=greedy"]) == 2
    assert "say --target=LANG" in capsys.readouterr().err
    assert export([f"--run={tmp_path}", f"--to={tmp_path / 'again'}"]) == 0

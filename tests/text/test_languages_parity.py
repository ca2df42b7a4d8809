"""Models of several languages against transformers: ids of texts, and translations into a language."""

import json

import pytest
from sentencepiece_files import m2m_100, pieces

from tfm.options.json_text import read_object
from train.export import main as export
from train.generate import main
from train.main import main as train
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


@pytest.mark.parametrize("name", ["MBart50Tokenizer", "MBartTokenizer"])
@pytest.mark.slow
def test_a_run_that_is_exported_keeps_its_languages(name, tmp_path):
    """Without a step, from a folder that names no target; transformers writes the export's language unasked."""
    import torch
    import transformers

    for file, content in sentencepiece()().items():
        (tmp_path / file).write_bytes(content)
    tokens = [*languages.MBART, *languages.MBART_50] if "50" in name else languages.MBART
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    tokenizer = getattr(transformers, name).from_pretrained(tmp_path, src_lang="de_DE", tgt_lang="fr_XX")
    assert tokenizer.convert_tokens_to_ids(tokens[-1]) > 0
    torch.manual_seed(0)
    config = transformers.MBartConfig(vocab_size=len(tokenizer), **SIZES)
    reference = transformers.MBartForConditionalGeneration(config).eval()
    reference.save_pretrained(tmp_path)
    texts = [" ".join(text.split()[:5]) for text in STRINGS[:3]]
    for side in ("en", "de"):
        (tmp_path / f"x.{side}").write_text("\n".join(texts * 8) + "\n")
    flags = "--task.source-language=de_DE --task.target-language=fr_XX --batch.length=40 --batch.tokens=160 --steps=1"
    flags += " --optim.rate=0 --eval.final=false --task.bleu=0"
    run, written = tmp_path / "run", tmp_path / "written"
    data = f"--data={tmp_path}/x.en,{tmp_path}/x.de"
    assert train(["--task=translate", f"--init={tmp_path}", data, f"--out={run}", *flags.split()]) == 0
    assert export([f"--run={run}", f"--to={written}"]) == 0
    again = transformers.AutoTokenizer.from_pretrained(written)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(written).eval()
    options = {"max_new_tokens": 12, "num_beams": 1, "do_sample": False}
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt")
        assert again(text).input_ids == inputs.input_ids[0].tolist(), text
        first = tokenizer.convert_tokens_to_ids("fr_XX")
        expected = reference.generate(**inputs, forced_bos_token_id=first, **options)
        assert model.generate(inputs.input_ids, **options).tolist() == expected.tolist()

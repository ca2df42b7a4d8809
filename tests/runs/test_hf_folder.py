"""Folders of transformers in the commands of the trainer: texts are marked as their tokenizers do it."""

import json
from pathlib import Path

import numpy as np
import pytest
from hf_models import MODELS, global_tokens, inputs, torch_model  # noqa: F401
from small import call
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from train import UserError
from train.data import pairs
from train.data.tokens import in_memory
from train.evaluate import main as evaluate
from train.export import main as export
from train.generate import main as generate
from train.main import main
from train.settings.schema import Batch
from train.tasks.translate.rows import RowOptions, TranslationPairs
from train.text import tokenize

WORDS = [f"w{n}" for n in range(98)]


def tokenizer(processor=None):
    """Words, behind the special tokens of BART."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = Tokenizer(models.WordLevel({name: n for n, name in enumerate([*names, *WORDS])}, unk_token="<unk>"))
    words.add_special_tokens(names)
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    if processor is not None:
        words.post_processor = processor
    return words


def template(single):
    return processors.TemplateProcessing(single=single, special_tokens=[("<s>", 0), ("</s>", 2)])


BART = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))


def test_marks():
    assert (
        tokenize.sequence_template(tokenizer())[:4]
        == tokenize.sequence_template(tokenizer(BART))[:4]
        == ([], [2], 0, 1)
    )
    assert tokenize.sequence_template(tokenizer(BART), "</s>")[:4] == ([0], [2], 2, 1)
    assert tokenize.sequence_template(tokenizer(template("$A </s>")), "<pad>")[:4] == ([], [2], 1, 1)
    assert tokenize.sequence_template(tokenizer(), "<pad>")[:4] == ([], [2], 1, 1)
    with pytest.raises(
        UserError, match="--task.start=</S> is no token of the tokenizer; leave it out, or name one such as <s>"
    ):
        tokenize.sequence_template(tokenizer(), "</S>")
    assert tokenize.prefix_tokens(tokenizer(template("<s> $A"))) == [0]
    assert tokenize.prefix_tokens(tokenizer()) == []


def test_two_marks_between_the_texts_of_a_pair():
    specials = tokenize.special_tokens(tokenizer(BART))
    assert tokenize.pair_separators(tokenizer(BART)) == 2
    row, second = pairs.join([np.array([7, 8, 9]), np.array([5, 6])], 9, specials, 2)
    assert row.tolist() == tokenizer(BART).encode("w2 w3 w4", "w0 w1").ids == [0, 7, 8, 9, 2, 2, 5, 6, 2]
    assert second == 6
    assert pairs.join([np.array([7, 8, 9]), np.array([5, 6])], 8, specials, 2)[0].tolist() == [0, 7, 8, 2, 2, 5, 6, 2]
    assert tokenize.pair_separators(tokenizer()) == 1


def test_rows_of_pairs_are_what_transformers_makes_of_them():
    """The target is shifted to the right behind the token that starts it; a row without a pair is empty."""
    texts = [("w2 w3 w4", "w0"), ("w5", "w6 w7")]
    marked = tokenizer(BART)
    sides = [in_memory(marked, side) for side in zip(*texts, strict=True)]
    batch, template = Batch(tokens=16, length=8, multiple=2), tokenize.sequence_template(marked, "</s>")
    rows = TranslationPairs(texts, sides, batch, template, RowOptions(0.0, 1, pack=False))
    batch = rows.batch(np.array([0, 1, -1]))
    empty = dict.fromkeys(("tokens", "target", "targets"), marked.token_to_id("<pad>"))
    assert all((field[2] == empty.get(name, 0)).all() for name, field in batch.items())
    for b, (source, target) in enumerate(texts):
        ids, labels = marked.encode(source).ids, marked.encode(target).ids
        assert batch["tokens"][b, batch["segments"][b] > 0].tolist() == ids
        assert batch["targets"][b, batch["weights"][b] > 0].tolist() == labels
        assert batch["target"][b, batch["weights"][b] > 0].tolist() == [2, *labels[:-1]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models for translation and for text that transformers wrote, with tokenizers."""
    home = tmp_path_factory.mktemp("folders")
    for name, architecture, processor in (
        ("bart", "BartForConditionalGeneration", BART),
        ("led_windows", "LEDForConditionalGeneration", BART),
        ("llama", "LlamaForCausalLM", template("<s> $A")),
        ("gpt_neo", "GPTNeoForCausalLM", template("<s> $A")),
    ):
        torch_model(name, architecture).save_pretrained(home / name)
        if processor is BART:
            generation = home / name / "generation_config.json"
            generation.write_text(json.dumps(json.loads(generation.read_text()) | {"forced_bos_token_id": 0}))
        tokenizer(processor).save(str(home / name / "tokenizer.json"))
        options = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "bos_token": "<s>",
        }
        (home / name / "tokenizer_config.json").write_text(json.dumps(options))
    return home


@pytest.mark.parity
@pytest.mark.parametrize("name", ["bart", "led_windows", "llama", "gpt_neo"])
def test_texts_are_those_of_transformers(name, folders):
    import torch
    import transformers

    folder, translates = folders / name, name in ("bart", "led_windows")
    kind = "AutoModelForSeq2SeqLM" if translates else "AutoModelForCausalLM"
    prompt = "w5 w17 w3"
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    read = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = read(prompt, return_tensors="pt", return_token_type_ids=False)
    for beams in (1, 3):
        settings = {
            "max_new_tokens": 6,
            "do_sample": False,
            "num_beams": beams,
            "length_penalty": 0.0,
            "eos_token_id": 2,
        }
        settings |= {"forced_bos_token_id": 0} if translates else {}
        settings |= global_tokens(model, encoded["input_ids"])
        with torch.no_grad():
            written = read.decode(model.generate(**encoded, **settings, pad_token_id=1)[0], skip_special_tokens=True)
        strategy = [f"--beams={beams}", "--strategy=beam", "--length-penalty=0"] if beams > 1 else ["--strategy=greedy"]
        flags = (f"--prompt={prompt}", "--max-new-tokens=6", *strategy)
        code, out, err = call(generate, f"--run={folder}", *flags)
        assert (code, out.split()) == (0, written.split()), err


@pytest.mark.parity
def test_a_run_that_began_with_a_folder_marks_texts_as_it_and_is_exported_so(folders, tmp_path):
    """Without a step, translations are those of the folder, in transformers too."""
    import torch
    import transformers

    for language, text in (("en", "w5 w17 w3"), ("de", "w9 w8")):
        (tmp_path / f"x.{language}").write_text("".join(f"{text} w{n}\n" for n in range(40)))
    flags = f"--task=translate --init={folders / 'bart'} --data={tmp_path}/x.en,{tmp_path}/x.de "
    flags += "--batch.length=8 --batch.tokens=64 --steps=1"
    code, _, err = call(
        main, *flags.split(), "--optim.rate=0", "--eval.final=false", "--task.bleu=0", f"--out={tmp_path}/run"
    )
    assert code == 0, err
    code, _, err = call(export, f"--run={tmp_path}/run", f"--to={tmp_path}/bart")
    assert code == 0, err
    fields = json.loads((tmp_path / "bart/generation_config.json").read_text())
    assert [fields.get(f"{name}_token_id") for name in ("decoder_start", "forced_bos", "forced_eos")] == [2, 0, None]
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "bart")
    encoded = read("w5 w17 w3", return_tensors="pt")
    assert encoded["input_ids"].tolist() == [[0, 10, 22, 8, 2]]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "bart").eval()
    with torch.no_grad():
        written = read.decode(model.generate(**encoded, max_new_tokens=6, num_beams=1)[0], skip_special_tokens=True)
    for run in (folders / "bart", tmp_path / "run", tmp_path / "bart"):
        code, out, err = call(generate, f"--run={run}", "--prompt=w5 w17 w3", "--max-new-tokens=6", "--strategy=greedy")
        assert (code, out.split()) == (0, written.split()), err


@pytest.mark.parity
def test_the_loss_is_that_of_transformers(folders, tmp_path):
    import torch
    import transformers

    pair = ("w5 w17 w3", "w9 w8")
    folder = folders / "bart"
    for language, text in zip(("en", "de"), pair, strict=True):
        (tmp_path / f"x.{language}").write_text(f"{text}\n" * 3)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    read = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = read(pair[0], text_target=pair[1], return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        expected = model(**tokens).loss.item()
    code, out, err = call(evaluate, f"--run={folder}", f"--data={tmp_path}/x.en,{tmp_path}/x.de")
    assert code == 0, err
    np.testing.assert_allclose(json.loads(out)["loss"], expected, rtol=1e-4)
    assert Path(folder / "config.json").exists()

"""What stands around texts of models with several languages, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tfm.hf.generation import FolderGeneration
from train import UserError
from train.data.tokens import TokenizedTexts
from train.settings.schema import Batch
from train.tasks.translate import marks
from train.tasks.translate.options import Translate
from train.tasks.translate.rows import RowOptions, TranslationPairs
from train.tasks.translate.task import hf_run_values
from train.text import languages
from train.text.special import ConfiguredTokenizer

WORDS = "<s> <pad> </s> <unk> en_XX fr_XX de_DE a b".split()


def tokenizer(name, words=WORDS, **generation):
    model = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, "<unk>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model.add_special_tokens([word for word in words if len(word) > 1])
    fields = {"eos_token": "</s>", "pad_token": "<pad>", languages.FIELD: name}
    return ConfiguredTokenizer(model, fields, generation=FolderGeneration(generation, "generation_config.json"))


def task(start="</s>", source="", target="fr_XX"):
    return Translate(start=start, source_language=source, target_language=target)


def test_a_language_stands_before_a_text_or_behind_its_end():
    template = marks.template(tokenizer("MBart50Tokenizer"), task(source="de_DE"))
    assert template[:3] == ([6], [2], 2)
    assert template.target == ([5], [2])
    assert template.decoder_prefix == [2, 5]
    template = marks.template(tokenizer("MBartTokenizer"), task())
    assert template[:3] == ([], [2, 4], 2), "en_XX is the language of mBART's texts"
    assert template.target == ([], [2, 5])
    assert template.decoder_prefix == [2]


def test_a_written_tokenizer_marks_sources_with_the_language_of_the_run():
    assert marks.text_template(tokenizer("MBart50Tokenizer"), task(source="de_DE"))[0] == "de_DE $A </s>"
    assert marks.text_template(tokenizer("MBartTokenizer"), task()) == ("$A </s> en_XX", "$A $B </s> en_XX")
    assert marks.text_template(tokenizer("BartTokenizer"), task(target="")) == ()
    spoken = {"src_lang": "de_DE", "tgt_lang": "fr_XX"}
    assert marks.named_languages(tokenizer("MBart50Tokenizer"), task(source="de_DE")) == spoken
    assert marks.named_languages(tokenizer("BartTokenizer"), task(target="")) == {}


def test_nllb_may_have_both_forms():
    nllb = tokenizer("NllbTokenizer", [*WORDS, "eng_Latn", "fra_Latn"])
    assert marks.template(nllb, task(target="fra_Latn"))[:2] == ([9], [2])
    nllb.fields["legacy_behaviour"] = True
    assert marks.template(nllb, task(target="fra_Latn"))[:2] == ([], [2, 9])


def test_the_first_token_is_the_language_of_the_target():
    generation = marks.generation(tokenizer("MBart50Tokenizer", forced_bos_token_id=6), task())
    assert generation.values == {"forced_bos_token_id": 5}
    starts = task(start="de_DE")
    assert marks.template(tokenizer("MBartTokenizer"), starts).decoder_start == 5, "it starts with a language"
    assert marks.generation(tokenizer("MBartTokenizer"), starts).values == {}


def test_languages_that_a_folder_names_itself():
    options = marks.of_folder(tokenizer("MBart50Tokenizer", forced_bos_token_id=6), 2)
    assert options == {"task.source_language": "en_XX", "task.target_language": "de_DE"}
    assert marks.of_folder(tokenizer("MBartTokenizer"), 5)["task.target_language"] == "fr_XX"
    assert marks.of_folder(tokenizer("MBartTokenizer"), 2)["task.target_language"] == ""
    assert marks.of_folder(tokenizer("BartTokenizer"), 2) == {}
    with pytest.warns(UserWarning, match="decoder_start_token_id=7, '.*', is no special token: transformers writes it"):
        assert marks.of_folder(tokenizer("BartTokenizer"), 7) == {}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("MBartTokenizer", {"target": ""}, r"into 3 languages; say --target=LANG, such as en_XX, fr_XX"),
        ("MBartTokenizer", {"target": "fr"}, "--target=fr is no language of the model, which has en_XX, fr_XX, de_DE"),
        ("MBart50Tokenizer", {"source": "en_X"}, "--source=en_X is .*did you mean en_XX"),
        ("BartTokenizer", {}, "--target=fr_XX names a language, and the model marks none; leave it out"),
    ],
)  # fmt: skip
def test_languages_that_are_refused(name, options, message):
    with pytest.raises(UserError, match=message):
        marks.template(tokenizer(name), task(**options))


def test_sides_of_a_pair_have_their_languages():
    side = TokenizedTexts(np.array([7]), np.array([0, 1]))
    template = marks.template(tokenizer("MBart50Tokenizer"), task())
    batch = Batch(tokens=16, length=8, multiple=2)
    rows = TranslationPairs([("a", "a")], [side, side], batch, template, RowOptions(0.0, 1, pack=False))
    fields = rows.batch(np.array([0]))
    assert fields["tokens"][0, :3].tolist() == [4, 7, 2]
    assert fields["targets"][0, :3].tolist() == [5, 7, 2]
    assert fields["target"][0, :3].tolist() == [2, 5, 7]


@pytest.mark.parametrize(
    ("values", "fields", "start"),
    [
        ({"decoder_start_token_id": 2, "bos_token_id": 0}, {"decoder_start_token_id": 3}, "</s>"),
        ({"decoder_start_token_id": [4, 5]}, {}, "en_XX"),
        ({"bos_token_id": 0}, {}, "<s>"),  # as transformers, where generation_config.json names no first token
        ({"bos_token_id": 0}, {"pad_token_id": 1}, "<s>"),
        ({"bos_token_id": 0}, {"decoder_start_token_id": 0}, "<s>"),
        ({}, {"decoder_start_token_id": 2, "bos_token_id": 0}, "</s>"),
        ({}, {"bos_token_id": 0, "pad_token_id": 1}, "<s>"),
        ({}, {"pad_token_id": 1}, "<pad>"),
        (
            {"bos_token_id": 0},
            {"decoder_start_token_id": 2},
            "decoder_start_token_id=2, .* begin with its bos_token_id=0",
        ),
        ({}, {"decoder_start_token_id": 99}, "decoder_start_token_id=99 must be a token"),
    ],
)
def test_the_first_token_of_a_decoder(values, fields, start):
    folder = SimpleNamespace(path="folder", fields=fields)
    processor = tokenizer("BartTokenizer", **values)
    if "_id" not in start:
        assert hf_run_values("seq2seq", folder, processor)["task.start"] == start
        return
    with pytest.raises(UserError, match=start):
        hf_run_values("seq2seq", folder, processor)

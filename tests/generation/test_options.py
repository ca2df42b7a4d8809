"""Options of train.generate: the strategy that flags belong to, and the strategies of tfm that they describe."""

import dataclasses
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import tfm
from tfm.decoding import sampling
from tfm.hf.generation import read_generation
from train import UserError
from train.generation.defaults import choose
from train.generation.options import FILTERS, STRATEGY_FLAGS, GenerateOptions, choose_strategy
from train.settings import flags
from train.text.special import ConfiguredTokenizer

STRATEGIES = [
    ("", ""),
    ("max_new_tokens n", ""),
    ("seed", "sample"),
    ("top_k repetition_penalty", "sample"),
    ("repetition_penalty", "sample"),
    ("logprobs", "sample"),
    ("beams", "beam"),
    ("length_penalty coverage", "beam"),
]


@pytest.mark.parametrize(("names", "strategy"), STRATEGIES)
def test_flags_choose_their_strategy(names, strategy):
    assert choose_strategy(dict.fromkeys(names.split(), 1)) == strategy


def test_a_named_strategy_takes_its_own_flags_and_no_others():
    names = sorted({flag for owned in STRATEGY_FLAGS.values() for flag in owned})
    for strategy, owned in STRATEGY_FLAGS.items():
        for flag in names:
            if flag in owned:
                assert choose_strategy({"strategy": strategy, flag: 1}) == strategy
            else:
                with pytest.raises(UserError, match=f"belongs to --strategy=.*, not to {strategy}; leave it out"):
                    choose_strategy({"strategy": strategy, flag: 1})


def test_flags_that_exclude_tokens_are_those_of_the_library():
    assert FILTERS == sampling.FILTERS


def test_every_flag_of_a_strategy_is_an_option():
    names = {field.name for field in dataclasses.fields(GenerateOptions)}
    assert all(flag in names for owned in STRATEGY_FLAGS.values() for flag in owned)


def test_flags_that_are_off_are_none():
    options = GenerateOptions(run="run")
    assert options.greedy() == tfm.Greedy()
    assert options.sample(3) == tfm.Sample(temperature=0.8, seed=3)
    assert options.beam() == tfm.Beam(width=4, groups=1, diversity=0.5, length_penalty=0.6)


def test_flags_reach_the_strategies():
    sampling = GenerateOptions(run="run", repetition_penalty=1.5, temperature=0.5, top_k=7, top_p=0.9, min_p=0.1)
    assert sampling.greedy() == tfm.Greedy(repetition_penalty=1.5)
    assert sampling.sample() == tfm.Sample(repetition_penalty=1.5, temperature=0.5, top_k=7, top_p=0.9, min_p=0.1)
    beam = GenerateOptions(
        run="run", beams=6, beam_groups=3, diversity=1.0, length_penalty=0.2, coverage=0.3, early_stopping=True
    )
    assert beam.beam() == tfm.Beam(6, 3, diversity=1.0, length_penalty=0.2, coverage=0.3, early_stopping=True)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"beams": 4, "beam_groups": 3}, "--beam-groups=3 must divide beams=4"),
        ({"beam_groups": 0}, "--beam-groups=0 must be at least 1"),
        ({"coverage": -1.0}, "--coverage=-1.0 must be at least 0; --coverage=0 turns it off"),
        ({"top_k": -1}, "--top-k=-1 must be at least 1, or none"),
        ({"temperature": 0.0}, "--temperature=0.0 must be above 0; use --strategy=greedy for the most probable token"),
        ({"seed": -1}, "--seed=-1 must be at least 0"),
    ],
)
def test_errors_say_flags(values, sentence):
    with pytest.raises(UserError) as caught:
        flags.build(GenerateOptions, {"run": "run", **values})
    assert str(caught.value) == sentence


def test_stops():
    assert GenerateOptions(run="run", stop="a| b|\\n|").stops == ["a", " b", "\n"]


def test_a_field_of_a_folder_is_named_as_its_file_has_it(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"max_new_tokens": 0}')
    tokenizer = ConfiguredTokenizer(Tokenizer(WordLevel({"a": 0})), {}, generation=read_generation(tmp_path, {}))
    model = SimpleNamespace(vocab=1, padded_vocab=128)
    folder = SimpleNamespace(
        config=SimpleNamespace(task=None, model=model), task=SimpleNamespace(generates="text"), processor=tokenizer
    )
    with pytest.raises(UserError, match="generation_config.json: max_new_tokens=0 must be at least 1"):
        choose(folder, GenerateOptions(run="folder", prompt="a"), {}, "", "sample")

"""What folders say of generation: which file counts, what is refused, and constraints by hand."""

import json
import re

import numpy as np
import pytest

from tfm.hf.generation import MEANINGLESS, READ, REFUSED, REFUSED_DRAWS, read_generation


def generation(folder, fields=(), **file):
    if file:
        (folder / "generation_config.json").write_text(json.dumps(file))
    return read_generation(folder, dict(fields))


def test_the_tables_are_disjoint():
    names = [*READ, *REFUSED, *REFUSED_DRAWS, *MEANINGLESS]
    assert len(names) == len(set(names))


def test_config_json_counts_only_without_the_file(tmp_path):
    fields = {"eos_token_id": 5, "num_beams": 4, "hidden_size": 32}
    assert generation(tmp_path, fields).values == {"eos_token_id": 5, "num_beams": 4}
    assert generation(tmp_path, fields, eos_token_id=[7, 8]).values == {"eos_token_id": [7, 8]}
    assert generation(tmp_path, fields, eos_token_id=[7, 8]).stop == [7, 8]


def test_old_bart_forces_its_first_token(tmp_path):
    fields = {"bos_token_id": 0, "force_bos_token_to_be_generated": True}
    assert generation(tmp_path, fields).values["forced_bos_token_id"] == 0


@pytest.mark.parametrize(
    ("file", "strategy"),
    [
        ({"eos_token_id": 2}, ""),
        ({"do_sample": True}, "sample"),
        ({"do_sample": False}, "greedy"),
        ({"num_beams": 4}, "beam"),
        ({"num_beams": 1}, "greedy"),
    ],
)
def test_the_strategy_of_a_folder(tmp_path, file, strategy):
    assert generation(tmp_path, **file).strategy == strategy


def test_what_is_refused_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"num_beams=2 and do_sample=true, draws within beams"):
        _ = generation(tmp_path, num_beams=2, do_sample=True).strategy
    with pytest.raises(ValueError, match=r"num_beams='many' must be a whole number"):
        generation(tmp_path, num_beams="many")
    with pytest.raises(ValueError, match=re.escape("generation_config.json has guidance_scale=2.0, which is absent")):
        generation(tmp_path, guidance_scale=2.0).check("greedy")
    top_h = generation(tmp_path, top_h=0.5)
    top_h.check("greedy")
    with pytest.raises(ValueError, match="top_h=0.5"):
        top_h.check("sample")
    assert generation(tmp_path, my_field=3).unknown == ("my_field",)


def allowed(folder, prompt, text, scores=None, source=None, limit=8, **file):
    """The next tokens, of ten, that may follow a prompt and a text; {token: score} of those that are not -inf."""
    saved = generation(folder, **file)
    constraints = saved.constraints([prompt], [source or prompt], 10, [limit])
    if constraints is None:
        return None
    tokens = np.array([[*text, *[0] * (limit - len(text))]], np.int32)
    is_stop = np.isin(np.arange(10), saved.stop)
    result = constraints(np.array([scores or [0.5] * 10], np.float32), tokens, np.int32(len(text)), is_stop)
    return {token: float(score) for token, score in enumerate(np.asarray(result)[0]) if score > -np.inf}


def test_forced_tokens_first_and_last(tmp_path):
    assert allowed(tmp_path, [9], [], forced_bos_token_id=3) == {3: 0.0}
    assert allowed(tmp_path, [9, 9], [], forced_bos_token_id=3) is None  # behind one token alone
    assert allowed(tmp_path, [9], [1] * 7, forced_eos_token_id=[4, 5]) == {4: 0.0, 5: 0.0}
    assert len(allowed(tmp_path, [9], [1] * 6, forced_eos_token_id=[4, 5])) == 10


def test_two_forced_ends_are_refused_in_beams(tmp_path):
    """Both have all of the probability there: a text that follows one of them, by chance, would be another one."""
    both = generation(tmp_path, forced_eos_token_id=[4, 5])
    with pytest.raises(ValueError, match=r"forced_eos_token_id=\[4, 5\], and in beams both have one probability"):
        both.check("beam")
    both.check("greedy")
    generation(tmp_path, forced_eos_token_id=[4]).check("beam")


def test_minimum_lengths_count_the_prompt_or_not(tmp_path):
    assert 2 not in allowed(tmp_path, [7, 7], [7], eos_token_id=2, min_length=4)
    assert 2 in allowed(tmp_path, [7, 7], [7, 7], eos_token_id=2, min_length=4)
    assert 2 not in allowed(tmp_path, [7, 7], [7, 7], eos_token_id=2, min_new_tokens=3)


@pytest.mark.slow
def test_banned_words_and_phrases(tmp_path):
    words = {"bad_words_ids": [[6], [4, 5], [1, 2, 3], [2]], "eos_token_id": 2}
    assert {*range(10)} - allowed(tmp_path, [9], [], **words).keys() == {6}  # a stop token is never banned
    assert {*range(10)} - allowed(tmp_path, [4], [], **words).keys() == {5, 6}
    assert {*range(10)} - allowed(tmp_path, [1], [2], **words).keys() == {3, 6}


def test_suppressed_tokens(tmp_path):
    file = {"suppress_tokens": [1], "begin_suppress_tokens": [2]}
    assert {*range(10)} - allowed(tmp_path, [9, 9], [], **file).keys() == {1, 2}
    assert {*range(10)} - allowed(tmp_path, [9, 9], [7], **file).keys() == {1}


@pytest.mark.slow
def test_ngrams_of_the_text_and_of_the_source(tmp_path):
    assert {*range(10)} - allowed(tmp_path, [3, 4, 8], [3], no_repeat_ngram_size=2).keys() == {4}
    file = {"encoder_no_repeat_ngram_size": 2}
    assert {*range(10)} - allowed(tmp_path, [9], [5], source=[5, 6, 7, 5, 8], **file).keys() == {6, 8}


def test_tokens_beyond_the_vocabulary(tmp_path):
    """One that would stop a text never comes; one that must come is refused."""
    assert generation(tmp_path, eos_token_id=[7, 99]).within(50).stop == [7]
    assert generation(tmp_path, eos_token_id=[7, 9]).within(50).stop == [7, 9]
    with pytest.raises(ValueError, match=r"generation_config.json has forced_bos_token_id=50, and the model has 50"):
        generation(tmp_path, forced_bos_token_id=50).within(50)

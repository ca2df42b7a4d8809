"""Prompts as tokens."""

from types import SimpleNamespace

from tokenizers import Tokenizer, models, pre_tokenizers

from train.generation import writer

END = "<|endoftext|>"


def test_an_end_token_in_a_prompt_is_read_though_it_stands_for_unknown_words_too():
    """As in GPT-2, where texts often begin with it; a word that is unknown is said."""
    tokenizer = Tokenizer(models.WordLevel({"the": 0, "cat": 1, END: 2}, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([END])
    said: list[str] = []
    log = SimpleNamespace(info=said.append)
    assert writer._encode(tokenizer, f"{END}the {END} cat", log) == [2, 0, 2, 1]
    assert said == []
    assert writer._encode(tokenizer, "the dog", log) == [0, 2]
    assert said == [f"'the dog' has 'dog', which this model reads as {END}"]

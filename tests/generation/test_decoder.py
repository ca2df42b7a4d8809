"""Completions of a decoder whose tokens are bytes: stops, half characters, seeds, and streams."""

import io
from types import SimpleNamespace

import numpy as np
import pytest

import tfm
from train.generation.decoder import Decoder
from train.generation.defaults import Choice
from train.generation.options import GenerateOptions
from train.text.special import CLEANS, ConfiguredTokenizer

CHOICE = Choice(GenerateOptions(run="run", seed=2), "sample", [0], None, 256, False)

TEXT = "der Käse war größer als die Höhle, sagte er. Aha!"


class Script:
    """Stands for tfm.Generation: every row gets the bytes of TEXT, beginning at its seed."""

    def __init__(self, model, config, prompts, max_new_tokens, strategy, stop, sliding_context):
        starts = np.broadcast_to(strategy.seed, len(prompts))
        self.texts = [list(TEXT.encode())[start:][: max(max_new_tokens)] for start in starts]
        self.tokens = [[] for _ in prompts]

    @property
    def done(self):
        return self.tokens == self.texts

    @property
    def logprobs(self):
        return [[-0.5] * len(tokens) for tokens in self.tokens]

    def advance(self, num_tokens):
        self.tokens = [text[: len(tokens) + num_tokens] for text, tokens in zip(self.texts, self.tokens, strict=True)]


def spell(prompt, tokens):
    return bytes(tokens).decode(errors="replace")


@pytest.fixture
def decoder(monkeypatch):
    """`decoder(stops)`: a decoder of scripted texts."""
    monkeypatch.setattr(tfm, "Generation", Script)
    decode = lambda tokens, skip_special_tokens: spell([], tokens)
    tokenizer = SimpleNamespace(decode=decode, get_vocab_size=lambda: 256, get_vocab=lambda: {"last": 255})
    folder = SimpleNamespace(config=SimpleNamespace(decoding_model=tfm.Config()), processor=tokenizer)
    return lambda *stops: Decoder(folder, CHOICE, spell, stops)


STOPS = [(), ("Höhle",), ("größer als die H", "als"), ("e",), ("zzz", "er."), ("!",), ("Aha!?",), ("r",)]


def before(stops, text):
    """The text up to the first place where a stop begins."""
    places = [place for place in range(len(text)) if any(text[place:].startswith(stop) for stop in stops)]
    return text[: places[0]] if places else text


@pytest.mark.parametrize("stops", STOPS)
def test_a_stream_shows_what_decode_returns(decoder, stops):
    out = io.StringIO()
    streamed = decoder(*stops).stream(None, [1], 100, out, "heading|")
    ((decoded,),) = decoder(*stops).decode(None, [[1]], np.array([0]), [100])
    assert streamed == decoded._replace(streamed=True)
    assert decoded.text == before(stops, TEXT[2:])
    assert out.getvalue() == f"heading|{decoded.text}\n"
    assert len(decoded.pieces) == len(decoded.logprobs)


def test_a_stream_shows_no_space_that_the_next_token_takes_away(decoder, monkeypatch):
    monkeypatch.setitem(globals(), "TEXT", "..I do n't , it 's ! and 've ' o ' no .")
    read, out = decoder(), io.StringIO()
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: spell([], ids))
    read.spell = lambda prompt, tokens: ConfiguredTokenizer(tokenizer, {CLEANS: True}).decode(tokens)
    read.stream(None, [1], 100, out, "")
    assert out.getvalue() == "I don't, it's! and've'o'no.\n"


def test_texts_of_a_folder_end_a_completion_and_stay(decoder):
    """As stop_strings in transformers; a bar in one is a letter."""
    read = decoder()
    read.ends = ("war", "|", "größer")
    out = io.StringIO()
    streamed = read.stream(None, [1], 100, out, "heading|")
    ((decoded,),) = read.decode(None, [[1]], np.array([0]), [100])
    assert streamed == decoded._replace(streamed=True)
    assert decoded.text == "".join(decoded.pieces).replace("\ufffd\ufffd", "ä") == TEXT[2:].partition("war")[0] + "war"
    assert out.getvalue() == f"heading|{decoded.text}\n"


def test_seeds_follow_the_numbers_of_the_rows(decoder):
    completions = decoder().decode(None, [[1], [1], [1]], np.array([0, 2, 2]), [8] * 3)
    assert [completion.text for (completion,) in completions] == [spell([], TEXT.encode()[n:][:8]) for n in (2, 4, 4)]


def test_tokens_end_with_the_first_stop(decoder):
    ((completion,),) = decoder("war").decode(None, [[1]], np.array([0]), [100])
    assert (completion.text, "".join(completion.pieces[-4:])) == (TEXT[2:].partition("war")[0], " war")

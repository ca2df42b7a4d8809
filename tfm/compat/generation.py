"""`generate` of the old classes, on top of `tfm.decode` and `tfm.beam`: arrays in, arrays out, also under `jit` and `pmap`."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.compat.forward import Given, Watch, encode_source, ours, with_source
from tfm.compat.outputs import Output
from tfm.config.model import Config
from tfm.decoding import beam
from tfm.decoding import generate as decode
from tfm.decoding.sampling import Greedy, Rules, Sample
from tfm.models.heads import CausalLM

FILE = "generation_config.json"
DEFAULTS: dict[str, Any] = dict(
    max_length=20, max_new_tokens=None, min_length=0, min_new_tokens=None, do_sample=False, num_beams=1, num_return_sequences=1,
    temperature=1.0, top_k=50, top_p=1.0, length_penalty=1.0, early_stopping=False, no_repeat_ngram_size=0, bad_words_ids=None,
    suppress_tokens=None, pad_token_id=None, bos_token_id=None, eos_token_id=None, decoder_start_token_id=None,
    forced_bos_token_id=None, forced_eos_token_id=None,
)  # fmt: skip
# What cannot be done, with the values that ask for nothing.
REFUSED: dict[str, tuple] = dict(
    repetition_penalty=(1.0,), num_beam_groups=(1,), diversity_penalty=(0.0,), typical_p=(1.0,), penalty_alpha=(0.0,),
    epsilon_cutoff=(0.0,), eta_cutoff=(0.0,), encoder_no_repeat_ngram_size=(0,), begin_suppress_tokens=(), forced_decoder_ids=(),
    logits_processor=(), output_scores=(False,), output_attentions=(False,), output_hidden_states=(False,),
)  # fmt: skip


def generate(
    self, input_ids, attention_mask=None, generation_config=None, prng_key=None, trace=True, params=None, encoder_outputs=None, **asked
):  # fmt: skip
    """Prompts or sources [B,T] -> an output with sequences [B, max_length], padded with pad_token_id, and for beams their scores [B].

    Other arguments are those of a generation_config.json: greedy by default, do_sample=True draws, num_beams=4 searches. Raises
    ValueError for one that is not known or cannot be honoured.
    """
    wanted = settings(self, generation_config, asked)
    program, tokens = self._program, jnp.asarray(input_ids, jnp.int32)
    valid = None if attention_mask is None else jnp.asarray(attention_mask) > 0
    model = ours(program, self._tree(params))
    if program.head.kind == "seq2seq":
        if encoder_outputs is None:
            encoder_outputs = encode_source(program, Watch(), model, self._given(tokens, valid), None)[
                "last_hidden_state"
            ]
        else:
            encoder_outputs = encoder_outputs[0]
        writer = with_source(model, program.config, encoder_outputs, valid)
        tokens = jnp.full((len(encoder_outputs), 1), _start(wanted), jnp.int32)
        prompts, starts = tokens, jnp.zeros(len(tokens), jnp.int32)
    else:
        writer, (prompts, starts) = model, _left_padded(Given(tokens, valid))
    length = _length(wanted, tokens.shape[1], program.config)
    return _output(wanted, program.config, writer, (tokens, prompts, starts), length, prng_key)


def settings(model: Any, given: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """How to write: what is asked for, or generation_config.json says, or config.json. Raises ValueError for what cannot be."""
    given = {} if given is None else dict(given if isinstance(given, Mapping) else given.to_dict())
    layers = model.config.to_dict(), model.generation_config, given
    saved: dict[str, Any] = {}
    for layer in layers:
        saved |= {name: value for name, value in layer.items() if value is not None}
    unknown = [name for name in asked if name not in DEFAULTS and name not in REFUSED]
    if unknown:
        raise ValueError(f"generate has no argument {unknown[0]}; it has {', '.join(DEFAULTS)}")
    for name, usual in REFUSED.items():
        if asked.get(name) not in (None, *usual):
            raise ValueError(f"{name}={asked[name]} is not supported; leave it out")
        if saved.get(name) not in (None, *usual) and not name.startswith("output_"):
            warnings.warn(
                f"the configuration has {name}={saved[name]}, which is not supported and does nothing here",
                stacklevel=3,
            )
    wanted = {name: saved.get(name, usual) for name, usual in DEFAULTS.items()} | {
        k: v for k, v in asked.items() if v is not None
    }
    if asked.get("max_length") is not None:
        if asked.get("max_new_tokens") is not None:
            raise ValueError("max_length and max_new_tokens are both given; leave out one of them")
        wanted["max_new_tokens"] = None
    if wanted["num_beams"] > 1 and wanted["do_sample"]:
        raise ValueError(
            f"num_beams={wanted['num_beams']} and do_sample=True are not supported together; leave out one of them"
        )
    if not 1 <= wanted["num_return_sequences"] <= wanted["num_beams"]:
        raise ValueError(
            f"num_return_sequences={wanted['num_return_sequences']} must be at least 1 and at most num_beams={wanted['num_beams']}"
        )
    return wanted


def _start(wanted: Mapping[str, Any]) -> int:
    """The token that a translation begins with."""
    start = wanted["decoder_start_token_id"]
    start = wanted["bos_token_id"] if start is None else start
    if start is None:
        raise ValueError("decoder_start_token_id is missing; give it, or set it in config.json")
    return start


def _left_padded(given: Given) -> tuple[Array, Array]:
    """Prompts [B,T] with what is no token moved to their left, and where they start [B]."""
    if given.valid is None:
        return given.tokens, jnp.zeros(len(given.tokens), jnp.int32)
    order = jnp.argsort(given.valid, axis=1, stable=True)
    return jnp.take_along_axis(given.tokens, order, axis=1), (~given.valid).sum(1).astype(jnp.int32)


def _length(wanted: Mapping[str, Any], prompt: int, config: Config) -> int:
    """How long a text may become, its prompt included. Raises ValueError where that cannot be."""
    new = wanted["max_new_tokens"]
    length = wanted["max_length"] if new is None else prompt + new
    if length <= prompt:
        raise ValueError(
            f"max_length={length} leaves no room behind the {prompt} tokens of the prompt; raise it, or give max_new_tokens"
        )
    if config.position == "learned" and length > config.length:
        raise ValueError(f"max_length={length} is more than the {config.length} positions of the model; lower it")
    return length


def _never(wanted: Mapping[str, Any], vocab: int) -> Array | None:
    """[V]: the tokens of bad_words_ids and suppress_tokens. Raises ValueError for phrases of several tokens."""
    words = wanted["bad_words_ids"] or []
    if any(len(word) != 1 for word in words):
        raise ValueError(f"bad_words_ids={words} has a phrase of several tokens; only single tokens are supported")
    never = [word[0] for word in words] + list(wanted["suppress_tokens"] or [])
    return jnp.zeros(vocab, bool).at[jnp.asarray(never)].set(True) if never else None


def _rules(wanted: Mapping[str, Any], config: Config, given: Array, length: int) -> Rules | None:
    """What comes before probability, after the prompts [B,T]."""
    prompt, ngram, last = given.shape[1], wanted["no_repeat_ngram_size"] or 0, wanted["forced_eos_token_id"]
    least = max((wanted["min_length"] or 0) - prompt, wanted["min_new_tokens"] or 0)
    first = wanted["forced_bos_token_id"] if prompt == 1 else None
    never = _never(wanted, config.padded_vocab)
    if first is None and last is None and never is None and least <= 0 and not ngram:
        return None
    return Rules(first, last, length - prompt, least if least > 0 else None, never, given if ngram else None, ngram)


def _output(
    wanted: Mapping[str, Any], config: Config, model: CausalLM, texts: tuple[Array, Array, Array], length: int, key: Any
) -> Output:
    """The texts, [B,T] as given, and left-padded with where they start, and what is written after them."""
    given, prompts, starts = texts
    new = length - given.shape[1]
    ends = wanted["eos_token_id"]
    ends = [] if ends is None else [ends] if np.ndim(ends) == 0 else list(ends)
    pad = wanted["pad_token_id"] if wanted["pad_token_id"] is not None else (ends or [0])[0]
    stop, room = decode.stop_tokens(ends), decode.bucket(new)
    rules = _rules(wanted, config, given, length)
    number = wanted["num_return_sequences"]
    if wanted["num_beams"] > 1:
        early: Any = {True: True, False: "likely", "never": False}[wanted["early_stopping"]]
        wide = beam.Beam(
            wanted["num_beams"], length_penalty=wanted["length_penalty"], offset=0.0, early=early, rules=rules
        )
        wide.check()
        found = beam.explore(config, room, model, (prompts, starts), wide, stop, jnp.int32(new))
        added = jnp.where(jnp.arange(room)[None, None] < found.lengths[..., None], found.tokens, pad)[:, :number]
        rows = jnp.repeat(given, number, axis=0)
        sequences = jnp.concatenate([rows, added.reshape(len(rows), room)[:, :new]], axis=1)
        return Output({"sequences": sequences, "scores": found.scores[:, :number].reshape(-1)})
    state = decode.start(
        config,
        room,
        model,
        (prompts, starts, jnp.zeros(len(given), bool), jnp.int32(0)),
        _how(wanted, rules, key, len(given)),
        stop,
    )
    state = decode.advance(config, model, state, _how(wanted, rules, key, len(given)), stop, jnp.int32(new))
    ended = (state.tokens[..., None] == stop[None, None]).any(-1)
    real = (jnp.cumsum(ended, axis=1) - ended == 0) & (jnp.arange(room) < state.number)[None]
    return Output({"sequences": jnp.concatenate([given, jnp.where(real, state.tokens, pad)[:, :new]], axis=1)})


def _how(wanted: Mapping[str, Any], rules: Rules | None, key: Any, rows: int) -> Greedy | Sample:
    """Greedily, or drawn, each row on its own."""
    if not wanted["do_sample"]:
        return Greedy(rules=rules)
    seeds = jax.random.bits(jax.random.PRNGKey(0) if key is None else key, (rows,), jnp.uint32)
    knobs = {
        name: wanted[name] if wanted[name] != usual else None
        for name, usual in (("temperature", 1.0), ("top_p", 1.0), ("top_k", 0))
    }
    how = Sample(**knobs, seed=seeds, rules=rules)
    how.check()
    return how


def read_generation(folder: Path) -> dict[str, Any]:
    """The fields of generation_config.json, if there is one."""
    path = folder / FILE
    try:
        fields = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); download it again, or remove it") from error
    return fields if isinstance(fields, dict) else {}


def write_generation(fields: Mapping[str, Any], folder: Path) -> None:
    """The reverse."""
    if fields:
        (folder / FILE).write_text(json.dumps(fields, indent=2) + "\n")

"""`generate` of the removed Flax classes, on top of `tfm.decoding`: arrays to arrays, also under `jit` and `pmap`."""

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.compat.forward import Record, encode_source, source_writer, take_params
from tfm.compat.outputs import Output
from tfm.compat.sampling import BatchSample, step_keys
from tfm.config.model import Config
from tfm.decoding.beam import Limits, search
from tfm.decoding.beam_strategy import Beam
from tfm.decoding.constraints import Constraints
from tfm.decoding.generate import PromptBatch, advance, bucket, pad_stop, start
from tfm.decoding.sampling import Greedy, Sample
from tfm.hf.fields import Fields
from tfm.hf.generation import EARLY_STOPPING, FILE, read_generation
from tfm.models.heads import CausalLM

DEFAULTS: dict[str, Any] = dict(
    max_length=20, max_new_tokens=None, min_length=0, min_new_tokens=None, do_sample=False, num_beams=1,
    num_return_sequences=1, temperature=1.0, top_k=50, top_p=1.0, length_penalty=1.0, early_stopping=False,
    no_repeat_ngram_size=0, bad_words_ids=None, suppress_tokens=None, pad_token_id=None, bos_token_id=None,
    eos_token_id=None, decoder_start_token_id=None, forced_bos_token_id=None, forced_eos_token_id=None,
)  # fmt: skip
# Unsupported options, with the values that turn them off.
UNSUPPORTED: dict[str, tuple] = dict(
    repetition_penalty=(1.0,), num_beam_groups=(1,), diversity_penalty=(0.0,), typical_p=(1.0,), penalty_alpha=(0.0,),
    epsilon_cutoff=(0.0,), eta_cutoff=(0.0,), encoder_no_repeat_ngram_size=(0,), begin_suppress_tokens=(),
    forced_decoder_ids=(), logits_processor=(), output_scores=(False,), output_attentions=(False,),
    output_hidden_states=(False,),
)  # fmt: skip


def generate(
    self, input_ids, attention_mask=None, generation_config=None, prng_key=None, trace=True, params=None,
    encoder_outputs=None, **kwargs,
):  # fmt: skip
    """Prompts or sources [B,T] -> an output with sequences [B, max_length]; with beams, also scores [B].

    Sequences are padded with pad_token_id. Other arguments are fields of generation_config.json: greedy by default,
    do_sample=True draws, num_beams=4 searches. Raises ValueError for an unknown or unsupported argument.
    """
    if not self.can_generate():
        raise ValueError(f"{type(self).__name__} cannot generate; take a decoder such as FlaxGPT2LMHeadModel")
    configs = [self.config.to_dict(), self.generation_config]
    if generation_config is not None:
        configs.append(generation_config if isinstance(generation_config, Mapping) else generation_config.to_dict())
    options = resolve_options(configs, kwargs)
    program = self._program
    tokens = jnp.asarray(input_ids, jnp.int32)
    valid = None if attention_mask is None else jnp.asarray(attention_mask) > 0
    model = take_params(program, self._tree(params))
    if program.head.kind == "seq2seq":
        if encoder_outputs is None:
            outputs = encode_source(program, Record(), model, self._inputs(tokens, valid), None)
            states = outputs["last_hidden_state"]
        else:
            states = encoder_outputs[0]
        model = source_writer(model, program.config, states, valid)
        tokens = jnp.full((len(states), 1), _start_token(options), jnp.int32)
        valid = None
    max_new_tokens = _max_length(options, tokens.shape[1], program.config) - tokens.shape[1]
    prompts = _left_padded(tokens, valid)
    constraints = _constraints(options, program.config, tokens, max_new_tokens)
    if options["num_beams"] == 1:
        strategy = _strategy(options, constraints, prng_key, (program.config.vocab, max_new_tokens))
        new_tokens = _generate(options, program.config, model, prompts, strategy, max_new_tokens)
        return Output({"sequences": jnp.concatenate([tokens, new_tokens], axis=1)})
    new_tokens, scores = _search(options, program.config, model, prompts, constraints, max_new_tokens)
    sequences = jnp.concatenate([jnp.repeat(tokens, options["num_return_sequences"], axis=0), new_tokens], axis=1)
    return Output({"sequences": sequences, "scores": scores})


def resolve_options(configs: Iterable[Fields], arguments: Fields) -> dict[str, Any]:
    """Options of `generate`: its arguments, else those of the last configuration that has them, else defaults.

    Raises ValueError for what is unknown, unsupported or contradictory.
    """
    unknown = [name for name in arguments if name not in DEFAULTS and name not in UNSUPPORTED]
    if unknown:
        raise ValueError(f"generate has no argument {unknown[0]}; it has {', '.join(DEFAULTS)}")
    saved: dict[str, Any] = {}
    for fields in configs:
        saved |= {name: value for name, value in fields.items() if value is not None}
    _refuse_unsupported(arguments, saved)
    options = {name: saved.get(name, default) for name, default in DEFAULTS.items()}
    options |= {name: value for name, value in arguments.items() if value is not None}
    if arguments.get("max_length") is not None:
        if arguments.get("max_new_tokens") is not None:
            raise ValueError("max_length and max_new_tokens are both given; leave out one of them")
        options["max_new_tokens"] = None
    _check_beams(options)
    return options


def _refuse_unsupported(arguments: Fields, saved: Fields):
    """Raises ValueError for an unsupported argument, and warns of one in the configuration."""
    for name, neutral in UNSUPPORTED.items():
        if arguments.get(name) not in (None, *neutral):
            raise ValueError(f"{name}={arguments[name]} is not supported; leave it out")
        if saved.get(name) not in (None, *neutral) and not name.startswith("output_"):
            warnings.warn(
                f"the configuration has {name}={saved[name]}, which is not supported and is ignored", stacklevel=4
            )


def _check_beams(options: Fields):
    """Raises ValueError for options of beam search that contradict each other."""
    beams, sequences = options["num_beams"], options["num_return_sequences"]
    if beams > 1 and options["do_sample"]:
        raise ValueError(f"num_beams={beams} and do_sample=True are not supported together; leave out one of them")
    if not 1 <= sequences <= beams:
        raise ValueError(f"num_return_sequences={sequences} must be at least 1 and at most num_beams={beams}")
    if beams > 1 and options["early_stopping"] not in EARLY_STOPPING:
        raise ValueError(f"early_stopping={options['early_stopping']} must be True, False or 'never'")


def _start_token(options: Fields) -> int:
    """The first token of a target."""
    token = options["decoder_start_token_id"]
    token = options["bos_token_id"] if token is None else token
    if token is None:
        raise ValueError("decoder_start_token_id is missing; pass it, or set it in config.json")
    return token


def _max_length(options: Fields, prompt_length: int, config: Config) -> int:
    """The length of the longest text, prompt included. Raises ValueError where prompt or model do not allow it."""
    if options["max_new_tokens"] is None:
        max_length = options["max_length"]
    else:
        max_length = prompt_length + options["max_new_tokens"]
    if max_length <= prompt_length:
        raise ValueError(
            f"max_length={max_length} leaves no room after a prompt of {prompt_length} tokens; raise it, or pass "
            "max_new_tokens"
        )
    limit = config.max_length
    if limit is not None and max_length > limit:
        raise ValueError(f"max_length={max_length} is more than the {limit} positions of the model; lower it")
    return max_length


def _left_padded(tokens: Array, valid: Array | None) -> PromptBatch:
    """Prompts [B,T] with their padding moved to the left."""
    rows = len(tokens)
    starts = jnp.zeros(rows, jnp.int32)
    if valid is not None:
        order = jnp.argsort(valid, axis=1, stable=True)
        tokens = jnp.take_along_axis(tokens, order, axis=1)
        starts = (~valid).sum(1).astype(jnp.int32)
    return PromptBatch(tokens, starts, stopped=jnp.zeros(rows, bool), num_earlier=jnp.int32(0))


def _constraints(options: Fields, config: Config, tokens: Array, max_new_tokens: int) -> Constraints | None:
    """The constraints on what follows prompts [B,T]; None where there are none."""
    prompt_length = tokens.shape[1]
    min_length = max((options["min_length"] or 0) - prompt_length, options["min_new_tokens"] or 0)
    ngram = options["no_repeat_ngram_size"] or None
    constraints = Constraints(
        forced_bos=options["forced_bos_token_id"] if prompt_length == 1 else None,
        forced_eos=options["forced_eos_token_id"],
        min_length=min_length if min_length > 0 else None,
        bad_tokens=_bad_tokens(options, config.padded_vocab),
        no_repeat_ngram=ngram,
        prompt=None if ngram is None else tokens,
    )
    is_empty = ngram is None and not jax.tree.leaves(constraints)
    return None if is_empty else replace(constraints, max_length=max_new_tokens)


def _bad_tokens(options: Fields, vocab: int) -> Array | None:
    """bool [V]: the tokens of bad_words_ids and suppress_tokens. Raises ValueError for phrases of several tokens."""
    phrases = options["bad_words_ids"] or []
    if any(len(phrase) != 1 for phrase in phrases):
        raise ValueError(f"bad_words_ids={phrases} has a phrase of several tokens; only single tokens are supported")
    bad_tokens = [phrase[0] for phrase in phrases] + list(options["suppress_tokens"] or [])
    return jnp.zeros(vocab, bool).at[jnp.asarray(bad_tokens)].set(True) if bad_tokens else None


def _strategy(
    options: Fields, constraints: Constraints | None, key: Array | None, sizes: tuple[int, int]
) -> Greedy | Sample:
    """Greedy, or draws with the keys that follow from one; sizes are those of the vocabulary and of new texts."""
    if not options["do_sample"]:
        return Greedy(constraints=constraints)
    vocab, steps = sizes
    return BatchSample(
        temperature=None if options["temperature"] == 1 else options["temperature"],
        top_p=None if options["top_p"] == 1 else options["top_p"],
        top_k=None if options["top_k"] == 0 else options["top_k"],
        constraints=constraints,
        keys=step_keys(jax.random.PRNGKey(0) if key is None else key, steps),
        vocab=vocab,
    )


def _generate(
    options: Fields,
    config: Config,
    model: CausalLM,
    prompts: PromptBatch,
    strategy: Greedy | Sample,
    max_new_tokens: int,
) -> Array:
    """New tokens [B,N], padded behind a stop token."""
    strategy.check()
    stop, pad = _stop_and_pad(options)
    state = start(config, bucket(max_new_tokens), model, prompts, strategy, stop)
    state = advance(config, model, state, strategy, stop, jnp.int32(max_new_tokens))
    is_stop = (state.tokens[..., None] == stop[None, None]).any(-1)
    is_first_stop_or_before = jnp.cumsum(is_stop, axis=1) - is_stop == 0
    is_filled = (jnp.arange(state.tokens.shape[1]) < state.num_tokens)[None]
    return jnp.where(is_first_stop_or_before & is_filled, state.tokens, pad)[:, :max_new_tokens]


def _search(
    options: Fields,
    config: Config,
    model: CausalLM,
    prompts: PromptBatch,
    constraints: Constraints | None,
    max_new_tokens: int,
) -> tuple[Array, Array]:
    """New tokens [B*R,N] of the R best continuations of each prompt, padded, and their scores [B*R]."""
    strategy = Beam(
        options["num_beams"],
        length_penalty=options["length_penalty"],
        offset=0.0,
        early_stopping=EARLY_STOPPING[options["early_stopping"]],
        constraints=constraints,
    )
    strategy.check()
    stop, pad = _stop_and_pad(options)
    count = options["num_return_sequences"]
    padded = prompts.tokens, prompts.starts
    capacity = bucket(max_new_tokens)
    limits = Limits(jnp.asarray(stop), jnp.int32(max_new_tokens), jnp.int32(count))
    _, finished = search(config, capacity, capacity, model, padded, strategy, limits)
    slots = jnp.arange(finished.tokens.shape[-1])[None, None]
    new_tokens = jnp.where(slots < finished.lengths[..., None], finished.tokens, pad)[:, :count, :max_new_tokens]
    return new_tokens.reshape(-1, max_new_tokens), finished.scores[:, :count].reshape(-1)


def _stop_and_pad(options: Fields) -> tuple[np.ndarray, int]:
    """Stop tokens [8], and the padding token: pad_token_id, else the first stop token, else 0."""
    eos = options["eos_token_id"]
    stop = [] if eos is None else [eos] if np.ndim(eos) == 0 else list(eos)
    pad = options["pad_token_id"]
    if pad is None:
        pad = (stop or [0])[0]
    return pad_stop(stop), pad


def read_fields(folder: Path) -> dict[str, Any]:
    """The fields of generation_config.json; {} without that file."""
    return dict(read_generation(folder, {}).values)


def generation_fields(fields: Fields) -> dict[str, Any]:
    """The fields of config.json that belong into generation_config.json."""
    return {"_from_model_config": True} | {
        name: fields[name] for name in DEFAULTS if fields.get(name) not in (None, DEFAULTS[name])
    }


def write_generation(fields: Fields, folder: Path) -> None:
    """Writes generation_config.json."""
    (folder / FILE).write_text(json.dumps(fields, indent=2) + "\n")

"""How a folder wants text to be written: generation_config.json, or without that file the same fields of config.json.

Every field is read, refused where it has an effect that is absent here, or without meaning for the texts.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.decoding.constraints import Constraints
from tfm.hf.fields import Fields
from tfm.options.choices import Hint, Range, check_type
from tfm.options.json_text import read_object

FILE = "generation_config.json"

_Token = Annotated[int, Range(0, 1 << 24)]
_Tokens = list[_Token]
_Count = Annotated[int, Range(0, 1 << 24)]
_Positive = Annotated[float, Range(1e-6)]
_Share = Annotated[float, Range(0, 1)]

# What is read, with its type; null is as good as absent.
READ: Mapping[str, Hint] = {
    "eos_token_id": _Token | _Tokens | None,
    "decoder_start_token_id": _Token | _Tokens | None,
    "forced_bos_token_id": _Token | None,
    "forced_eos_token_id": _Token | _Tokens | None,
    "bad_words_ids": list[_Tokens] | None,
    "suppress_tokens": _Tokens | None,
    "begin_suppress_tokens": _Tokens | None,
    "no_repeat_ngram_size": _Count | None,
    "encoder_no_repeat_ngram_size": _Count | None,
    "min_length": _Count | None,
    "min_new_tokens": _Count | None,
    "max_length": _Count | None,
    "max_new_tokens": _Count | None,
    "repetition_penalty": _Positive | None,
    "renormalize_logits": bool | None,
    "stop_strings": str | list[str] | None,
    "do_sample": bool | None,
    "temperature": Annotated[float, Range(0)] | None,
    "top_k": _Count | None,
    "top_p": _Share | None,
    "min_p": _Share | None,
    "typical_p": _Share | None,
    "epsilon_cutoff": _Share | None,
    "eta_cutoff": _Share | None,
    "num_beams": Annotated[int, Range(1, 1 << 10)] | None,
    "length_penalty": float | None,
    "early_stopping": bool | Literal["never"] | None,
}

# What has an effect that is absent here, and the values that turn it off; the first ones only where tokens are drawn.
REFUSED_DRAWS: Mapping[str, tuple[object, ...]] = {"top_h": ()}
REFUSED: Mapping[str, tuple[object, ...]] = {
    "encoder_repetition_penalty": (1.0,), "exponential_decay_length_penalty": (), "sequence_bias": ({}, []),
    "guidance_scale": (1.0,), "watermarking_config": (), "token_healing": (False,), "num_beam_groups": (1,),
    "diversity_penalty": (0.0,), "penalty_alpha": (0.0,), "dola_layers": (), "constraints": ([],),
    "force_words_ids": ([],), "forced_decoder_ids": ([],), "max_time": (),
}  # fmt: skip

# What changes no text, by the reason.
MEANINGLESS: Mapping[str, str] = {
    name: reason
    for reason, names in {
        "a name of a token that is no stop": "bos_token_id pad_token_id",
        "--n says how many": "num_return_sequences",
        "it says what a call returns": "output_attentions output_hidden_states output_scores output_logits "
        "return_dict_in_generate",
        "it decides the speed alone": "use_cache cache_implementation cache_config max_cache_len compile_config "
        "disable_compile low_memory prefill_chunk_size continuous_batching_config use_mtp is_assistant "
        "num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold prompt_lookup_num_tokens "
        "max_matching_ngram_size assistant_early_exit assistant_lookbehind target_lookbehind "
        "assistant_ensemble_weight speculation_type",
        "values that are not finite are an error here": "remove_invalid_values",
        "it says where the file is from": "transformers_version _from_model_config _commit_hash",
    }.items()
    for name in names.split()
}

# What `early_stopping` of transformers is called in `Beam`.
EARLY_STOPPING: Mapping[bool | str, bool | str] = {True: True, False: "likely", "never": False}


@dataclasses.dataclass(frozen=True)
class FolderGeneration:
    """The fields of a folder that decide texts; `values` has those that are not null.

    source: the file that they are from
    unknown: fields of generation_config.json that no table here has
    """

    values: Fields
    source: Path
    unknown: tuple[str, ...] = ()

    @property
    def stop(self) -> list[int]:
        """The tokens that end a text."""
        return _list(self.values.get("eos_token_id"))

    @property
    def strategy(self) -> str:
        """greedy, sample or beam; "" where the folder does not say. Raises ValueError for draws within beams."""
        beams, draws = self.values.get("num_beams"), self.values.get("do_sample")
        if (beams or 1) > 1 and draws:
            raise ValueError(
                f"{self.source} has num_beams={beams} and do_sample=true, draws within beams, which are absent here; "
                "say --strategy=beam or --strategy=sample"
            )
        if beams is None and draws is None:
            return ""
        return "beam" if (beams or 1) > 1 else "sample" if draws else "greedy"

    @property
    def early_stopping(self) -> bool | str:
        """When a beam ends, as `Beam` has it."""
        return EARLY_STOPPING[self.values.get("early_stopping", False)]

    def within(self, vocab: int) -> "FolderGeneration":
        """The same for a model of `vocab` tokens: a stop token that it lacks never comes. Raises ValueError for another
        one that must come first or last."""
        for name in ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"):
            for token in _list(self.values.get(name)):
                if token >= vocab:
                    raise ValueError(f"{self.source} has {name}={token}, and the model has {vocab} tokens; correct it")
        if all(token < vocab for token in self.stop):
            return self
        stop = [token for token in self.stop if token < vocab]
        return dataclasses.replace(self, values={**self.values, "eos_token_id": stop})

    def check(self, strategy: str):
        """Raises ValueError for a field with an effect on such texts that is absent here, and for ends that tie."""
        ends = _list(self.values.get("forced_eos_token_id"))
        if strategy == "beam" and len(set(ends)) > 1:
            raise ValueError(
                f"{self.source} has forced_eos_token_id={ends}, and in beams both have one probability: which ends a "
                "text is chance in transformers; name one of them"
            )
        refused = {**REFUSED, **(REFUSED_DRAWS if strategy == "sample" else {})}
        for name, neutral in refused.items():
            if name in self.values and self.values[name] not in neutral:
                remedy = "; or say another --strategy" if name in REFUSED_DRAWS else ""
                raise ValueError(
                    f"{self.source} has {name}={self.values[name]}, which is absent here; remove the field{remedy}"
                )

    def new_tokens(self, prompt: int) -> int | None:
        """The most tokens to add to a prompt of so many tokens; None where the folder does not say."""
        if "max_new_tokens" in self.values:
            return self.values["max_new_tokens"]
        length = self.values.get("max_length")
        return None if length is None else max(1, length - prompt)

    def constraints(
        self,
        prompts: Sequence[Sequence[int]],
        sources: Sequence[Sequence[int]],
        vocab: int,
        limits: Sequence[int],
        repeats: float | None = None,
    ) -> Constraints | None:
        """What may follow prompts, B lists of tokens, in a vocabulary of `vocab` tokens; None where all may.

        sources: what an encoder has read, or the prompts
        limits: the most tokens to add to each
        repeats: the repetition penalty of a beam; other strategies have their own
        """
        values = self.values
        lengths = np.array([len(prompt) for prompt in prompts], np.int32)
        shortest = np.maximum(values.get("min_length", 0) - lengths, values.get("min_new_tokens", 0)).astype(np.int32)
        single = bool((lengths == 1).all())  # transformers forces a first token behind one token alone
        words = [word for word in values.get("bad_words_ids", []) if word and word not in [[eos] for eos in self.stop]]
        forced_eos = _list(values.get("forced_eos_token_id"))
        ngram, source_ngram = values.get("no_repeat_ngram_size") or None, values.get("encoder_no_repeat_ngram_size")
        phrases = [word for word in words if len(word) > 1]
        result = Constraints(
            forced_bos=values.get("forced_bos_token_id") if single else None,
            forced_eos=_mask(forced_eos, vocab),
            min_length=jnp.asarray(shortest) if self.stop and shortest.any() else None,
            bad_tokens=_mask([word[0] for word in words if len(word) == 1], vocab),
            suppressed=_mask(values.get("suppress_tokens", []), vocab),
            suppressed_first=_mask(values.get("begin_suppress_tokens", []), vocab),
            bad_phrases=_left_padded(phrases) if phrases else None,
            no_repeat_ngram=ngram,
            source_ngram=source_ngram or None,
            source=_left_padded(sources, bucket=True) if source_ngram else None,
            repetition_penalty=None if repeats in (None, 1.0) else repeats,
            renormalize=bool(values.get("renormalize_logits")),
        )
        if result.is_empty:
            return None
        needs_prompt = ngram or phrases or result.repetition_penalty is not None or source_ngram
        return dataclasses.replace(
            result,
            max_length=jnp.array(limits, jnp.int32) if forced_eos else None,
            prompt=_left_padded(prompts, bucket=True) if needs_prompt else None,
        )

    def __str__(self) -> str:
        fields = {name: value for name, value in self.values.items() if name in READ}
        shown = [f"{name}={value if len(str(value)) < 40 else '...'}" for name, value in fields.items()]
        return f"{self.source.name}: {', '.join(shown) or 'nothing'}"


def read_generation(folder: Path, fields: Fields) -> FolderGeneration:
    """The fields of a folder; `fields` are those of config.json, which count where generation_config.json is absent.

    So transformers has it. Raises ValueError for a field of another type.
    """
    source = folder / FILE
    understood = {*READ, *REFUSED, *REFUSED_DRAWS, *MEANINGLESS}
    if source.is_file():
        values = read_object(source)
    else:
        source = folder / "config.json"
        values = {name: value for name, value in fields.items() if name in understood}
        if fields.get("force_bos_token_to_be_generated") and "forced_bos_token_id" not in values:
            values["forced_bos_token_id"] = fields.get("bos_token_id")
    unknown = tuple(name for name in values if name not in understood)
    values = {name: value for name, value in values.items() if value is not None and name in understood}
    for name, hint in READ.items():
        if name in values:
            check_type(f"{source}: {name}", values[name], hint)
    if "" in (values.get("stop_strings"), *_list(values.get("stop_strings"))):
        raise ValueError(f"{source}: stop_strings has an empty text, which stands everywhere; remove it")
    return FolderGeneration(values, source, unknown)


def early_stopping_field(ends: bool | str) -> bool | str:
    """`early_stopping` of transformers for a `Beam` that ends so."""
    return next(name for name, value in EARLY_STOPPING.items() if value == ends)


def _list(tokens: int | Sequence[int] | None) -> list[int]:
    return [] if tokens is None else list(tokens) if isinstance(tokens, Sequence) else [tokens]


def _mask(tokens: Sequence[int], vocab: int) -> Array | None:
    """bool [V], where the tokens are, of which those beyond the vocabulary are nowhere; None without any."""
    return None if not tokens else jnp.asarray(np.isin(np.arange(vocab), tokens))


def _left_padded(rows: Sequence[Sequence[int]], bucket: bool = False) -> Array:
    """Lists of tokens -> int32 [B,L], -1 before a shorter list; L is a power of two if it may vary often."""
    length = max(map(len, rows))
    length = max(16, 1 << (length - 1).bit_length()) if bucket else length
    return jnp.array([[-1] * (length - len(row)) + list(row) for row in rows], jnp.int32)

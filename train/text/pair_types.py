"""The token type of the second text of a pair, as the tokenizer of a folder has it."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfm.options.choices import check_type
from train.text.special import AnyTokenizer, ConfiguredTokenizer

# The field of tokenizer_config.json that lists what a tokenizer makes, and the types among that.
FIELD, TYPES = "model_input_names", "token_type_ids"

# Classes that make types where the field is absent, and those that make none, in lower case as `default_tokens` has
# them. Of others, version 4 of transformers makes types and version 5 none.
_TYPED = frozenset("bert convbert deberta debertav2 electra fnet funnel layoutlm lxmert mobilebert squeezebert".split())
_UNTYPED = frozenset(
    """bart barthez bigbird blenderbot bloom camembert clip codegen codellama cohere distilbert gemma gpt2 gptneox
    layoutlmv3 layoutxlm led llama longformer mbart mbart50 mistral mpnet mvp nllb nougat openaigpt pegasus qwen2
    reformer roberta seamlessm4t t5 tokenizersbackend udop whisper xglm xlmroberta""".split()
)


def input_names(
    path: Path, class_name: str, config: Mapping[str, Any], model_fields: Mapping[str, Any]
) -> list[str] | None:
    """What a tokenizer makes beside tokens: the field of its configuration `path`, else what its class makes.

    None where the versions of transformers differ, which is said of a model with two types. Raises ValueError for a
    field that is no list of texts.
    """
    stated = check_type(f"{path}: {FIELD}", config.get(FIELD), list[str] | None)
    if stated is not None:
        return stated
    if class_name in _UNTYPED:
        return ["input_ids", "attention_mask"]
    types = model_fields.get("type_vocab_size")
    if config and class_name not in _TYPED and isinstance(types, int) and types > 1:
        warnings.warn(
            f"{path} has no {FIELD}: the second text of a pair has the token type that tokenizer.json gives it, as in "
            "transformers 4; version 5 gives it 0 for such a tokenizer_class",
            stacklevel=3,
        )
    return None


def second_type(tokenizer: AnyTokenizer) -> int:
    """The token type of the second text of a pair: 1, or what the tokenizer of a folder makes it."""
    if not isinstance(tokenizer, ConfiguredTokenizer):
        return 1
    if TYPES not in tokenizer.fields.get(FIELD, (TYPES,)):
        return 0
    encoding = tokenizer.encode("a", "a")
    marks = zip(encoding.type_ids, encoding.special_tokens_mask, strict=True)
    return next((kind for kind, is_special in reversed([*marks]) if not is_special), 1)

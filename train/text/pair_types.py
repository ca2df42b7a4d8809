"""The token type of the second text of a pair, as the tokenizer of a folder has it."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfm.options.choices import check_type
from train.text.special import AnyTokenizer, ConfiguredTokenizer

# The field of tokenizer_config.json that lists what a tokenizer makes, and the types among that.
FIELD, TYPES = "model_input_names", "token_type_ids"

# Classes that make types where the field is absent, and those that make none. Of others, version 4 of transformers
# makes types and version 5 none.
_TYPED = frozenset(
    """BertTokenizer ConvBertTokenizer DebertaTokenizer DebertaV2Tokenizer ElectraTokenizer FNetTokenizer
    FunnelTokenizer LayoutLMTokenizer LxmertTokenizer MobileBertTokenizer SqueezeBertTokenizer""".lower().split()
)
_UNTYPED = frozenset(
    """BartTokenizer BarthezTokenizer BigBirdTokenizer BlenderbotTokenizer BloomTokenizer CamembertTokenizer
    CLIPTokenizer CodeGenTokenizer CodeLlamaTokenizer CohereTokenizer DistilBertTokenizer GemmaTokenizer GPT2Tokenizer
    GPTNeoXTokenizer LayoutLMv3Tokenizer LayoutXLMTokenizer LEDTokenizer LlamaTokenizer LongformerTokenizer
    MBartTokenizer MBart50Tokenizer MistralTokenizer MPNetTokenizer MvpTokenizer NllbTokenizer NougatTokenizer
    OpenAIGPTTokenizer PegasusTokenizer Qwen2Tokenizer ReformerTokenizer RobertaTokenizer SeamlessM4TTokenizer
    T5Tokenizer TokenizersBackendTokenizer UdopTokenizer WhisperTokenizer XGLMTokenizer
    XLMRobertaTokenizer""".lower().split()
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
    name = f"{class_name}tokenizer"  # as `hf_roles` calls classes
    if name in _UNTYPED:
        return ["input_ids", "attention_mask"]
    types = model_fields.get("type_vocab_size")
    if config and name not in _TYPED and isinstance(types, int) and types > 1:
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

"""The Flax classes that transformers 5 removed: change the import line, and a script runs on.

    from tfm.compat import FlaxBertForMaskedLM        # was: from transformers import FlaxBertForMaskedLM
    model = FlaxBertForMaskedLM.from_pretrained(folder)
    logits = model(**tokenizer(text, return_tensors="np")).logits

They take and give the same nested dict of parameters, and read and write the same folders.
"""

import re
import sys
from typing import Any

from tfm.compat.auto import Auto, Choices
from tfm.compat.classes import BASES, Encoder, Images, MaskedImages, shift_tokens_right
from tfm.compat.families import BASE_PREFIXES, FAMILIES
from tfm.compat.towers import TOWERS
from tfm.options.choices import suggest

# What an architecture is called besides its family.
SUFFIX = re.compile("For.*|LMHeadModel|MTModel|EncoderModel|Model")

# Families whose classes are called in ways of their own.
CALLS: dict[str, type] = {**TOWERS, "beit": MaskedImages}

# What the automatic classes choose: the first of these that a family has.
AUTO_SUFFIXES = {
    "": ("Model",),
    "ForMaskedLM": ("ForMaskedLM",),
    "ForSequenceClassification": ("ForSequenceClassification",),
    "ForImageClassification": ("ForImageClassification",),
    "ForTokenClassification": ("ForTokenClassification",),
    "ForQuestionAnswering": ("ForQuestionAnswering",),
    "ForMultipleChoice": ("ForMultipleChoice",),
    "ForNextSentencePrediction": ("ForNextSentencePrediction",),
    "ForPreTraining": ("ForPreTraining", "ForMaskedLM", "LMHeadModel", "ForConditionalGeneration"),
    "ForCausalLM": ("LMHeadModel", "ForCausalLM"),
    "ForSeq2SeqLM": ("ForConditionalGeneration", "MTModel"),
}


def _classes() -> dict[str, type]:
    """Every class by its name."""
    by_family = {family: _family_classes(family) for family in FAMILIES}
    classes = {cls.__name__: cls for by_suffix in by_family.values() for cls in by_suffix.values()}
    for task, suffixes in AUTO_SUFFIXES.items():
        choices: dict[str, type] = {}
        for family, by_suffix in by_family.items():
            suffix = next((suffix for suffix in suffixes if suffix in by_suffix), None)
            if suffix is not None:
                choices[family] = by_suffix[suffix]
        name = f"FlaxAutoModel{task}"
        fields = {"choices": Choices(choices), "__doc__": Auto.__doc__, "__module__": __name__}
        classes[name] = type(name, (Auto,), fields)
    return classes


def _family_classes(family: str) -> dict[str, type]:
    """The classes of a family by the suffix of their architecture."""
    classes: dict[str, type] = {}
    for architecture, head in FAMILIES[family].heads.items():
        reads_images = FAMILIES[family].base.input.grid is not None
        base: Any = CALLS.get(family) or (Images if reads_images else BASES.get(head.kind, Encoder))
        doc = base.__doc__ or ""
        fields = {
            "family": family,
            "architecture": architecture,
            "base_model_prefix": BASE_PREFIXES[family],
            "__doc__": f"{architecture} as it was in Flax: {doc[:1].lower()}{doc[1:]}",
            "__module__": __name__,
        }
        classes[SUFFIX.findall(architecture)[0]] = type(f"Flax{architecture}", (base,), fields)
    return classes


def _mappings() -> dict[str, Choices]:
    """What the automatic classes choose from, by the names of transformers: FLAX_MODEL_FOR_MASKED_LM_MAPPING."""
    names = {"": "", "ForPreTraining": "FOR_PRETRAINING", "ForSeq2SeqLM": "FOR_SEQ_TO_SEQ_CAUSAL_LM"}

    def constant(task: str) -> str:
        words = names.get(task, re.sub("(?<=[a-z])(?=[A-Z])", "_", task).upper())
        return "_".join(word for word in ("FLAX_MODEL", words, "MAPPING") if word)

    return {constant(task): CLASSES[f"FlaxAutoModel{task}"].choices for task in AUTO_SUFFIXES}


CLASSES: dict[str, Any] = _classes()
MAPPINGS = _mappings()
PUBLIC = {**CLASSES, **MAPPINGS, "shift_tokens_right": shift_tokens_right}
__all__ = sorted(PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        advice = f"docs/guide/compat.md says what is not supported{suggest(name, __all__)}"
        error = ImportError if _is_from_import() and name.lower().startswith("flax") else AttributeError
        raise error(f"tfm.compat has no {name!r}; {advice}")
    return PUBLIC[name]


def _is_from_import() -> bool:
    """Whether `from tfm.compat import ...` asks: Python would replace an AttributeError by a sentence of its own."""
    return sys._getframe(2).f_code.co_name == "_handle_fromlist"  # of importlib


def __dir__() -> list[str]:
    return __all__

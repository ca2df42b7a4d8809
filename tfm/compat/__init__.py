"""The Flax classes that transformers 5 removed: change the import line, and a script runs on.

    from tfm.compat import FlaxBertForMaskedLM        # was: from transformers import FlaxBertForMaskedLM
    model = FlaxBertForMaskedLM.from_pretrained(folder)
    logits = model(**tokenizer(text, return_tensors="np")).logits

They take and give the same nested dict of parameters, and read and write the same folders.
"""

import re
import sys
from collections.abc import Iterator, Sequence

from tfm.compat.auto import Auto, ModelChoices
from tfm.compat.classes import BASES, EncoderModel, ImageModel, MaskedImageModel, shift_tokens_right
from tfm.compat.families import BASE_PREFIXES, FAMILIES
from tfm.compat.flax_module import FlaxPreTrainedModel
from tfm.compat.modules import MODULES
from tfm.compat.pretrained import Pretrained
from tfm.compat.towers import TOWERS, ImageTowerModel, TextTowerModel
from tfm.options.errors import suggest

# What an architecture is called besides its family.
SUFFIX = re.compile("For.*|LMHeadModel|MTModel|EncoderModel|ModelWithProjection|Model")

# Families whose classes are called in ways of their own.
CALLS: dict[str, type[Pretrained]] = {**TOWERS, "beit": MaskedImageModel}

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


def _choices(suffixes: Sequence[str]) -> ModelChoices:
    """The class of every family that has one of these suffixes, the first of them that it has."""
    choices: dict[str, type[Pretrained]] = {}
    for family, by_suffix in BY_FAMILY.items():
        suffix = next((suffix for suffix in suffixes if suffix in by_suffix), None)
        if suffix is not None:
            choices[family] = by_suffix[suffix]
    return ModelChoices(choices)


def _family_classes(family: str) -> dict[str, type[Pretrained]]:
    """The classes of a family by the suffix of their architecture."""
    classes: dict[str, type[Pretrained]] = {}
    for architecture, head in FAMILIES[family].heads.items():
        reads_images = FAMILIES[family].base.input.grid is not None
        base = CALLS.get(family, ImageModel if reads_images else BASES.get(head.kind, EncoderModel))
        base = CALLS.get(architecture, base)
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


def _auto_class(task: str, choices: ModelChoices) -> type[Auto]:
    """The automatic class of a task, such as ForMaskedLM."""
    encoders = {} if task else {cls.architecture: cls for cls in _encoder_classes()}
    fields = {"choices": choices, "encoders": encoders, "__doc__": Auto.__doc__, "__module__": __name__}
    return type(f"FlaxAutoModel{task}", (Auto,), fields)


def _encoder_classes() -> Iterator[type[Pretrained]]:
    """The classes of an encoder alone, of families that have a decoder too."""
    return (by_suffix["EncoderModel"] for by_suffix in BY_FAMILY.values() if "EncoderModel" in by_suffix)


def _mapping_name(task: str) -> str:
    """What transformers calls the choices of an automatic class: FLAX_MODEL_FOR_MASKED_LM_MAPPING."""
    names = {"": "", "ForPreTraining": "FOR_PRETRAINING", "ForSeq2SeqLM": "FOR_SEQ_TO_SEQ_CAUSAL_LM"}
    words = names.get(task, re.sub("(?<=[a-z])(?=[A-Z])", "_", task).upper())
    return "_".join(word for word in ("FLAX_MODEL", words, "MAPPING") if word)


BY_FAMILY = {family: _family_classes(family) for family in FAMILIES}
CHOICES = {task: _choices(suffixes) for task, suffixes in AUTO_SUFFIXES.items()}
AUTO_CLASSES = {f"FlaxAutoModel{task}": _auto_class(task, choices) for task, choices in CHOICES.items()}
CLASSES = {cls.__name__: cls for by_suffix in BY_FAMILY.values() for cls in by_suffix.values()}
MAPPINGS = {_mapping_name(task): choices for task, choices in CHOICES.items()}
# What classes of a tower share: an instance of either is one.
SHARED = {
    "FlaxPreTrainedModel": FlaxPreTrainedModel,
    "FlaxCLIPTextPreTrainedModel": TextTowerModel,
    "FlaxCLIPVisionPreTrainedModel": ImageTowerModel,
}
PUBLIC = {**CLASSES, **SHARED, **MODULES, **AUTO_CLASSES, **MAPPINGS, "shift_tokens_right": shift_tokens_right}
__all__ = sorted(PUBLIC)


def __getattr__(name: str):
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

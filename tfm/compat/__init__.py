"""The Flax classes that transformers 5 removed: change the import line, and a script runs on.

    from tfm.compat import FlaxBertForMaskedLM        # was: from transformers import FlaxBertForMaskedLM
    model = FlaxBertForMaskedLM.from_pretrained(folder)
    logits = model(**tokenizer(text, return_tensors="np")).logits

They take and give the same nested dict of parameters, and read and write the same folders.
"""

import re
from typing import Any

from tfm.compat.auto import Auto
from tfm.compat.classes import BASES, Encoder, Images
from tfm.hf import FAMILIES

# Families that had Flax classes, and architectures of them that had none.
FLAX_FAMILIES = (
    "bert",
    "roberta",
    "distilbert",
    "electra",
    "albert",
    "gpt2",
    "llama",
    "mistral",
    "t5",
    "bart",
    "marian",
    "pegasus",
    "vit",
)
WITHOUT_FLAX = "T5WithLMHeadModel", "BartModel"

# What an architecture is called besides its family.
SUFFIX = re.compile("For.*|LMHeadModel|MTModel|Model")

# What the automatic classes choose: the first of these that a family has.
AUTO_SUFFIXES = {
    "": ("Model",),
    "ForMaskedLM": ("ForMaskedLM",),
    "ForSequenceClassification": ("ForSequenceClassification",),
    "ForImageClassification": ("ForImageClassification",),
    "ForTokenClassification": ("ForTokenClassification",),
    "ForQuestionAnswering": ("ForQuestionAnswering",),
    "ForNextSentencePrediction": ("ForNextSentencePrediction",),
    "ForPreTraining": ("ForPreTraining", "ForMaskedLM", "LMHeadModel", "ForConditionalGeneration"),
    "ForCausalLM": ("LMHeadModel", "ForCausalLM"),
    "ForSeq2SeqLM": ("ForConditionalGeneration", "MTModel"),
}


def _classes() -> dict[str, type]:
    """Every class by its name."""
    by_family = {family: _family_classes(family) for family in FLAX_FAMILIES}
    classes = {cls.__name__: cls for by_suffix in by_family.values() for cls in by_suffix.values()}
    for task, suffixes in AUTO_SUFFIXES.items():
        choices: dict[str, type] = {}
        for family, by_suffix in by_family.items():
            suffix = next((suffix for suffix in suffixes if suffix in by_suffix), None)
            if suffix is not None:
                choices[family] = by_suffix[suffix]
        name = f"FlaxAutoModel{task}"
        classes[name] = type(name, (Auto,), {"choices": choices, "__doc__": Auto.__doc__, "__module__": __name__})
    return classes


def _family_classes(family: str) -> dict[str, type]:
    """The classes of a family by the suffix of their architecture."""
    classes: dict[str, type] = {}
    for architecture, head in FAMILIES[family].heads.items():
        if architecture in WITHOUT_FLAX or head.kind == "choice":
            continue
        reads_images = FAMILIES[family].base.input.grid is not None
        base: Any = Images if reads_images else BASES.get(head.kind, Encoder)
        doc = base.__doc__ or ""
        fields = {
            "family": family,
            "architecture": architecture,
            "__doc__": f"{architecture} as it was in Flax: {doc[:1].lower()}{doc[1:]}",
            "__module__": __name__,
        }
        classes[SUFFIX.findall(architecture)[0]] = type(f"Flax{architecture}", (base,), fields)
    return classes


CLASSES = _classes()
__all__ = sorted(CLASSES)


def __getattr__(name: str) -> Any:
    if name not in CLASSES:
        raise AttributeError(f"tfm.compat has no {name!r}; it has {', '.join(__all__)}")
    return CLASSES[name]


def __dir__() -> list[str]:
    return __all__

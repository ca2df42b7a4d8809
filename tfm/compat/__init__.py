"""The Flax classes that transformers 5 removed: change the import line, and a script runs on.

    from tfm.compat import FlaxBertForMaskedLM        # was: from transformers import FlaxBertForMaskedLM
    model = FlaxBertForMaskedLM.from_pretrained(folder)
    logits = model(**tokenizer(text, return_tensors="np")).logits

They take and give the same nested dict of parameters, and read and write the same folders.
"""

import re
from typing import Any

from tfm.compat.classes import BASES, Auto, Encoder
from tfm.hf import FAMILIES

# Families that the old classes had, and architectures of ours that they had not.
OLD = (
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
)
NEW = "T5WithLMHeadModel", "BartModel"

# What an architecture is called besides its family.
PART = re.compile("For.*|LMHeadModel|MTModel|Model")

# What the automatic classes choose, the first that a family has.
AUTO = {
    "": ("Model",),
    "ForMaskedLM": ("ForMaskedLM",),
    "ForSequenceClassification": ("ForSequenceClassification",),
    "ForTokenClassification": ("ForTokenClassification",),
    "ForQuestionAnswering": ("ForQuestionAnswering",),
    "ForNextSentencePrediction": ("ForNextSentencePrediction",),
    "ForPreTraining": ("ForPreTraining", "ForMaskedLM", "LMHeadModel", "ForConditionalGeneration"),
    "ForCausalLM": ("LMHeadModel", "ForCausalLM"),
    "ForSeq2SeqLM": ("ForConditionalGeneration", "MTModel"),
}


def _classes() -> dict[str, type]:
    """Every class by its name."""
    found: dict[str, Any] = {}
    of: dict[str, dict[str, type]] = {}
    for name in OLD:
        heads = {each: head for each, head in FAMILIES[name].heads.items() if each not in NEW}
        of[name] = {}
        for architecture, head in heads.items():
            base = BASES.get(head.kind, Encoder)
            doc = f"{architecture} as it was in Flax: {(base.__doc__ or '')[0].lower()}{(base.__doc__ or '')[1:]}"
            fields = {"family": name, "architecture": architecture, "__doc__": doc, "__module__": __name__}
            of[name][architecture] = found[f"Flax{architecture}"] = type(f"Flax{architecture}", (base,), fields)
    for task, endings in AUTO.items():
        choices: dict[str, type] = {}
        for family, classes in of.items():
            parts = {PART.findall(each)[0]: one for each, one in classes.items()}
            first = next((ending for ending in endings if ending in parts), None)
            choices |= {} if first is None else {family: parts[first]}
        auto = f"FlaxAutoModel{task}"
        found[auto] = type(auto, (Auto,), {"choices": choices, "__doc__": Auto.__doc__, "__module__": __name__})
    return found


CLASSES = _classes()
__all__ = sorted(CLASSES)


def __getattr__(name: str) -> Any:
    if name not in CLASSES:
        raise AttributeError(f"tfm.compat has no {name!r}; it has {', '.join(__all__)}")
    return CLASSES[name]


def __dir__() -> list[str]:
    return __all__

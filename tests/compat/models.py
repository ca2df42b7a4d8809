"""Small models for the tests of `tfm.compat`: folders written without torch, and what compares parameters."""

import json
from functools import partial

import flax
import jax
import numpy as np
from hf_models import CASES, MODELS, weights

import tfm.compat
from tfm.compat.families import FAMILIES
from tfm.hf.parameters import leaves
from tfm.hf.tensors import write_folder

COVERED = [case for case in CASES if f"Flax{case[1]}" in tfm.compat.PUBLIC]
# Classes of bare models and heads that `tfm.from_hf` does not read.
FLAX_ONLY = [
    ("bert", "BertForCausalLM"),
    ("roberta", "RobertaForCausalLM"),
    ("xlm_roberta", "XLMRobertaForMaskedLM"),
    ("xlm_roberta", "XLMRobertaForCausalLM"),
    ("electra", "ElectraForCausalLM"),
    ("gpt2", "GPT2Model"),
    ("gpt_neo", "GPTNeoModel"),
    ("bloom", "BloomModel"),
    ("llama", "LlamaModel"),
    ("mistral", "MistralModel"),
    ("t5", "T5Model"),
    ("t5", "T5EncoderModel"),
    ("longt5", "LongT5Model"),
    ("bart", "BartModel"),
    ("bart", "BartForQuestionAnswering"),
    ("marian", "MarianModel"),
    ("pegasus", "PegasusModel"),
]
DECODERS = ["gpt2", "gpt_neo", "bloom"]
WRITERS = [*DECODERS, "t5", "bart", "marian", "pegasus"]


def saved(folder, name, architecture=None, **overrides):
    """A folder of one of the small models, written without torch."""
    model_type, fields, architectures = MODELS[name]
    architecture = architecture or architectures[0]
    family = FAMILIES[model_type]
    fields = {"model_type": model_type, "architectures": [architecture], **fields, **overrides}
    head = family.heads[architecture]
    config = family.config(fields, head)
    model_leaves = leaves(head.specs(config), family.table(config, head))
    shapes = {tensor: leaf.shape for leaf in model_leaves for tensor in leaf.names}
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(
        folder, [(tensor, np.float32, shape, partial(weights, tensor, shape)) for tensor, shape in shapes.items()]
    )
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def opened(folder, name, architecture=None, **overrides):
    """Such a model."""
    architecture = architecture or MODELS[name][2][0]
    return getattr(tfm.compat, f"Flax{architecture}").from_pretrained(saved(folder, name, architecture, **overrides))


def assert_close(tree, expected, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=1e-5), tree, expected)


def paths(tree):
    return {".".join(path) for path in flax.traverse_util.flatten_dict(tree)}

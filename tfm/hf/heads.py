"""What the architectures of Hugging Face folders predict."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp

from tfm.catalogue.models import towers
from tfm.config.model import Config
from tfm.hf.names import Names
from tfm.models import classifier, heads, seq2seq


class Head(NamedTuple):
    """What an architecture predicts (`KINDS`), the names of its own tensors, and fields of ours by dotted name."""

    kind: str
    names: Names = MappingProxyType({})
    overrides: Mapping[str, Any] = MappingProxyType({})

    def specs(self, config: Config) -> Any:
        """The spec tree of such a model."""
        return KINDS[self.kind](config, self.names)


def _model(config: Config, names: Names) -> classifier.Classifier:
    """An encoder without a head; with a pooler where there is one."""
    specs = classifier.classifier_specs(config)
    return dataclasses.replace(
        specs,
        pooler=specs.pooler if "pooler" in names else None,
        norm=specs.norm if "norm" in names else None,
        output=None,
    )


def _tagger(config: Config, names: Names) -> heads.Tagger:
    """Outputs for each token: its classes, the start and the end of an answer, or whether it was replaced."""
    return heads.tagger_specs(config, dense="dense" in names)


KINDS: dict[str, Callable[[Config, Names], Any]] = {
    "model": _model,
    "mlm": lambda config, names: heads.masked_lm_specs(config),
    "pretrain": lambda config, names: heads.masked_lm_specs(config, next_sentence=True),
    **dict.fromkeys(("classify", "classify_pixels", "choice"), lambda config, _: classifier.classifier_specs(config)),
    "tag": _tagger,
    "span": _tagger,
    "detect": _tagger,
    "masked_image": lambda config, names: heads.masked_image_specs(config),
    **dict.fromkeys(("lm", "pixels"), lambda config, names: heads.causal_lm_specs(config)),
    "seq2seq": lambda config, names: seq2seq.seq2seq_specs(config),
    "towers": lambda config, names: towers.towers_specs(config),
}


def with_output_bias(config: Config, params: Any) -> tuple[Config, Any]:
    """A language model with a bias of its output, float32 zeros where it had none."""
    if params.bias is None:
        params = dataclasses.replace(params, bias=jnp.zeros(config.padded_vocab, jnp.float32))
    return dataclasses.replace(config, head=dataclasses.replace(config.head, output_bias=True)), params

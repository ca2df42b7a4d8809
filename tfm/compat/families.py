"""The families as their Flax classes had them: with bare models and more heads, and with all positions of RoBERTa."""

import dataclasses
from typing import Annotated, Any

from flax import struct

from tfm.config.model import MAX_SIZES, Config
from tfm.hf import FAMILIES as HF_FAMILIES
from tfm.hf.families.encoders import bert, electra, roberta
from tfm.hf.family import Family, HfHead, Reading
from tfm.hf.fields import Fields
from tfm.hf.parameters import HfTensor
from tfm.models.classifier import Classifier
from tfm.models.encoder import Encoder, encoder_specs
from tfm.models.seq2seq import Seq2Seq, encoder_config, seq2seq_specs
from tfm.ops import Linear, linear_specs
from tfm.options.choices import Range
from tfm.options.json_text import Json

# Families that had Flax classes, and what their bare models are called inside of models with heads.
BASE_PREFIXES = {
    **{name: name for name in ("bert", "roberta", "distilbert", "electra", "albert", "roformer", "vit", "beit")},
    "xlm-roberta": "roberta",
    "big_bird": "bert",
    **dict.fromkeys(("gpt2", "gpt_neo", "bloom", "t5", "mt5", "umt5", "longt5"), "transformer"),
    **dict.fromkeys(("llama", "mistral", "bart", "marian", "pegasus"), "model"),
    **dict.fromkeys(("clip", "clip_text_model", "clip_vision_model"), ""),
}


@struct.dataclass
class Seq2SeqReader:
    """A translation model whose decoder reads a text, outputs [D,C] of its states, and a map before them or None."""

    encoder: Encoder
    decoder: Encoder
    output: Linear
    dense: Linear | None = None

    @property
    def seq2seq(self) -> Seq2Seq:
        """The translation model."""
        return Seq2Seq(self.encoder, self.decoder, None)


class EncoderHead(HfHead):
    """The encoder of a translation model without a head."""

    def specs(self, config: Config) -> Classifier:
        """The spec tree of such a model."""
        return Classifier(encoder_specs(encoder_config(config)), pooler=None, output=None)


@struct.dataclass
class ProjectedTexts:
    """A tower of texts, and a map [D,C] of its vectors."""

    encoder: Encoder
    projection: Linear


class ProjectionHead(HfHead):
    """A tower of texts whose vectors are mapped; the classes of the configuration are the size of their space."""

    def specs(self, config: Config) -> ProjectedTexts:
        """The spec tree of such a model."""
        return ProjectedTexts(encoder_specs(config), linear_specs(config, "D", "C", bias=False))


class ReaderHead(HfHead):
    """Outputs that read the states of the decoder of a translation model."""

    def specs(self, config: Config) -> Seq2SeqReader:
        """The spec tree of such a model."""
        model = seq2seq_specs(config)
        dense = linear_specs(config, "D", "E", bias=True) if "dense" in self.names else None
        return Seq2SeqReader(model.encoder, model.decoder, linear_specs(config, "D", "C", bias=True), dense)


BARE = {"tie_embeddings": True}
BARE_SEQ2SEQ = BARE | {"head.output_bias": False}
ROBERTA_LM = HfHead("mlm", roberta.ROBERTA.heads["RobertaForMaskedLM"].names)
HEADS: dict[str, dict[str, HfHead]] = {
    "bert": {"BertForCausalLM": HfHead("mlm", bert.MLM)},
    "roberta": {"RobertaForCausalLM": ROBERTA_LM},
    "xlm-roberta": {"XLMRobertaForCausalLM": ROBERTA_LM},
    "electra": {"ElectraForCausalLM": HfHead("mlm", electra.ELECTRA.heads["ElectraForMaskedLM"].names)},
    "gpt2": {"GPT2Model": HfHead("lm", overrides=BARE)},
    "gpt_neo": {"GPTNeoModel": HfHead("lm", overrides=BARE)},
    "bloom": {"BloomModel": HfHead("lm", overrides=BARE)},
    "llama": {"LlamaModel": HfHead("lm", overrides=BARE)},
    "mistral": {"MistralModel": HfHead("lm", overrides=BARE)},
    "clip_text_model": {"CLIPTextModelWithProjection": ProjectionHead("model", {"projection": "text_projection"})},
    "t5": {"T5Model": HfHead("seq2seq", overrides=BARE), "T5EncoderModel": EncoderHead("model")},
    "mt5": {"MT5Model": HfHead("seq2seq", overrides=BARE), "MT5EncoderModel": EncoderHead("model")},
    "umt5": {"UMT5Model": HfHead("seq2seq", overrides=BARE), "UMT5EncoderModel": EncoderHead("model")},
    "longt5": {"LongT5Model": HfHead("seq2seq", overrides=BARE)},
    "bart": {
        "BartModel": HfHead("seq2seq", overrides=BARE_SEQ2SEQ),
        "BartForSequenceClassification": ReaderHead(
            "read classes",
            {"dense": "classification_head.dense", "output": "classification_head.out_proj"},
            BARE_SEQ2SEQ,
        ),
        "BartForQuestionAnswering": ReaderHead("read span", {"output": "qa_outputs"}, BARE_SEQ2SEQ | {"classes": 2}),
    },
    "marian": {"MarianModel": HfHead("seq2seq", overrides=BARE_SEQ2SEQ)},
    "pegasus": {"PegasusModel": HfHead("seq2seq", overrides=BARE_SEQ2SEQ)},
}
COUNT_TOKENS = ("roberta", "xlm-roberta")  # their positions count tokens, and padding has one too
NEED_TARGETS = ("t5", "mt5", "umt5", "longt5")  # of other translation models, the source is the target by default
WITHOUT_FLAX = ("T5WithLMHeadModel",)  # architectures of these families that had no Flax class


def _read_roberta(fields: Fields) -> Reading:
    """The length of the table of positions, whose first rows are of padding."""
    return {"length": fields.get("max_position_embeddings", 512)}, {"max_position_embeddings"}


def _write_roberta(config: Config) -> dict[str, Json]:
    """See `_read_roberta`."""
    return {"max_position_embeddings": config.length, "pad_token_id": 1}


def _t5_changes(name: str, encoder: str) -> dict[str, Any]:
    """A decoder may have no layers in a folder of T5 or its like; then only the class of the encoder reads it."""

    def read(fields: Fields) -> Reading:
        """Raises ValueError for a decoder without layers, where there is one."""
        if fields.get("num_decoder_layers") == 0 and fields.get("architectures") != [encoder]:
            raise ValueError(
                f"config.json has num_decoder_layers=0; only {encoder} has no decoder, so take Flax{encoder}"
            )
        return HF_FAMILIES[name].read(fields)

    return {"read": read, "types": {"num_decoder_layers": Annotated[int, Range(0, MAX_SIZES["layers"])] | None}}


def _read_projection(fields: Fields) -> Reading:
    """The size of the space of texts and images, where a map leads there."""
    return {"classes": fields.get("projection_dim", 512)}, {"projection_dim"}


def _write_projection(config: Config) -> dict[str, Json]:
    """See `_read_projection`."""
    return {"projection_dim": config.classes}


def _read_bart(fields: Fields) -> Reading:
    """Sizes, and the classes, which are three where config.json names none."""
    values, used = HF_FAMILIES["bart"].read(fields)
    return values | ({} if fields.get("id2label") or fields.get("num_labels") else {"classes": 3}), used


# Tensors of Marian and Pegasus that a bare model does not use.
COMPUTED = r"^final_logits_bias$|^(en|de)coder\.embed_positions\.weight$"

# Of a folder of CLIP, what one of its towers does not use.
BESIDE_TOWERS = r"position_ids$|^(text|visual)_projection\.|^logit_scale$"


def _tower(name: str, absent: str) -> dict[str, Any]:
    """A tower of CLIP, whose parameters keep their prefix; folders of it alone may lack it."""
    family = HF_FAMILIES[name]
    tensors = {path: HfTensor(str(tensor)) if isinstance(tensor, str) else tensor for path, tensor in _names(family)}
    names = {
        path: tensor._replace(fallback_name=tensor.name.removeprefix(family.prefix)) for path, tensor in tensors.items()
    }
    return {"prefix": "", "names": names, "unused": rf"{BESIDE_TOWERS}|^{absent}\."}


def _names(family: Family) -> list[tuple[str, str | HfTensor]]:
    """The tensors of a family whose table does not depend on the configuration."""
    assert not callable(family.names)
    return list(family.names.items())


ROBERTA_CHANGES = {"read": _read_roberta, "write": _write_roberta, "names": bert.names("roberta")}
CHANGES: dict[str, dict[str, Any]] = {
    "clip_text_model": _tower("clip_text_model", absent="vision_model")
    | {"read": _read_projection, "write": _write_projection},
    "clip_vision_model": _tower("clip_vision_model", absent="text_model"),
    **{name: _t5_changes(name, f"{name.upper()}EncoderModel") for name in ("t5", "mt5", "umt5")},
    "roberta": ROBERTA_CHANGES,
    "xlm-roberta": ROBERTA_CHANGES,
    "bart": {
        "read": _read_bart,
        "unused": rf"{HF_FAMILIES['bart'].unused}|^final_logits_bias$|^classification_head\.|^qa_outputs\.",
    },
    "marian": {"unused": rf"{HF_FAMILIES['marian'].unused}|{COMPUTED}"},
    "pegasus": {"unused": rf"{HF_FAMILIES['pegasus'].unused}|{COMPUTED}"},
}


def _family(name: str) -> Family:
    """A family with all its heads."""
    family = HF_FAMILIES[name]
    heads = {architecture: head for architecture, head in family.heads.items() if architecture not in WITHOUT_FLAX}
    heads |= HEADS.get(name, {})
    allowed = dict(family.allowed)
    if any(architecture.endswith("ForCausalLM") and head.kind == "mlm" for architecture, head in heads.items()):
        allowed["is_decoder"] = (False, True)
    return dataclasses.replace(family, heads=heads, allowed=allowed, **CHANGES.get(name, {}))


FAMILIES = {name: _family(name) for name in BASE_PREFIXES}


def is_bare(architecture: str) -> bool:
    """Whether an architecture has no head."""
    return architecture.endswith("Model") and not architecture.endswith(("LMHeadModel", "MTModel"))

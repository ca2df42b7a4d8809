"""Hugging Face folders, without torch: a family of models is a file here, with a table of names and one of fields."""

from pathlib import Path

from tfm.hf.families.decoders.bloom import BLOOM
from tfm.hf.families.decoders.gpt2 import GPT2
from tfm.hf.families.decoders.gpt_neo import GPT_NEO
from tfm.hf.families.decoders.gpt_neox import GPT_NEOX
from tfm.hf.families.decoders.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from tfm.hf.families.decoders.mixtral import MIXTRAL
from tfm.hf.families.decoders.mpt import MPT
from tfm.hf.families.decoders.openai_gpt import OPENAI_GPT
from tfm.hf.families.decoders.reformer import REFORMER
from tfm.hf.families.encoders.albert import ALBERT
from tfm.hf.families.encoders.bert import BERT
from tfm.hf.families.encoders.big_bird import BIG_BIRD
from tfm.hf.families.encoders.deberta import DEBERTA
from tfm.hf.families.encoders.distilbert import DISTILBERT
from tfm.hf.families.encoders.electra import ELECTRA
from tfm.hf.families.encoders.fnet import FNET
from tfm.hf.families.encoders.longformer import LONGFORMER
from tfm.hf.families.encoders.modernbert import MODERNBERT
from tfm.hf.families.encoders.mpnet import MPNET
from tfm.hf.families.encoders.nystromformer import NYSTROMFORMER
from tfm.hf.families.encoders.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from tfm.hf.families.encoders.roformer import ROFORMER
from tfm.hf.families.seq2seq.bart import BART, MARIAN, PEGASUS
from tfm.hf.families.seq2seq.led import LED
from tfm.hf.families.seq2seq.longt5 import LONGT5
from tfm.hf.families.seq2seq.mbart import M2M_100, MBART
from tfm.hf.families.seq2seq.mt5 import MT5, UMT5
from tfm.hf.families.seq2seq.switch_transformers import SWITCH_TRANSFORMERS
from tfm.hf.families.seq2seq.t5 import T5
from tfm.hf.families.seq2seq.whisper import WHISPER
from tfm.hf.families.vision.audio_spectrogram_transformer import AST
from tfm.hf.families.vision.beit import BEIT
from tfm.hf.families.vision.clip import CLIP, CLIP_TEXT, CLIP_VISION, SIGLIP
from tfm.hf.families.vision.detr import DETR
from tfm.hf.families.vision.dino import DINO_V2, DINO_V3
from tfm.hf.families.vision.imagegpt import IMAGEGPT
from tfm.hf.families.vision.pvt import PVT
from tfm.hf.families.vision.segformer import SEGFORMER
from tfm.hf.families.vision.swin import SWIN, SWIN_V2
from tfm.hf.families.vision.videomae import VIDEOMAE
from tfm.hf.families.vision.vit import DEIT, VIT, VIT_MAE
from tfm.hf.families.vision.vivit import VIVIT
from tfm.hf.family import Family
from tfm.hf.fields import Fields

# In this order they are tried for a model that does not say what it is.
FAMILIES = {
    family.name: family
    for family in (
        *(BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, ELECTRA, ALBERT, MODERNBERT, DEBERTA),
        *(LONGFORMER, BIG_BIRD, ROFORMER, FNET, NYSTROMFORMER, CAMEMBERT, MPNET),
        *(GPT2, GPT_NEO, GPT_NEOX, BLOOM, MPT, REFORMER, LLAMA, MISTRAL, MIXTRAL, QWEN3, QWEN2, OPENAI_GPT),
        *(T5, LONGT5, SWITCH_TRANSFORMERS, BART, MARIAN, PEGASUS, LED, MBART, M2M_100, MT5, UMT5, WHISPER),
        *(VIT, DEIT, BEIT, SWIN, SWIN_V2, IMAGEGPT, CLIP, SIGLIP, CLIP_TEXT, CLIP_VISION),
        *(VIT_MAE, DINO_V2, DINO_V3, VIVIT, VIDEOMAE, AST, PVT, SEGFORMER, DETR),
    )
}


def family(fields: Fields, folder: str | Path) -> Family:
    """The family that config.json names. Raises ValueError for one that is not supported."""
    name = fields.get("model_type")
    if name is None:
        raise ValueError(f"{folder}/config.json has no model_type; add it, one of {', '.join(FAMILIES)}")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(
            f"{folder} is of model_type {name}, which is not supported; supported are {', '.join(FAMILIES)}"
        )
    return FAMILIES[name]

"""mBART (Liu et al. 2020) and M2M-100 with NLLB (Fan et al. 2021, NLLB team 2022): BART that normalizes first."""

import dataclasses

from tfm.config.heads import Head
from tfm.config.positions import Sinusoidal
from tfm.config.residuals import PreNorm
from tfm.hf.families.seq2seq.bart import BART, BASE, FIELDS, WITHOUT_NORM
from tfm.hf.family import HfField, HfHead, unchanged

MBART = dataclasses.replace(
    BART,
    name="mbart",
    base=dataclasses.replace(BASE, residual=PreNorm()),
    allowed={
        "is_decoder": (False,),
        "add_final_layer_norm": (True,),
        "normalize_before": (True,),
        "normalize_embedding": (True,),
    },
    heads={"MBartForConditionalGeneration": HfHead("seq2seq")},
)
M2M_100 = dataclasses.replace(
    BART,
    name="m2m_100",
    base=dataclasses.replace(
        BASE, input=WITHOUT_NORM, position=Sinusoidal(order="fairseq"), residual=PreNorm(), head=Head()
    ),
    fields=FIELDS
    | {
        "vocab_size": HfField("vocab", 128112),
        "activation_function": FIELDS["activation_function"]._replace(default="relu"),
        "attention_dropout": HfField("attn_dropout", 0.1),
        "scale_embedding": HfField("input.scale", True),
    },
    allowed={
        "is_decoder": (False,),
        "add_final_layer_norm": (True,),
        "normalize_before": (True,),
        "normalize_embedding": (False,),
        "pad_token_id": (1,),  # positions begin after it
    },
    canonicalize=unchanged,
    heads={"M2M100ForConditionalGeneration": HfHead("seq2seq")},
)

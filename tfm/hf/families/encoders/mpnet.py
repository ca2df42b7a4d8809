"""MPNet (Song et al. 2020): RoBERTa without token types, with buckets of distances as T5 has beside its positions."""

from tfm.config import positions
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.hf.families.encoders import bert, roberta
from tfm.hf.family import Family, HfField
from tfm.hf.parameters import HfTensor

ATTENTION = "mpnet.encoder.layer.{}.attention"

MPNET = Family(
    name="mpnet",
    prefix="mpnet.",
    base=Config(input=Tokens(token_types=None), position=positions.T5(absolute=True)),
    fields={name: field for name, field in roberta.FIELDS.items() if name != "type_vocab_size"}
    | {"vocab_size": HfField("vocab", 30527)},
    # transformers asks for 32 buckets, whatever config.json says.
    allowed=roberta.ALLOWED | {"relative_attention_num_buckets": (32,)},
    read=roberta.read,
    write=roberta.write,
    names=bert.names("mpnet")
    | {
        "encoder.embed.positions": HfTensor(
            "mpnet.embeddings.position_embeddings.weight", skip_rows=roberta.UNUSED_ROWS
        ),
        "encoder.positions.0": "mpnet.encoder.relative_attention_bias.weight",
        "encoder.layers.mixer.query": f"{ATTENTION}.attn.q",
        "encoder.layers.mixer.key": f"{ATTENTION}.attn.k",
        "encoder.layers.mixer.value": f"{ATTENTION}.attn.v",
        "encoder.layers.mixer.output": f"{ATTENTION}.attn.o",
        "encoder.layers.residual.mixer": f"{ATTENTION}.LayerNorm",
    },
    heads=roberta.heads("mpnet", "MPNet"),
    unused=roberta.UNUSED,
    copies=bert.copies("mpnet", "lm_head"),
)

"""BigBird (Zaheer et al. 2020): BERT with blocks that see their neighbours, the first and the last block.

transformers draws random blocks in training alone, for each layer and head. In evaluation the first block stands for
them, and counts once more for each: so does `draw=first`. Short rows see every key there and here.
"""

from typing import Annotated, Literal

from tfm.catalogue.options.patterns import BigBird
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.hf.families.encoders import bert
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ACTIVATIONS, Fields, Size
from tfm.options.choices import Range
from tfm.options.dotted import flatten
from tfm.options.json_text import Json

SPARSE, FULL = "block_sparse", "original_full"
POOLER = {"pooler": "bert.pooler"}
# The pooler of classes has the activation of the layers, and that of all other heads this one.
TANH = {"head.pool_activation": "tanh"}


def sparse(block: int, random: int) -> BigBird:
    """The pattern of transformers in evaluation."""
    return BigBird(
        block=block,
        window=3,
        global_blocks=1,
        random=random,
        last_blocks=1,
        draw="first",
        dense_blocks=5 + 2 * random,
    )


def read(fields: Fields) -> Reading:
    """The pattern of attention, and the activation of the pooler of classes."""
    used = {"attention_type", "block_size", "num_random_blocks"}
    values = bert.read_pooler(fields, "gelu_new")
    if fields.get("attention_type", SPARSE) == FULL:
        return values | {"mixer.pattern": "full"}, used
    pattern = sparse(fields.get("block_size", 64), fields.get("num_random_blocks", 3))
    return values | {"mixer.pattern": pattern.name} | flatten(pattern, "mixer.pattern."), used


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    pattern = config.mixer.pattern if isinstance(config.mixer, Softmax) else None
    if not isinstance(pattern, BigBird):
        return {"attention_type": FULL}
    return {"attention_type": SPARSE, "block_size": pattern.block, "num_random_blocks": pattern.random}


BIG_BIRD = Family(
    name="big_bird",
    prefix="bert.",
    base=Config(),
    fields=bert.FIELDS
    | {
        "vocab_size": HfField("vocab", 50358),
        "hidden_act": HfField("activation", "gelu_new", ACTIVATIONS),
        "max_position_embeddings": HfField("length", 4096),
        "use_bias": HfField("mixer.qkv_bias", True),
        "rescale_embeddings": HfField("input.scale", False),
    },
    allowed=bert.ALLOWED,
    types={
        "attention_type": Literal["block_sparse", "original_full"],
        "block_size": Size,
        "num_random_blocks": Annotated[int, Range(0, 1 << 20)],
    },
    read=read,
    write=write,
    canonicalize=bert.canonicalize,
    names=bert.names("bert"),
    heads={
        "BigBirdModel": HfHead("model", POOLER, TANH),
        "BigBirdForMaskedLM": HfHead("mlm", bert.MLM),
        "BigBirdForPreTraining": HfHead("pretrain", bert.MLM | POOLER | {"next": "cls.seq_relationship"}, TANH),
        "BigBirdForSequenceClassification": HfHead(
            "classify", {"pooler": "classifier.dense", "output": "classifier.out_proj"}
        ),
        "BigBirdForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "BigBirdForMultipleChoice": HfHead("choice", POOLER | {"output": "classifier"}, TANH | {"classes": 1}),
    },
    unused=bert.BERT.unused,
    spare=r"^bert\.pooler\.",
    copies=bert.copies("bert"),
)

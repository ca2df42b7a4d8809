"""Nystromformer (Xiong et al. 2021).

Where config.json has as many landmarks as `segment_means_seq_len`, as the published models do, transformers computes
exact attention, and so do models that are read from such folders. Otherwise it reads texts of that length alone; here a
text of any length has as many landmarks.
"""

from tfm.catalogue.options.mixers.fewer_keys import Nystrom
from tfm.config.model import Config
from tfm.hf.families.encoders import bert
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import ELSEWHERE, Fields, Size
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

LAYER = "nystromformer.encoder.layer.{}.attention"
LANDMARKS = {"num_landmarks", "segment_means_seq_len"}


def read(fields: Fields) -> Reading:
    """Landmarks, the convolution, and the activation of the pooler.

    Raises ValueError for texts of a length that is not that of the table of positions.
    """
    landmarks, length = fields.get("num_landmarks", 64), fields.get("segment_means_seq_len", 64)
    table = fields.get("max_position_embeddings", 510)
    is_exact = landmarks == length
    if not is_exact and length != table:
        raise ValueError(
            f"config.json has segment_means_seq_len={length}; of nystromformer, only num_landmarks or "
            f"max_position_embeddings={table} is supported"
        )
    values = {
        "mixer.landmarks": None if is_exact else landmarks,
        "mixer.window": fields.get("conv_kernel_size", 65),
        **bert.read_pooler(fields, "gelu_new"),
    }
    return values, {"conv_kernel_size"} | (set() if is_exact else LANDMARKS)


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    mixer = config.mixer
    assert isinstance(mixer, Nystrom)
    return {
        "num_landmarks": mixer.landmarks or 64,
        "segment_means_seq_len": config.length if mixer.landmarks else 64,
        "conv_kernel_size": mixer.window,
    }


def names() -> dict[str, str | HfTensor]:
    """The tensors of an encoder."""
    tensors: dict[str, str | HfTensor] = {
        path.replace("mixer.", "mixer.attention.") if path.startswith("encoder.layers.mixer.") else path: name
        for path, name in bert.names("nystromformer").items()
    }
    return tensors | {
        "encoder.embed.positions": HfTensor("nystromformer.embeddings.position_embeddings.weight", skip_rows=2),
        "encoder.layers.mixer.convolution": HfTensor(f"{LAYER}.self.conv.weight", axes="K1w1"),
    }


NYSTROMFORMER = Family(
    name="nystromformer",
    prefix="nystromformer.",
    base=Config(mixer=Nystrom(reads_padding=True, shared_start=True)),
    fields=bert.FIELDS
    | {
        "vocab_size": HfField("vocab", 30000),
        "hidden_act": bert.FIELDS["hidden_act"]._replace(default="gelu_new"),
        "max_position_embeddings": HfField("length", 510),
        "layer_norm_eps": HfField("norm_eps", 1e-5),
    },
    types={"num_landmarks": Size, "segment_means_seq_len": Size, "conv_kernel_size": Size | None},
    allowed={"tie_word_embeddings": (True,), "add_cross_attention": (False,), "inv_coeff_init_option": (False,)},
    ignored=dict.fromkeys(LANDMARKS, ELSEWHERE),
    read=read,
    write=write,
    canonicalize=bert.canonicalize,
    names=names(),
    heads={
        "NystromformerForMaskedLM": HfHead("mlm", bert.MLM),
        "NystromformerModel": HfHead("model"),
        "NystromformerForSequenceClassification": HfHead(
            "classify", {"pooler": "classifier.dense", "output": "classifier.out_proj"}
        ),
        "NystromformerForTokenClassification": HfHead("tag", {"output": "classifier"}),
        "NystromformerForQuestionAnswering": HfHead("span", {"output": "qa_outputs"}, {"classes": 2}),
        "NystromformerForMultipleChoice": HfHead(
            "choice",
            {"pooler": "pre_classifier", "output": "classifier"},
            {"classes": 1, "head.pool_activation": "relu"},
        ),
    },
    unused=r"position_ids$|token_type_ids$|^cls\.",
    copies=bert.copies("nystromformer"),
)

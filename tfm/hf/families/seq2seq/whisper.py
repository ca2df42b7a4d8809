"""Whisper (Radford et al. 2022): an encoder of log-mel frames, and a decoder of texts."""

from tfm.catalogue.options.frames import Frames
from tfm.config.inputs import Tokens
from tfm.config.layers import EncoderOptions
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.seq2seq.bart import ALIASES, FIELDS, MUST_EQUAL, stack_names
from tfm.hf.families.seq2seq.bart import read as read_layers
from tfm.hf.families.seq2seq.bart import write as write_layers
from tfm.hf.family import Family, HfField, HfHead, Reading
from tfm.hf.fields import TRAINING, UNREAD, Fields, because
from tfm.hf.parameters import HfTensor
from tfm.options.json_text import Json

# The sizes of a folder that names none.
DEFAULTS = {"encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}

# Frames that become one position of the encoder.
_STRIDE = 2


def read(fields: Fields) -> Reading:
    """The sizes of the two stacks, and the frames of a sound."""
    values, names = read_layers({**DEFAULTS, **fields})
    frames = _STRIDE * fields.get("max_source_positions", 1500)
    return {**values, "encoder.input.size": frames}, names | {"max_source_positions"}


def write(config: Config) -> dict[str, Json]:
    """See `read`."""
    frames = config.encoder.input
    return write_layers(config) | {"max_source_positions": 0 if frames is None else frames.max_length(config)}


def _names() -> dict[str, str | HfTensor]:
    """The tensors of both stacks. Keys have no bias: of cross-attention it would change no weight, and starts at 0."""
    encoder, decoder = "model.encoder", "model.decoder"
    return {
        **stack_names("model", "encoder"),
        **stack_names("model", "decoder"),
        "encoder.embed.convolutions.0": HfTensor(f"{encoder}.conv1", axes="Dcw"),
        "encoder.embed.convolutions.1": HfTensor(f"{encoder}.conv2", axes="Ddw"),
        "encoder.embed.positions": f"{encoder}.embed_positions.weight",
        "decoder.embed.tokens": f"{decoder}.embed_tokens.weight",
        "decoder.embed.positions": f"{decoder}.embed_positions.weight",
        "decoder.layers.cross.key.bias": HfTensor(""),
        "table": "proj_out.weight",
    }


WHISPER = Family(
    name="whisper",
    prefix="model.",
    base=Config(
        input=Tokens(token_types=None, norm=False),
        mixer=Softmax(key_bias=False),
        residual=PreNorm(),
        norm_eps=1e-5,
        encoder=EncoderOptions(input=Frames(mask_padding=False)),
    ),
    fields={name: field for name, field in FIELDS.items() if name not in ("max_position_embeddings", "scale_embedding")}
    | {
        "vocab_size": HfField("vocab", 51865),
        "d_model": HfField("width", 384),
        "decoder_attention_heads": HfField("heads", 6),
        "decoder_ffn_dim": HfField("ffn", 1536),
        "dropout": HfField("dropout", 0.0),
        "num_mel_bins": HfField("encoder.input.channels", 80),
        "max_target_positions": HfField("length", 448),
    },
    must_equal=MUST_EQUAL,
    allowed={"is_decoder": (False,)},
    aliases=ALIASES,
    ignored=because(
        TRAINING,
        "encoder_layerdrop decoder_layerdrop apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks "
        "mask_feature_prob mask_feature_length mask_feature_min_masks",
    )
    | because(UNREAD, "median_filter_width scale_embedding use_weighted_layer_sum classifier_proj_size"),
    types={"max_source_positions": int},
    read=read,
    write=write,
    names=_names(),
    heads={
        "WhisperForConditionalGeneration": HfHead("seq2seq"),
        "WhisperModel": HfHead("seq2seq"),
    },
    unused=r"^proj_out\.weight$",
    copies={"model.decoder.embed_tokens.weight": ("proj_out.weight",)},
)

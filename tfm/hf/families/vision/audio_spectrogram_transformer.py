"""AST (Gong et al. 2021), a DeiT of spectrograms: the mean of its first two states says what a sound is."""

from tfm.catalogue.options.frames import Spectrogram
from tfm.config.heads import Head
from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.hf.families.vision import vit
from tfm.hf.family import Family, HfField, HfHead

_MODEL = "audio_spectrogram_transformer"
_POOL = {"head.pool": "prefix"}
AST = Family(
    name="audio-spectrogram-transformer",
    prefix=f"{_MODEL}.",
    base=Config(input=Spectrogram(), residual=PreNorm(), head=Head(dense=False, pool_norm=True)),
    fields={name: field for name, field in vit.FIELDS.items() if name not in ("num_channels", "pooler_act")}
    | {
        "max_length": HfField("input.size", 1024),
        "num_mel_bins": HfField("input.channels", 128),
        "patch_size": HfField("input.patch", 16),
        "time_stride": HfField("input.time_stride", 10),
        "frequency_stride": HfField("input.band_stride", 10),
    },
    allowed={"qkv_bias": (True,)},
    names=vit.names(_MODEL),
    heads={
        "ASTModel": HfHead("model", overrides=_POOL),
        "ASTForAudioClassification": HfHead(
            "classify", {"norm": "classifier.layernorm", "output": "classifier.dense"}, _POOL
        ),
    },
    unused=r"^classifier\.",
)

"""What a text, an image, a sound or a video is read from."""

from typing import Literal

from tfm.catalogue.options.frames import Frames, Spectrogram, Tubes
from tfm.catalogue.options.inputs import Characters, Merging, Patches
from tfm.catalogue.options.pictures import ResNet, ResNetV1, TokensAndPatches
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import InputOptions


@frozen
class Tokens(InputOptions):
    """Rows of a table of tokens.

    Raises ValueError for values outside their range.

    token_types: rows of the token-type table; none: no such table
    width: width of the table; none: that of the model, else a linear map leads from one to the other
    projection: last | first | repeat: that map is behind the norm, with a bias, or before it, without; repeat: in place
        of a map, embeddings stand side by side as often as they fit
    norm: normalize the embeddings
    scale: multiply the token embeddings by the root of the width of the model
    """

    name: Literal["tokens"] = tag("tokens")
    token_types: int | None = 2
    width: int | None = None
    projection: Literal["last", "first", "repeat"] = "last"
    norm: bool = True
    scale: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, token_types=1, width=1)
        check_maximum(self, "no model is as large", token_types=1 << 20, width=1 << 20)

    def check(self, config: ModelConfig) -> None:
        if self.projection == "repeat" and config.width % (self.width or config.width):
            raise ValueError(f"input.width={self.width} must divide width={config.width} for input.projection=repeat")

    @property
    def axis(self) -> str:
        return "D" if self.width is None else "U"

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {
            "U": self.width or config.width,
            "P": config.length,
            "V": config.padded_vocab,
            "Y": self.token_types or 0,
        }


Input = Tokens | Characters | Patches | ResNet | ResNetV1 | Merging | TokensAndPatches | Frames | Spectrogram | Tubes

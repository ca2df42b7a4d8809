"""A bidirectional language model: two directions of reading that never meet, in one encoder (Peters et al. 2018)."""

from flax import struct
from jax import Array

from tfm import params
from tfm.catalogue.options.reading import check_halves
from tfm.config.model import Config
from tfm.models.encoder import Encoder, encoder_specs
from tfm.models.heads import check_reads_tokens


@struct.dataclass
class BidirectionalLM:
    """An encoder whose stream has a half for each direction; the output table [V,U] that both halves meet, None where
    it is tied to the token table, and its bias [V]."""

    encoder: Encoder
    table: Array | None
    bias: Array

    @property
    def output(self) -> Array:
        """The table [V,U] that states meet."""
        return self.encoder.embed.tokens if self.table is None else self.table


def bidirectional_lm_specs(config: Config) -> BidirectionalLM:
    """The spec tree. Raises ValueError for a model whose directions meet, or are not as wide as its embeddings."""
    check_reads_tokens(config)
    check_halves(config)
    return BidirectionalLM(
        encoder=encoder_specs(config),
        table=None if config.tie_embeddings else params.weight_spec(config, "VU"),
        bias=params.bias_spec(config, "V"),
    )


def directions(hidden: Array) -> tuple[Array, Array]:
    """hidden [B,T,D] -> [B,T,U] of the tokens up to each, which predict the next one, and [B,T,U] of those from each
    on, which predict the one before (Peters et al. 2018, section 3.1)."""
    half = hidden.shape[-1] // 2
    return hidden[..., :half], hidden[..., half:]

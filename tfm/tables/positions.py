"""Positions by the tag of their options."""

from tfm.catalogue.positions import (
    alibi,
    axial,
    disentangled,
    huang,
    none,
    shaw,
    sinusoidal_relative,
    t5,
    transformer_xl,
    tupe,
)
from tfm.catalogue.positions.grid import beit, detr, swin, swin_v2
from tfm.interfaces import Position
from tfm.options.choices import Options
from tfm.positions import absolute, rotary

POSITIONS: dict[str, Position] = {
    "learned": absolute.LEARNED,
    "sinusoidal": absolute.SINUSOIDAL,
    "axial": axial.POSITION,
    "rotary": rotary.POSITION,
    "t5": t5.POSITION,
    "alibi": alibi.POSITION,
    "disentangled": disentangled.POSITION,
    "shaw": shaw.POSITION,
    "huang": huang.POSITION,
    "transformer_xl": transformer_xl.POSITION,
    "sinusoidal_relative": sinusoidal_relative.POSITION,
    "tupe": tupe.POSITION,
    "swin": swin.POSITION,
    "swin_v2": swin_v2.POSITION,
    "beit": beit.POSITION,
    "detr": detr.POSITION,
    "none": none.POSITION,
}


def position_of(options: Options) -> Position:
    """The functions of the scheme that options describe."""
    return POSITIONS[options.name]

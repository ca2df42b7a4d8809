"""Residual schemes with parameters that a batch sets, by the tag of their options."""

from collections.abc import Callable

from tfm.catalogue.residuals import admin, dtfixup
from tfm.interfaces import Block

# (options, config, blocks of all layers, their `Profile`) -> the blocks with the parameters that the batch sets.
CALIBRATIONS: dict[str, Callable[..., list[Block]]] = {"admin": admin.calibrate, "dtfixup": dtfixup.calibrate}

"""No positions: a causal model knows order by what its tokens see, an encoder does not know it."""

from tfm.interfaces import Position

POSITION = Position()

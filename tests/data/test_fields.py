"""Fields of a batch lie on the mesh as the letters of their axes say, and come back as they were sent."""

import jax
import numpy as np
import pytest

import tfm
from train.data import feed
from train.data.fields import Field

# On a mesh of data 2 and context 4: what is divided, and the shape with what fills up lengths.
LAYOUTS = {
    "B": ((8,), (None, "data"), (8,)),
    "BT": ((8, 16), (None, "data", "context"), (8, 16)),
    "BM": ((8, 11), (None, "data", "context"), (8, 12)),
    "BC": ((8, 3), (None, "data", None), (8, 3)),
    "Bhwc": ((8, 5, 6, 3), (None, "data", None, None, None), (8, 5, 6, 3)),
    "BTc": ((8, 11, 3), (None, "data", "context", None), (8, 12, 3)),
}


@pytest.mark.parametrize("axes", LAYOUTS)
def test_letters_say_how_a_field_lies_on_the_mesh(axes):
    shape, places, filled = LAYOUTS[axes]
    mesh = tfm.make_mesh(2, context=4)
    host = {"field": np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)}
    array = feed.to_devices(host, {"field": Field(axes, np.float32)}, mesh, parts=2)["field"]
    assert array.sharding.is_equivalent_to(jax.NamedSharding(mesh, jax.P(*places)), array.ndim)
    assert array.shape == (2, 4, *filled[1:])
    returned = np.asarray(array).reshape(filled)
    np.testing.assert_array_equal(returned[tuple(map(slice, shape))], host["field"])
    assert returned.sum(dtype=np.float64) == host["field"].sum(dtype=np.float64), "the rest is zeros"


def test_shapes_follow_from_letters_and_sizes():
    assert Field("BT", np.int32).shape(4, 16) == (4, 16)
    assert Field("BM", np.int32, {"M": 3}).shape(4, 16) == (4, 3)
    assert Field("B", np.float32).shape(4, 16) == (4,)

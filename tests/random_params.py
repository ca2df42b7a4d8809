"""Parameters that need no program: the tests of what a model computes draw them in numpy."""

import jax
import jax.numpy as jnp
import numpy as np

# Where parameters of these names start; all others that are not decayed start as their specs say.
MEANS = {"scale": 1.0, "bias": 0.0}


def random_params(specs, seed=0, std=0.2):
    """Parameters in the dtypes of their specs, of which none is 0 or 1, so that a forgotten bias or scale shows.

    What no optimizer changes is as the library makes it.
    """
    rng = np.random.default_rng(seed)

    def draw(path, spec):
        name = getattr(path[-1], "name", "")
        is_drawn = spec.trained and (spec.decay or name in MEANS)
        start = MEANS.get(name, 0.0) if is_drawn else spec.init(jax.random.key(seed), spec.shape, None)
        noise = std * rng.normal(size=spec.shape) if spec.trained else 0.0
        return jnp.asarray((np.asarray(start) + noise).astype(spec.dtype), spec.dtype)  # of its own dtype: no program

    return jax.tree_util.tree_map_with_path(draw, specs)

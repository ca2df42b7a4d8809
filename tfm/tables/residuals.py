"""Residual schemes by the tag of their options."""

from tfm.catalogue.residuals import (
    admin,
    conditional,
    deepnorm,
    dtfixup,
    mixer_only,
    none,
    parallel,
    patch_interaction,
    res_post,
    reversible,
    rezero,
    tfixup,
)
from tfm.interfaces import Residual
from tfm.options.choices import Options
from tfm.residuals import POST, PRE

RESIDUALS: dict[str, Residual] = {
    "post": POST,
    "pre": PRE,
    "res_post": res_post.RESIDUAL,
    "mixer_only": mixer_only.RESIDUAL,
    "conditional": conditional.RESIDUAL,
    "patch_interaction": patch_interaction.RESIDUAL,
    "parallel": parallel.RESIDUAL,
    "rezero": rezero.RESIDUAL,
    "tfixup": tfixup.RESIDUAL,
    "dtfixup": dtfixup.RESIDUAL,
    "admin": admin.RESIDUAL,
    "deepnorm": deepnorm.RESIDUAL,
    "reversible": reversible.RESIDUAL,
    "none": none.RESIDUAL,
}


def residual_of(options: Options) -> Residual:
    """The functions of the scheme that options describe."""
    return RESIDUALS[options.name]

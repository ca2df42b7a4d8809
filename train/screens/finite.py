"""Results that are not finite are refused, and the first layer where they arise is named."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from train import UserError

if TYPE_CHECKING:
    from tfm.params import PyTree

Result = TypeVar("Result")


def checked(function: Callable[..., Result], *args: object) -> Result:
    """function(*args), where dataclasses without arrays, such as a `tfm.Config`, are static.

    Raises UserError if the result holds values that are not finite: it names the first parameters, or the first layer.
    """
    from tfm.catalogue.studies.finite import names_not_finite

    result = function(*args)
    if names_not_finite(result):
        raise UserError(explain(function, *args))
    return result


def explain(function: Callable[..., object], *args: object) -> str:
    """The sentence about function(*args) that is not finite, with the place where that begins."""
    import jax

    from tfm.catalogue.studies.finite import first_not_finite

    remedy = "check the weights and the fields of the model, and take an older checkpoint or another model"
    if jax.process_count() > 1:
        return f"the model computes values that are not finite; {remedy}"
    arrays = [argument for argument in args if not _is_static(argument)]

    def of_arrays(*arrays: object) -> object:
        rest = iter(arrays)
        return function(*(argument if _is_static(argument) else next(rest) for argument in args))

    origin = first_not_finite(of_arrays, *arrays)
    place = f": {origin}" if origin else ", only where it is compiled as a whole: report it"
    return f"the model computes values that are not finite{place}; {remedy}"


def refuse_parameters(params: "PyTree", source: str):
    """Raises UserError if parameters are not finite; `source` is where they come from."""
    from tfm.catalogue.studies.finite import names_not_finite

    names = names_not_finite(params)
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise UserError(
            f"{source} holds parameters that are not finite: {names[0]}{more}; "
            "take an older checkpoint or another model"
        )


def _is_static(argument: object) -> bool:
    """Whether an argument is a configuration and not arrays."""
    import jax

    return dataclasses.is_dataclass(argument) and jax.tree_util.all_leaves([argument])

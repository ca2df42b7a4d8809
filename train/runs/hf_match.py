"""Which folder of Hugging Face holds the model of a run."""

from typing import NamedTuple

import jax

import tfm
from tfm.config.model import Config
from tfm.hf.family import Family
from tfm.hf.match import match_family
from tfm.low_rank import merge_low_rank
from tfm.params import PyTree
from train.runs.run_folder import RunFolder, open_folder


class HfMatch(NamedTuple):
    """A family and an architecture, the model as it is written there, and the fields of config.json."""

    family: Family
    architecture: str
    model: Config
    params: PyTree
    fields: dict[str, object]


def match(folder, params: PyTree) -> HfMatch:
    """The folder that holds the `final_model` of a run, its low-rank updates in its kernels.

    Raises ValueError where no such folder can.
    """
    fields = folder.hf_fields()
    named = {name: fields[name] for name in ("model_type", "architectures") if name in fields}
    family, architecture, model, params = match_family(folder.config.model, merge_low_rank(params), named)
    return HfMatch(
        family, architecture, model, params, fields | {"model_type": family.name, "architectures": [architecture]}
    )


def is_held(folder: str, specs: PyTree) -> bool:
    """Whether train.export can write the run in a folder, whose parameters these specs declare. Nothing is read."""
    run_folder = open_folder(folder)
    assert isinstance(run_folder, RunFolder)

    def matched(params: PyTree) -> PyTree:
        return match(run_folder, run_folder.task.final_model(run_folder.config, params)).params

    try:
        jax.eval_shape(matched, tfm.abstract(specs))
    except ValueError:
        return False
    return True

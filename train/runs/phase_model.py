"""The model of a run in phases, as its newest checkpoint has it: a phase may change windows and rotary bases."""

from collections.abc import Mapping

from tfm.options.dotted import flatten
from train.files.buckets import Folder
from train.runs.paths import checkpoint_steps
from train.settings import flags
from train.tasks import phases
from train.tasks.table import AnyRun


def values_of_phase(values: Mapping[str, object], checkpoints: Folder) -> dict[str, object]:
    """The dotted values of a run with the model of the phase in which the newest of its checkpoints was made; without
    any, that of the first phase."""
    if not values.get("phases"):
        return dict(values)
    step = max(checkpoint_steps(checkpoints), default=0)
    model = phases.step_range_of(flags.build(AnyRun, values), max(0, step - 1)).run.model
    rest = {name: value for name, value in values.items() if name.partition(".")[0] != "model"}
    return rest | flatten(model, "model.")

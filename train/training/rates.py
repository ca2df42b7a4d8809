"""The learning rate of a run by step: one schedule, or one for each phase."""

import optax

from train.settings.schema import Run
from train.tasks import phases
from train.training.optimizer import schedule


def rates(run: Run) -> optax.Schedule:
    """Step -> learning rate. Where a phase says something of the rate, each phase has a schedule over its steps."""
    if not phases.has_own_rates(run):
        return schedule(run.optim, run.steps)
    by_phase = {part.phase: part for part in phases.step_ranges(run)}.values()
    parts = [schedule(part.run.optim, part.ends - part.begins) for part in by_phase]
    return optax.join_schedules(parts, [part.begins for part in by_phase][1:])

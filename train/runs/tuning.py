"""What of a run's model is trained: the parameters of its task as --tune marks them."""

import dataclasses

import jax

from tfm.low_rank import LowRank, low_rank_specs
from tfm.models.encoder import Encoder
from tfm.params import PyTree
from train import UserError
from train.runs import maximal_update
from train.settings.schema import Run
from train.settings.tuning import Lora
from train.tasks.record import Task


def specs_of(task: Task, run: Run) -> PyTree:
    """The spec tree of the model of a run of a task, with its low-rank updates; `trained` is as --tune says.

    Raises UserError for kernels that the model lacks, and where nothing is left to train.
    """
    specs = maximal_update.specs_of(task, run)
    if isinstance(run.tune, Lora):
        targets = None if run.tune.targets == "all" else run.tune.targets.split(",")
        try:
            specs = low_rank_specs(specs, targets, run.tune.rank, run.tune.scale, run.tune.dropout)
        except ValueError as error:
            raise UserError(f"--tune.targets: {error}") from error
    parts = {field.name: getattr(specs, field.name) for field in dataclasses.fields(specs)}
    marked = {name: _mark(run.tune.trains, part) if isinstance(part, Encoder) else part for name, part in parts.items()}
    specs = dataclasses.replace(specs, **marked)
    if run.freeze_embeddings:
        specs = jax.tree_util.tree_map_with_path(_without_table, specs)
    if not any(spec.trained for spec in jax.tree.leaves(specs)):
        raise UserError(f"--tune={run.tune.name} leaves nothing to train: this model has no head of its own")
    return specs


def _without_table(path, spec):
    """The spec of a parameter, frozen if it is a table of tokens."""
    is_table = jax.tree_util.keystr(path, simple=True, separator=".").endswith("embed.tokens")
    return dataclasses.replace(spec, trained=False) if is_table else spec


def _mark(trains: tuple[str, ...], encoder: PyTree) -> PyTree:
    """The specs of an encoder or a decoder, frozen but for what is named; low-rank updates stay as they are."""

    def mark(path, node):
        if isinstance(node, LowRank):
            return node
        words = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
        groups = {"embeddings" if words[0] == "embed" else "layers", "biases" if words[-1] == "bias" else ""}
        changes = not groups.isdisjoint(trains)
        return dataclasses.replace(node, trained=node.trained and changes, running=node.running and changes)

    return jax.tree_util.tree_map_with_path(mark, encoder, is_leaf=lambda node: isinstance(node, LowRank))

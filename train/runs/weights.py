"""The weights that train.generate, train.predict and train.evaluate compute with."""

from typing import TYPE_CHECKING

from train import UserError
from train.settings.predict import Weights

if TYPE_CHECKING:
    from tfm.params import PyTree
    from train.runs.hf_folder import HfFolder
    from train.runs.run_folder import RunFolder
    from train.screens.console import Log


def as_weights(weights: Weights, folder: "RunFolder | HfFolder", params: "PyTree", log: "Log") -> "PyTree":
    """The parameters of a folder as `--weights` says. Raises UserError for a model without a head of its task."""
    if weights == "trained":
        return params
    import jax

    import tfm
    from tfm.quantization import weight_bytes

    params = tfm.merge_low_rank(params)
    specs = folder.task.specs(folder.config)
    structure: PyTree = jax.tree.structure(specs)
    if structure != jax.tree.structure(params):
        raise UserError(
            f"--weights=int8 needs all parameters of --task={folder.config.task.name}, and {folder.path} has others; "
            "fine-tune it first with --init"
        )
    quantized = jax.jit(lambda params: tfm.quantize_weights(specs, params))(params)
    before, after = weight_bytes(params), weight_bytes(quantized)
    log.info(f"weights in eight bits: {after / 1e6:,.1f} MB instead of {before / 1e6:,.1f}")
    return quantized

"""The weights that train.generate, train.predict and train.evaluate compute with."""

from typing import Any

from train import UserError
from train.settings.predict import Weights


def as_weights(weights: Weights, folder: Any, params: Any, log) -> Any:
    """The parameters of a folder as `--weights` says. Raises UserError for a model without a head of its task."""
    if weights == "trained":
        return params
    import jax

    import tfm
    from tfm.quantization import weight_bytes

    params = tfm.merge_low_rank(params)
    specs = folder.task.specs(folder.config)
    structure: Any = jax.tree.structure(specs)
    if structure != jax.tree.structure(params):
        raise UserError(
            f"--weights=int8 needs all parameters of --task={folder.config.task.name}, and {folder.path} has others; "
            "fine-tune it first with --init"
        )
    quantized = jax.jit(lambda params: tfm.quantize_weights(specs, params))(params)
    before, after = weight_bytes(params), weight_bytes(quantized)
    log.info(f"weights in eight bits: {after / 1e6:,.1f} MB instead of {before / 1e6:,.1f}")
    return quantized

"""Differences between two models that should be equal: of every layer's states and of the output, on random inputs.

Each difference is finite and small, or the certificate fails: a UserError names the first place where it is not.
"""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

import tfm
from tfm.models.classifier import pooled, pooled_states
from tfm.params import PyTree
from tfm.sharding import first_entries
from train import UserError


def layer_differences(
    config: tfm.Config, params: PyTree, read_config: tfm.Config, read_params: PyTree
) -> dict[str, float]:
    """The largest difference between the states of two models, after the embeddings and after each layer."""
    pairs = zip(_states(config, params), _states(read_config, read_params), strict=True)
    return {name: largest_difference(name, x, read_x) for (name, x), (_, read_x) in pairs}


def output_difference(
    config: tfm.Config, params: PyTree, read_config: tfm.Config, read_params: PyTree
) -> dict[str, float]:
    """The largest difference between the outputs of two models."""
    x, read_x = (predicted(*model) for model in ((config, params), (read_config, read_params)))
    return {"output": largest_difference("output", x, read_x)}


def largest_difference(name: str, x: jax.Array, read_x: jax.Array) -> float:
    """The largest difference between arrays of `name`. Raises UserError if they are not finite, or differ.

    Equal models may differ by the square root of the precision of their dtype, of the largest value.
    """
    values, read_values = (np.asarray(array, np.float64) for array in (x, read_x))
    for states, model in ((values, "the model"), (read_values, "the model as it was read back")):
        if not np.isfinite(states).all():
            raise UserError(
                f"{model} computes values that are not finite, first in {name}: nothing is saved; "
                "check its weights and its configuration"
            )
    difference = float(np.abs(values - read_values).max())
    tolerance = float(jnp.finfo(x.dtype).eps) ** 0.5 * max(1.0, float(np.abs(values).max()))
    if difference > tolerance:
        raise UserError(
            f"the model as it was read back differs in {name} by {difference:.1e}, more than {tolerance:.1e}: "
            "nothing is saved; that is a mistake in the program: please report it"
        )
    return difference


def _inputs(config: tfm.Config, seed: int) -> jax.Array:
    """Two rows of random tokens, or two random pictures or sounds."""
    rng = np.random.default_rng(seed)
    if config.input.array_shape is not None:
        return jnp.asarray(rng.normal(size=(2, *config.input.array_shape)), jnp.float32)
    return jnp.asarray(rng.integers(0, config.vocab, (2, min(config.length, 24))))


def _states(config: tfm.Config, params: PyTree) -> Iterator[tuple[str, jax.Array]]:
    """The states after the embeddings and after each layer of each stack, by name; a decoder attends to the
    encoder's."""
    if isinstance(params, tfm.Towers):
        yield from _tower_states(config, params)
        return
    memory = None
    for name in ("encoder", "decoder"):
        model = getattr(params, name, None)
        if model is None:
            continue
        is_seq2seq = isinstance(params, tfm.Seq2Seq)
        stack_config = tfm.encoder_config(config) if name == "encoder" and is_seq2seq else config
        if is_seq2seq and name == "decoder":
            model = tfm.decoder_of(params)
        states = _stack_states(model, stack_config, name == "decoder", memory)
        for layer, x in enumerate(states):
            yield f"{name} layer {layer - 1}" if layer else f"{name} embeddings", x
        if is_seq2seq and name == "encoder":
            memory = tfm.cross_keys_values(params.decoder, config, states[-1])


def _tower_states(config: tfm.Config, params: tfm.Towers) -> Iterator[tuple[str, jax.Array]]:
    """The states of the towers of texts and of images after the embeddings and after each layer, by name."""
    for name, tower, tower_config in (("text", params.text, config), ("image", params.image, config.in_images())):
        for layer, x in enumerate(_stack_states(tower, tower_config, tower_config.head.causal, None)):
            yield f"{name} layer {layer - 1}" if layer else f"{name} embeddings", x


def _stack_states(model: tfm.Encoder, config: tfm.Config, causal: bool, memory: tfm.Memory | None) -> list[jax.Array]:
    """The states of one stack: what each layer reads, and the last states."""
    inputs = _inputs(config, seed=not causal)

    @jax.jit
    def run(model, memory):
        x = tfm.embed(model.embed, config, inputs)
        context = tfm.AttentionContext(tfm.default_positions(x), causal=causal, record_inputs=True)
        hidden, outputs = tfm.stack(model, config, x, context, memory=memory)
        return [*(output.inputs for output in tfm.by_layer(config, outputs)), hidden]

    return run(model, memory)


def predicted(config: tfm.Config, params: PyTree, inputs: jax.Array | None = None) -> jax.Array:
    """What the whole model predicts of `inputs`, by default random ones, without tokens that it never does.

    The towers of texts and images read random ones alone.
    """
    output = _output(config, params, _inputs(config, seed=1) if inputs is None else inputs)
    return first_entries(output, config.outputs) if config.sizes.get("V") == output.shape[-1] else output


def _output(config: tfm.Config, params: PyTree, inputs: jax.Array) -> jax.Array:
    """What the whole model predicts."""
    if isinstance(params, tfm.Towers):
        return jax.jit(_tower_vectors, static_argnums=0)(config, params)
    if isinstance(params, tfm.MaskedLM):
        hidden = jax.jit(tfm.encoder, static_argnums=1)(params.encoder, config, inputs)
        return tfm.mlm_logits(params.head, config, hidden, params.encoder.embed.tokens)
    if isinstance(params, tfm.Seq2Seq):
        source = inputs if config.encoder.input is None else _inputs(tfm.encoder_config(config), seed=1)
        return jax.jit(tfm.seq2seq, static_argnums=1)(params, config, source, inputs)
    if isinstance(params, tfm.Classifier) and params.output is None:  # an encoder without a head
        hidden = jax.jit(tfm.encoder, static_argnums=1)(params.encoder, config, inputs)
        if params.pooler is not None:  # the folder has it, however the run pools
            return pooled(params.pooler, params.norm, config, hidden[:, 0])
        return hidden if params.norm is None else pooled_states(params, config, hidden)
    if isinstance(params, tfm.ObjectDetector):
        detected = jax.jit(tfm.detect, static_argnums=1)(params, config, inputs)
        return jnp.concatenate([detected.logits[-1], detected.boxes[-1]], axis=-1)
    predict: Callable[..., jax.Array] = tfm.classify
    if isinstance(params, tfm.CausalLM):
        predict = tfm.causal_lm
    elif isinstance(params, tfm.StageTagger):
        predict = tfm.pixel_logits
    elif isinstance(params, tfm.Tagger):
        predict = tfm.classify_tokens
    return jax.jit(predict, static_argnums=1)(params, config, inputs)


def _tower_vectors(config: tfm.Config, params: tfm.Towers) -> jax.Array:
    """The vectors of random texts and images, and the scale of their cosines."""
    texts = tfm.text_vectors(params, config, _text_rows(config))
    images = tfm.image_vectors(params, config, _inputs(config.in_images(), seed=2))
    return jnp.concatenate([texts, images, jnp.broadcast_to(params.log_scale, (1, texts.shape[1]))])


def _text_rows(config: tfm.Config) -> jax.Array:
    """Random tokens, as many as the model reads."""
    rng = np.random.default_rng(1)
    return jnp.asarray(rng.integers(0, config.vocab, (2, config.length)))

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import errors, nnx, struct
from layers.blocks import context_of, run_block
from random_params import random_params

import tfm
from tfm.nnx import dotted

CONFIG = tfm.Config(layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, pad_vocab_to=64, length=12, dropout=0.1)
TOKENS = jnp.array([[5, 59, 0, 7, 7, 31], [1, 2, 3, 4, 5, 6]])
WHERE, TARGETS = jnp.array([[0, 2], [5, 1]]), jnp.array([[9, 8], [7, 59]])
HIDDEN = np.random.default_rng(1).normal(size=(2, 6, 16)).astype(np.float32)
SPECS = tfm.masked_lm_specs(CONFIG)
KERNEL = "encoder.layers.period.0.mixer.query.kernel"


@struct.dataclass
class Own:
    """What a user may write: a parameter he has, and one he has not."""

    weight: jax.Array
    bias: jax.Array | None


def own(model, factor, x, key=None):
    return factor * x * model.weight + (0 if key is None else jax.random.normal(key, x.shape))


def block(*args, **options):
    return run_block(*args, **options)[0]


class Case(NamedTuple):
    function: Callable
    config: object
    specs: object
    args: tuple
    options: dict


CASES = {
    "encoder": Case(tfm.encoder, CONFIG, SPECS.encoder, (TOKENS, tfm.causal()), {}),
    "masked_lm": Case(tfm.masked_lm, CONFIG, SPECS, (TOKENS,), {"where": WHERE}),
    "causal_lm": Case(tfm.causal_lm, CONFIG, tfm.causal_lm_specs(CONFIG), (TOKENS,), {}),
    "transformer_block": Case(
        block, CONFIG, tfm.block_specs(CONFIG.kinds[0], CONFIG), (HIDDEN,), {"context": context_of(HIDDEN, causal=True)}
    ),
    "own": Case(own, 3.0, Own(tfm.weight_spec(CONFIG, "D"), None), (np.arange(16, dtype=np.float32),), {}),
}


def same_arrays(actual, expected):
    """The same tree of the very same arrays."""
    return jax.tree.structure(actual) == jax.tree.structure(expected) and all(
        a is b for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    )


@cache
def initial(seed):
    return random_params(SPECS, seed)


def masked_lm(seed=0):
    return initial(seed), tfm.Module(tfm.masked_lm, CONFIG, initial(seed))


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_call_is_the_function(fill, case):
    """And a key goes through."""
    params = fill(case.specs)
    module = tfm.Module(case.function, case.config, params)
    plain = case.function(params, case.config, *case.args, **case.options)
    np.testing.assert_array_equal(module(*case.args, **case.options), plain)
    key = jax.random.key(3)
    dropped = case.function(params, case.config, *case.args, **case.options, key=key)
    assert not np.array_equal(dropped, plain)
    np.testing.assert_array_equal(module(*case.args, **case.options, key=key), dropped)


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("jit", [pytest.param(nnx.jit, id="nnx"), pytest.param(jax.jit, id="jax")])
def test_a_call_under_jit(jit):
    """jax's own takes a module for the tree that it is."""
    params, module = masked_lm()
    expected = tfm.masked_lm(params, CONFIG, TOKENS, WHERE)
    np.testing.assert_allclose(jit(lambda module: module(TOKENS, where=WHERE))(module), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_arrays_go_in_and_out_uncopied(fill, case):
    params, params2 = fill(case.specs, 0), fill(case.specs, 1)
    assert None in jax.tree.leaves(params, is_leaf=lambda leaf: leaf is None)
    module = tfm.Module(case.function, case.config, params)
    assert same_arrays(module.params, params)
    variables = jax.tree.leaves(module.variables, is_leaf=lambda leaf: isinstance(leaf, nnx.Param))
    module.params = params2
    assert same_arrays(module.params, params2)
    values = [variable.get_value() for variable in variables]
    assert values == jax.tree.leaves(params2)  # the variables that an optimizer may hold are kept


def test_params_may_change_dtype():
    params, module = masked_lm()
    module.params = jax.tree.map(lambda array: array.astype(jnp.bfloat16), params)
    assert {array.dtype for array in jax.tree.leaves(module.params)} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.slow
def test_split_state_and_merge():
    params, module = masked_lm()
    graph, state = nnx.split(module)
    names = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(module))}
    assert names == {f"variables.{dotted(path)}" for path, _ in jax.tree_util.tree_leaves_with_path(params)}
    assert f"variables.{KERNEL}" in names
    merged = nnx.merge(graph, state)
    assert same_arrays(merged.params, params)
    np.testing.assert_array_equal(merged(TOKENS, where=WHERE), module(TOKENS, where=WHERE))
    params2, module2 = masked_lm(1)
    nnx.update(module, nnx.state(module2))
    assert same_arrays(module.params, params2)


def functional_loss(params, key=None):
    return tfm.cross_entropy(tfm.masked_lm(params, CONFIG, TOKENS, WHERE, key=key), TARGETS).mean()


def module_loss(module, key=None):
    return tfm.cross_entropy(module(TOKENS, where=WHERE, key=key), TARGETS).mean()


@pytest.mark.slow
def test_gradients_have_the_structure_of_the_state():
    params, module = masked_lm()
    gradients = nnx.jit(nnx.grad(module_loss))(module)
    assert jax.tree.structure(gradients) == jax.tree.structure(nnx.state(module, nnx.Param))
    expected = jax.jit(jax.grad(functional_loss))(params)
    actual = nnx.merge(nnx.graphdef(module), gradients).params
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for leaf, reference in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, reference, rtol=1e-4, atol=1e-6)
        assert np.abs(reference).max() > 0 or leaf.ndim < 4  # a key's bias alone cannot matter


def functional_training(params, tx, steps):
    """Loss before each step, and the parameters after the last."""
    state, losses = tx.init(params), []

    @jax.jit
    def step(params, state, key):
        value, gradients = jax.value_and_grad(functional_loss)(params, key)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    for n in range(steps):
        params, state, value = step(params, state, jax.random.key(n))
        losses.append(value)
    return losses, params


@nnx.jit
def nnx_step(module, optimizer, key):
    value, gradients = nnx.value_and_grad(module_loss)(module, key)
    optimizer.update(module, gradients)
    return value


@pytest.mark.slow
def test_training_is_the_functional_training():
    """Dropout included, after which the module holds the functional parameters."""
    params, module = masked_lm()
    tx = optax.adamw(3e-3)
    optimizer = nnx.Optimizer(module, tx, wrt=nnx.Param)
    losses = [nnx_step(module, optimizer, jax.random.key(n)) for n in range(12)]
    expected, trained = functional_training(params, tx, 12)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses[-1] < 0.8 * losses[0]
    assert jax.tree.structure(module.params) == jax.tree.structure(trained)
    for leaf, reference in zip(jax.tree.leaves(module.params), jax.tree.leaves(trained), strict=True):
        np.testing.assert_allclose(leaf, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_training_on_a_mesh_keeps_the_shardings():
    mesh = tfm.make_mesh(1, 2, 2, devices=jax.devices()[:4])
    params, alone = masked_lm()
    optimizer = nnx.Optimizer(alone, optax.adamw(3e-3), wrt=nnx.Param)
    expected = [nnx_step(alone, optimizer, None) for _ in range(2)]
    with jax.set_mesh(mesh):
        params = jax.device_put(params, tfm.shardings(SPECS, mesh))
        module = tfm.Module(tfm.masked_lm, CONFIG, params)
        assert same_arrays(module.params, params)
        optimizer = nnx.Optimizer(module, optax.adamw(3e-3), wrt=nnx.Param)
        losses = [nnx_step(module, optimizer, None) for _ in range(2)]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    after = jax.tree.map(lambda array: array.sharding, module.params)
    assert after == tfm.shardings(SPECS, mesh)


@pytest.mark.slow
def test_within_a_module_of_the_user():
    """As a body under a head of nnx's own; both are trained."""

    class Classifier(nnx.Module):
        def __init__(self, rngs):
            self.body = tfm.Module(tfm.encoder, CONFIG, initial(0).encoder)
            self.head = nnx.Linear(CONFIG.width, 3, rngs=rngs)

        def __call__(self, tokens, rngs):
            return self.head(self.body(tokens, key=rngs.dropout())[:, 0])

    model, rngs = Classifier(nnx.Rngs(0)), nnx.Rngs(1)
    gradients = nnx.jit(nnx.grad(lambda model, rngs: model(TOKENS, rngs)[:, 0].sum()))(model, rngs)
    assert {path[0] for path, leaf in nnx.to_flat_state(gradients) if np.any(leaf[...])} == {"body", "head"}
    call = nnx.jit(lambda model, rngs: model(TOKENS, rngs))
    assert not np.array_equal(call(model, rngs), call(model, rngs))  # every draw of rngs.dropout() is another key
    assert "    layers.period.0.mixer.query.kernel: float32[2, 16, 2, 2, 4],\n" in str(model)


def test_display_has_one_line_a_parameter(capsys):
    params, module = masked_lm()
    nnx.display(module)
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("Module( # masked_lm", ")")
    assert f"  {KERNEL}: float32[2, 16, 2, 2, 4]," in lines
    assert len(lines) == len(jax.tree.leaves(params))


def test_abstract_parameters_can_be_wrapped():
    """For tools that ask for shapes before there are values; and what is no array any more is still printed."""
    module = tfm.Module(tfm.masked_lm, CONFIG, tfm.abstract(SPECS))
    assert nnx.eval_shape(lambda: masked_lm()[1]).params == module.params == tfm.abstract(SPECS)
    assert str(module) == str(masked_lm()[1])
    assert f"  {KERNEL}: True,\n" in str(jax.tree.map(lambda array: True, module))


def test_an_assignment_within_jit_does_not_leak():
    params, module = masked_lm()

    @jax.jit
    def assign(params):
        module.params = params

    with pytest.raises(errors.TraceContextError):
        assign(params)
    assert same_arrays(module.params, params)


REMEDY = (
    r"the order is tfm.Module\(function, config, params\), with params from tfm.init\(specs, key\) or from another "
    "tfm.Module"
)
WRONG = {
    "params.encoder.embed.tokens is a Spec, not an array": lambda params: tfm.Module(tfm.masked_lm, CONFIG, SPECS),
    "params is a Config, not an array": lambda params: tfm.Module(tfm.masked_lm, params, CONFIG),
    "params is a NoneType, not an array": lambda params: tfm.Module(tfm.masked_lm, CONFIG, None),
    "params.head.bias is a float, not an array": lambda params: tfm.Module(
        tfm.masked_lm, CONFIG, params.replace(head=params.head.replace(bias=0.0))
    ),
    "params.weight is a Param, not an array": lambda params: tfm.Module(
        own, 3.0, Own(nnx.Param(params.head.bias), None)
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_not_a_tree_of_arrays(message):
    with pytest.raises(TypeError, match=f"^{message}; {REMEDY}"):
        WRONG[message](masked_lm()[0])


def test_what_is_not_a_function():
    with pytest.raises(TypeError, match=r"function is a Config, not a function; pass one such as tfm.masked_lm"):
        tfm.Module(CONFIG, tfm.masked_lm, masked_lm()[0])


def test_assigning_another_tree():
    params, module = masked_lm()
    with pytest.raises(
        ValueError,
        match=r"tree \(Encoder\) than the module's \(MaskedLM\): it lacks 26 arrays \['encoder.embed.* make a new",
    ):
        module.params = params.encoder
    with pytest.raises(
        ValueError, match=r"it lacks 1 arrays \['head.bias'\] and adds 1 \['head.table'\]; make a new tfm.Module for it"
    ):
        module.params = params.replace(head=params.head.replace(bias=None, table=params.encoder.embed.tokens))
    with pytest.raises(
        ValueError, match=r"params.head.bias has shape \(3,\), the module's \(64,\); make a new tfm.Module for it"
    ):
        module.params = params.replace(head=params.head.replace(bias=jnp.zeros(3)))
    with pytest.raises(TypeError, match="params is a Config, not an array"):
        module.params = CONFIG
    assert same_arrays(module.params, params)

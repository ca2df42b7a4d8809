"""Which parameters are matrices, and Muon and NorMuon against singular value decompositions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training.test_optimizers import DECAY, RATE, matrices, options, root_mean_square, updated
from variants import VARIANTS

import tfm
from tfm.low_rank import LowRank, low_rank_specs
from train.training import optimizer as optim
from train.training.matrices import JORDAN, POLAR_EXPRESS, matrix_axes, newton_schulz


def test_muon_against_a_singular_value_decomposition(fill):
    """The polynomial acts on singular values alone."""
    adamw = updated("adamw", fill)
    muon = updated("muon", fill)
    several = 0
    for (spec, start, first, second, grad_1, grad_2), (*_, moved, last, _, _) in zip(muon, adamw, strict=True):
        if not spec.decay or set(spec.axes) & set("VPY"):
            np.testing.assert_allclose((first, second), (moved, last), rtol=1e-6, err_msg=spec.axes)
            continue
        several += 1
        gradients = grad_1, grad_2 + 0.9 * (0.9 * grad_1 + grad_2)
        for at, then, gradient in zip((start, first), (first, second), gradients, strict=True):
            for before, after, direction in zip(*(matrices(spec, leaf) for leaf in (at, then, gradient)), strict=True):
                left, values, right = np.linalg.svd(direction, full_matrices=False)
                values = values / np.sqrt(np.square(values).sum())
                for _ in range(5):
                    values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
                wanted = 0.2 * np.sqrt(max(direction.shape)) * (left * values) @ right
                np.testing.assert_allclose(after, before - RATE * (wanted + DECAY * before), atol=2e-4)
    assert several == 7, "query, key, value, output, up, down, and the head's"


def kinds_of_parameters():
    """The spec of each kind of parameter that a row of tests/variants.py has, low-rank updates of its kernels too; and
    these updates."""
    specs, updates = {}, {}
    for name, row in VARIANTS.items():
        tree = low_rank_specs(tfm.encoder_specs(row.config), None, 3, 0.5)
        for node in jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, LowRank)):
            if isinstance(node, LowRank):
                updates[node.base.axes, node.base.inputs] = node
            for spec in jax.tree.leaves(node):
                specs.setdefault((spec.axes, spec.inputs, spec.decay), (name, spec))
    return specs, updates


def test_matrices_are_those_of_the_specs():
    """For every kind of parameter of every variant, `Spec.inputs` says which axes a product sums over."""
    specs, _ = kinds_of_parameters()
    assert len(specs) > 60
    for name, spec in specs.values():
        first = int(spec.axes.startswith("L"))
        shape, cut = spec.shape, first + spec.inputs
        is_matrix = spec.decay and spec.inputs > 0 and cut < len(shape)
        expected = (shape[first:cut], shape[cut:]) if is_matrix else ((), ())
        sizes = tuple(tuple(shape[axis] for axis in axes) for axes in matrix_axes(spec))
        assert sizes == expected, (name, spec.axes)
        assert all(axis < 0 for axes in matrix_axes(spec) for axis in axes), "with or without layers before"


@pytest.mark.slow
def test_matrices_of_low_rank_updates_multiply_to_that_of_the_kernel(fill):
    _, updates = kinds_of_parameters()
    assert len(updates) > 15
    for (axes, _), update in updates.items():
        down, up = fill((update.down, update.up))
        kernel = LowRank(np.zeros(update.base.shape, np.float32), down, up, scale=0.5).kernel
        stacks = [
            np.stack(by_spec(spec, x)) for spec, x in ((update.down, down), (update.up, up), (update.base, kernel))
        ]
        np.testing.assert_allclose(0.5 * stacks[0] @ stacks[1], stacks[2], rtol=1e-4, atol=1e-5, err_msg=axes)


def by_spec(spec, x):
    """The matrices of the layers of a parameter, by the axes that optimizers take."""
    inputs, _ = matrix_axes(spec)
    layers = x if spec.axes[0] == "L" else x[None]
    return [np.reshape(layer, (np.prod([x.shape[axis] for axis in inputs]), -1)) for layer in layers]


@pytest.mark.slow
def test_muon_of_the_low_rank_update_of_an_output(fill):
    """[K,G,H,r] is a matrix [KGH,r], and what comes out of it is nearly orthogonal."""
    model = tfm.Config(layers=2, heads=4, kv_heads=4, width=64, ffn=24, vocab=60, length=16, dropout=0.0)
    down = low_rank_specs(tfm.encoder_specs(model), {"output"}, 8, 1.0).layers.period[0].mixer.output.kernel.down
    assert down.axes == "LKGHr"
    optimizer = optim.optimizer(options("muon", rate=1.0, decay=0), 10, {"down": down})
    params, grads = fill({"down": down}), fill({"down": down}, 1)
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    for layer in np.asarray(updates["down"]).reshape(2, 64, 8):
        values = np.linalg.svd(layer, compute_uv=False) / (0.2 * 8)
        assert values.min() > 0.65
        assert values.max() < 1.25


@pytest.mark.parametrize(
    ("steps", "low", "high"), [(JORDAN, 0.65, 1.25), (POLAR_EXPRESS, 0.86, 1.13)], ids=["jordan", "pe"]
)
def test_what_muon_makes_is_nearly_orthogonal(steps, low, high):
    x = np.random.default_rng(0).normal(size=(2, 48, 16)).astype(np.float32)
    for matrix in (x, x.swapaxes(1, 2)):
        values = np.linalg.svd(np.asarray(newton_schulz(jnp.asarray(matrix), steps)), compute_uv=False)
        assert values.min() > low
        assert values.max() < high


def by_neurons(directions, decay):
    """The updates of NorMuon [I,O] in some steps, each a direction with equal singular values (Li et al. 2025)."""
    moment = 0.0
    for direction in directions:
        left, _, right = np.linalg.svd(direction, full_matrices=False)
        nearest = left @ right
        moment = decay * moment + (1 - decay) * np.square(nearest).mean(0)
        update = nearest / np.sqrt(moment)
        yield 0.2 * update / root_mean_square(update)


def test_normuon_against_a_singular_value_decomposition(fill):
    """Five polynomials come within some percent of the nearest matrix with equal singular values."""
    several = 0
    for spec, start, first, second, grad_1, grad_2 in updated("normuon", fill, beta2=0.3):
        if not spec.decay or set(spec.axes) & set("VPYC"):
            continue
        several += 1
        momenta = 1.9 * grad_1, grad_2 + 0.9 * (0.9 * grad_1 + grad_2)
        layers = zip(*(matrices(spec, leaf) for leaf in (start, first, second, *momenta)), strict=True)
        for before, moved, last, *directions in layers:
            for at, then, by in zip((before, moved), (moved, last), by_neurons(directions, 0.3), strict=True):
                step_of = (at - then) / RATE - DECAY * at
                assert np.vdot(step_of, by) / np.linalg.norm(step_of) / np.linalg.norm(by) > 0.97, spec.axes
                np.testing.assert_allclose(root_mean_square(step_of), 0.2, rtol=1e-3)
    assert several > 3

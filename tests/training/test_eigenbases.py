"""SOAP against its algorithm in numpy, matrix by matrix."""

import jax
import numpy as np
import optax
import pytest
from training.test_optimizers import RATE, SPECS, matrices, options, updated

import tfm
from train.training import eigenbases
from train.training import optimizer as optim
from train.training.eigenbases import EVERY


def by_algorithm(gradients, longest=10_000, beta1=0.9, beta2=0.5, eps=1e-6):
    """The updates of SOAP [I,O] in some steps (Vyas et al. 2025, algorithm 3, and the authors' order of its lines)."""
    sides = [size <= longest for size in gradients[0].shape]
    outer = lambda matrix: [matrix @ matrix.T, matrix.T @ matrix]
    turn = lambda matrix, bases: bases[0].T @ matrix @ bases[1]
    factors = [(1 - beta2) * factor for factor in outer(gradients[0])]
    bases = [
        np.linalg.eigh(factor)[1][:, ::-1] if side else np.eye(len(factor))
        for side, factor in zip(sides, factors, strict=True)
    ]
    yield np.zeros_like(gradients[0])
    mean, square = np.zeros_like(gradients[0]), np.zeros_like(gradients[0])
    for count, gradient in enumerate(gradients[1:], 1):
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * turn(gradient, bases) ** 2
        scaled = turn(mean, bases) / (1 - beta1**count) / (np.sqrt(square / (1 - beta2**count)) + eps)
        yield bases[0] @ scaled @ bases[1].T
        factors = [beta2 * factor + (1 - beta2) * new for factor, new in zip(factors, outer(gradient), strict=True)]
        if count % EVERY:
            continue
        for axis in (0, 1):
            if sides[axis]:
                by_size = np.argsort(-np.diag(bases[axis].T @ factors[axis] @ bases[axis]))
                square = square.take(by_size, axis)
                bases[axis] = np.linalg.qr(factors[axis] @ bases[axis][:, by_size])[0]


def test_soap_against_numpy(fill, monkeypatch):
    """Until the bases were refined once. The longer sides of up and down keep their own: a factor of one gradient has
    as many eigenvectors as the shorter side, and any others would do. So key and value are not compared."""
    monkeypatch.setattr(eigenbases, "LONGEST", 16)
    times, compared = EVERY + 3, 0
    for spec, *leaves in updated("soap", fill, times, decay=0.0, beta2=0.5):
        if not spec.decay or set(spec.axes) & set("VPYC") or spec.axes == "LDKH":
            continue
        compared += 1
        for layer in zip(*(matrices(spec, leaf) for leaf in leaves), strict=True):
            params, gradients = layer[: times + 1], layer[times + 1 :]
            updates = np.diff(params, axis=0) / -RATE
            np.testing.assert_allclose(updates, [*by_algorithm(gradients, 16)], atol=1e-3, err_msg=spec.axes)
    assert compared == 5, "query, output, up, down, and the head's"


@pytest.mark.slow
def test_eight_devices_do_what_one_does(fill, monkeypatch):
    """Layers are dealt to devices, and the state stays where it is. Eigenvectors of 0 are any, as above."""
    monkeypatch.setattr(eigenbases, "LONGEST", 16)
    optimizer = optim.optimizer(options("soap"), 20, SPECS)
    results = []
    for mesh in (tfm.make_mesh(devices=jax.devices()[:1]), tfm.make_mesh(2, 2, 2)):
        with jax.set_mesh(mesh):
            shardings = jax.tree.map(lambda leaf: leaf.sharding, tfm.abstract(SPECS, mesh))
            put = lambda tree, shardings=shardings: jax.tree.map(jax.device_put, tree, shardings)
            params = put(fill(SPECS))
            state = optimizer.init(params)
            update = jax.jit(optimizer.update)
            places = jax.tree.map(lambda leaf: jax.typeof(leaf).sharding.spec, state)
            for seed in range(EVERY + 3):
                updates, state = update(put(fill(SPECS, seed + 1)), state, params)
                params = optax.apply_updates(params, updates)
            assert jax.tree.map(lambda leaf: jax.typeof(leaf).sharding.spec, state) == places
            results.append(jax.device_get(params))
    for spec, param, expected in zip(jax.tree.leaves(SPECS), *map(jax.tree.leaves, results), strict=True):
        if spec.axes != "LDKH":
            np.testing.assert_allclose(expected, param, atol=1e-4, err_msg=spec.axes)


def test_bases_are_not_rounded():
    with pytest.raises(ValueError, match="moment_dtype=bfloat16 would round the bases that name=soap keeps"):
        options("soap", moment_dtype="bfloat16")

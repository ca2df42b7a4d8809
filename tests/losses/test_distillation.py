"""Losses of a student against loops in float64, and against torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm

RNG = np.random.default_rng(0)
STUDENT, TEACHER = np.float32(RNG.normal(size=(2, 3, 5)) * 3), np.float32(RNG.normal(size=(2, 3, 5)) * 3)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_soft_losses_are_those_of_a_loop(strict, temperature):
    expected = np.zeros((2, 3))
    for b, t in np.ndindex(2, 3):
        powers, teacher_powers = (np.exp(x[b, t].astype(np.float64) / temperature) for x in (STUDENT, TEACHER))
        for p, q in zip(teacher_powers / teacher_powers.sum(), powers / powers.sum(), strict=True):
            expected[b, t] += temperature**2 * p * np.log(p / q)
    losses = tfm.soft_losses(jnp.asarray(STUDENT), jnp.asarray(TEACHER), temperature)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(tfm.soft_losses(TEACHER, TEACHER, temperature), np.zeros((2, 3)), atol=1e-6)


def test_the_gradient_of_hot_logits_is_their_distance():
    """Hinton et al. 2015, eq. 4: at a high temperature it is (z - v) / C for logits whose mean is 0."""
    z, v = (x - x.mean(-1, keepdims=True) for x in (STUDENT, TEACHER))
    gradient = jax.grad(lambda z: tfm.soft_losses(z, v, 1000.0).sum())(z)
    np.testing.assert_allclose(gradient, (z - v) / 5, atol=1e-2)


def test_hard_losses_are_those_of_a_loop(strict):
    expected = np.zeros((2, 3))
    for b, t in np.ndindex(2, 3):
        x = STUDENT[b, t].astype(np.float64)
        expected[b, t] = np.log(np.exp(x).sum()) - x[np.argmax(TEACHER[b, t])]
    np.testing.assert_allclose(tfm.hard_losses(jnp.asarray(STUDENT), jnp.asarray(TEACHER)), expected, rtol=1e-5)


def test_cosine_losses_are_those_of_a_loop(strict):
    norms = np.linalg.norm
    expected = [
        [1 - s @ t / norms(s) / norms(t) for s, t in zip(*rows, strict=True)]
        for rows in zip(STUDENT, TEACHER, strict=True)
    ]
    np.testing.assert_allclose(tfm.cosine_losses(STUDENT, TEACHER), expected, rtol=1e-5, atol=1e-6)


def test_masked_tokens_have_no_part():
    """Tokens that are never predicted have a logit of -1e30 in both."""
    masked = [np.concatenate([x, np.full((2, 3, 2), -1e30, np.float32)], -1) for x in (STUDENT, TEACHER)]
    losses = tfm.soft_losses(*masked, 2.0)
    np.testing.assert_allclose(losses, tfm.soft_losses(STUDENT, TEACHER, 2.0), rtol=1e-5)
    assert np.isfinite(jax.grad(lambda x: tfm.soft_losses(x, masked[1], 2.0).sum())(masked[0])).all()


@pytest.mark.parametrize(
    "mesh", [{"data": 2, "tensor": 2}, pytest.param({"fsdp": 2, "context": 2}, marks=pytest.mark.slow)]
)
def test_losses_on_a_mesh(mesh):
    """The vocabulary may be divided, or the length."""
    mesh = tfm.make_mesh(**mesh, devices=jax.devices()[:4])
    rows = np.tile(STUDENT, (1, 2, 2))[:, :4, :8], np.tile(TEACHER, (1, 2, 2))[:, :4, :8]
    spec = jax.sharding.PartitionSpec(*tfm.partition("BTV", rows[0].shape, mesh))
    with jax.set_mesh(mesh):
        arrays = [jax.device_put(x, jax.sharding.NamedSharding(mesh, spec)) for x in rows]
        losses = jax.jit(all_losses)(*arrays)
    for of_mesh, of_device in zip(losses, jax.jit(all_losses)(*rows), strict=True):
        np.testing.assert_allclose(of_mesh, of_device, rtol=1e-5, atol=1e-6)


def all_losses(*arrays):
    return tfm.soft_losses(*arrays), tfm.hard_losses(*arrays), tfm.cosine_losses(*arrays)


def test_refusals():
    with pytest.raises(ValueError, match=r"must have one shape; they have \(2, 3, 5\) and \(2, 3, 4\)"):
        tfm.hard_losses(STUDENT, TEACHER[..., :4])
    with pytest.raises(ValueError, match="temperature=0 must be more than 0; 2 is usual"):
        tfm.soft_losses(STUDENT, TEACHER, 0)


@pytest.mark.parity
def test_losses_are_those_of_torch():
    torch = pytest.importorskip("torch")
    student, teacher = torch.tensor(STUDENT), torch.tensor(TEACHER)
    functional = torch.nn.functional
    log_probabilities = functional.log_softmax(student / 2, -1), functional.log_softmax(teacher / 2, -1)
    expected = functional.kl_div(*log_probabilities, reduction="none", log_target=True).sum(-1) * 4
    np.testing.assert_allclose(tfm.soft_losses(STUDENT, TEACHER, 2.0), expected.numpy(), rtol=1e-4)
    expected = functional.cross_entropy(student.reshape(6, 5), teacher.reshape(6, 5).argmax(-1), reduction="none")
    np.testing.assert_allclose(tfm.hard_losses(STUDENT, TEACHER).reshape(6), expected.numpy(), rtol=1e-4)
    expected = 1 - functional.cosine_similarity(student, teacher, dim=-1)
    np.testing.assert_allclose(tfm.cosine_losses(STUDENT, TEACHER), expected.numpy(), rtol=1e-4, atol=1e-6)

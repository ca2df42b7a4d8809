"""Losses of scores against loops in float64, and those of sentence-transformers with their gradients."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm


def drawn(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape).astype(np.float32), rng.integers(4, size=shape).astype(np.float32)


def test_cosent_is_a_loop(strict):
    """Pairs with equal grades do not count, nor do absent ones."""
    cosines, grades = drawn(9)
    present = np.arange(9) != 4
    differences = [
        (cosines[j] - cosines[i]) / 0.2
        for i, j in itertools.permutations(range(9), 2)
        if grades[i] > grades[j] and present[i] and present[j]
    ]
    expected = np.log1p(np.exp(np.float64(differences)).sum())
    np.testing.assert_allclose(tfm.cosent_loss(cosines, grades, jnp.asarray(present), 0.2), expected, rtol=1e-5)
    assert float(tfm.cosent_loss(cosines, jnp.ones(9), jnp.asarray(present), 0.2)) == 0


def test_margins_and_divergences_are_loops(strict):
    scores, teacher = drawn(5, 4)
    present = np.random.default_rng(2).random((5, 4)) < 0.7
    present[:, :2] = True
    present[4] = False
    margins = tfm.margin_losses(scores, teacher, jnp.asarray(present))
    divergences = tfm.divergences(scores, teacher, jnp.asarray(present), 0.5)
    for row in range(4):
        wrong = [index for index in range(1, 4) if present[row, index]]
        errors = [(scores[row, 0] - scores[row, index]) - (teacher[row, 0] - teacher[row, index]) for index in wrong]
        np.testing.assert_allclose(margins[row], np.mean(np.square(errors)), rtol=1e-5)
        p, q = (np.exp(x[row, present[row]]) for x in (teacher.astype(np.float64), scores.astype(np.float64) / 0.5))
        p, q = p / p.sum(), q / q.sum()
        np.testing.assert_allclose(divergences[row], 0.25 * (p * np.log(p / q)).sum(), rtol=1e-4, atol=1e-6)
    assert np.isfinite(margins).all()
    assert np.isfinite(jax.grad(lambda x: tfm.divergences(x, teacher, jnp.asarray(present), 0.5).sum())(scores)).all()


@pytest.mark.slow
def test_lambda_losses_of_a_list_of_two(strict):
    """The only pair weighs by the change of nDCG when both change places, and by ten times its bound."""
    scores, grades, present = np.float32([[0.5, 1.5, 9]]), np.float32([[2, 0, 3]]), jnp.asarray([[True, True, False]])
    change = 1 - 1 / np.log2(3)
    expected = -11 * change * np.log2(1 / (1 + np.exp(1.0)))
    np.testing.assert_allclose(tfm.lambda_losses(scores, grades, present), [expected], rtol=1e-5)
    equal = tfm.lambda_losses(scores, jnp.ones((1, 3)), present)
    assert equal.tolist() == [0]


@pytest.mark.parity
def test_losses_of_lists_are_those_of_sentence_transformers():
    """ListNetLoss and LambdaLoss, by a model that says the scores; lists of one length have as many pairs."""
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")
    scores, _ = drawn(6, 5)
    grades = np.stack([np.random.default_rng(row).permutation(np.float32([0, 0, 1, 2, 3])) for row in range(6)])
    present = jnp.ones((6, 5), bool)
    for name, loss_of in (("ListNetLoss", tfm.list_losses), ("LambdaLoss", tfm.lambda_losses)):
        logits = torch.tensor(scores, requires_grad=True)

        class Said(torch.nn.Module):
            num_labels, device = 1, "cpu"

            def preprocess(self, pairs, **_):
                return {"rows": torch.tensor([[int(query), int(passage)] for query, passage in pairs])}

            def forward(self, fields, logits=logits):
                return {"scores": logits[fields["rows"][:, 0], fields["rows"][:, 1]]}

        inputs = [[str(row) for row in range(6)], [[str(place) for place in range(5)]] * 6]
        loss = getattr(losses, name)(Said())(inputs, [torch.tensor(row) for row in grades])
        loss.backward()
        value, gradient = jax.value_and_grad(lambda x, loss_of=loss_of: loss_of(x, grades, present).mean())(scores)
        np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
        np.testing.assert_allclose(gradient, logits.grad.numpy(), atol=1e-5)

"""Optimizers: each against numpy, torch or transformers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from training.test_step import BATCH_SPEC, batch, one_device

import tfm
from train.data import feed
from train.settings.optim import Optim
from train.tasks.mlm.task import MLM
from train.training import optimizer as optim
from train.training import step

MODEL = tfm.Config(layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, length=16, pad_vocab_to=64, dropout=0.0)
SPECS = tfm.masked_lm_specs(MODEL)
RATE, DECAY = 0.01, 0.3


def options(name, **fields):
    defaults = {"warmup": 1, "rate": RATE, "decay": DECAY, "clip": None, "schedule": "constant"}
    return Optim(name=name, **defaults | fields)


def updated(name, fill, times=2, **fields):
    """Parameters before, gradients of each step, and parameters after each."""
    optimizer = optim.optimizer(options(name, **fields), 10, SPECS)
    params, grads = fill(SPECS), [fill(SPECS, seed) for seed in range(1, 1 + times)]
    state, seen = optimizer.init(params), [params]
    update = jax.jit(optimizer.update)
    for grad in grads:
        updates, state = update(grad, state, seen[-1])
        seen.append(optax.apply_updates(seen[-1], updates))
    leaves = lambda trees: [[np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)] for tree in trees]
    return list(zip(jax.tree.leaves(SPECS), *leaves(seen), *leaves(grads), strict=True))


def test_lion_against_numpy(fill):
    for spec, start, first, second, grad_1, grad_2 in updated("lion", fill, beta2=0.95):
        moved = start - RATE * (np.sign(grad_1) + DECAY * spec.decay * start)
        np.testing.assert_allclose(first, moved, rtol=1e-5, atol=1e-6)
        moment = 0.05 * grad_1
        moved -= RATE * (np.sign(0.9 * moment + 0.1 * grad_2) + DECAY * spec.decay * moved)
        np.testing.assert_allclose(second, moved, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_schedule_free_against_numpy(fill):
    """Algorithm 1 of Defazio et al. 2024, step by step, with a warm-up whose weights count little."""
    rates = [RATE / 3, 2 * RATE / 3, RATE]
    optimizer = optim.optimizer(options("schedule_free", warmup=3, beta2=0.9), 10, SPECS)
    start, gradients = fill(SPECS), [fill(SPECS, seed) for seed in (1, 2, 3)]
    away = jax.tree.map(lambda leaf: leaf + 1, start)
    params, state = start, optimizer.init(away)  # as where weights are read after the state is made
    update = jax.jit(optimizer.update)
    for gradient in gradients:
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    averages = optimizer.average(state, params)
    leaves = [list(map(np.float64, jax.tree.leaves(tree))) for tree in (start, params, averages, *gradients)]
    for spec, y, last, average, *slopes in zip(jax.tree.leaves(SPECS), *leaves, strict=True):
        x = z = y
        square = total = 0.0
        for count, (rate, slope) in enumerate(zip(rates, slopes, strict=True), 1):
            square = 0.9 * square + 0.1 * slope**2
            z = z - rate * (slope / (np.sqrt(square / (1 - 0.9**count)) + 1e-6) + DECAY * spec.decay * y)
            total += rate**2
            x = x + rate**2 / total * (z - x)
            y = 0.1 * z + 0.9 * x
        np.testing.assert_allclose(last, y, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(average, x, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_schedule_free_averages_for_evaluation(fill):
    """The state of a step has x, which is evaluated and used later."""
    mesh, options_of_run = one_device(), options("schedule_free")
    optimizer = optim.optimizer(options_of_run, 10, SPECS)
    state = step.new_state(SPECS, optimizer, 0, mesh, options_of_run.has_average)
    train_step = step.make_train_step(MLM.loss, MODEL, optimizer, 0, dropout=False)
    with jax.set_mesh(mesh):
        for seed in range(3):
            state, _ = train_step(state, feed.to_devices(batch(seed), BATCH_SPEC, mesh, 1))
    wanted = optimizer.average(state.opt, state.params)
    assert state.eval_params is state.ema
    for mean, expected, leaf in zip(*map(jax.tree.leaves, (state.ema, wanted, state.params)), strict=True):
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
        assert leaf.size == 1 or not np.array_equal(mean, leaf)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "linear"}, "schedule=linear is not for name=schedule_free"),
        ({"ema": 0.9}, "ema=0.9 is a second average"),
        ({"beta1": 0.0}, "beta1=0.0 must be more than 0 for name=schedule_free"),
        ({"moment_dtype": "bfloat16"}, "moment_dtype=bfloat16 would round the weights"),
    ],
)
def test_what_schedule_free_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        options("schedule_free", **fields)


@pytest.mark.parametrize(
    "name",
    [
        "lion",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("adamw", "stable_adamw", "sgd")),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("adafactor", "muon", "schedule_free")),
    ],
)
def test_cautious_decay_leaves_out_what_the_update_makes_larger(name, fill):
    """The decay of an element is that without caution, or none: so where its update alone moves it away from 0."""
    plain, all_decay, cautious = (
        updated(name, fill, times=1, **fields) for fields in ({"decay": 0.0}, {}, {"cautious_decay": True})
    )
    left_out = 0
    for (spec, start, free, _), (_, _, full, _), (_, _, chosen, _) in zip(plain, all_decay, cautious, strict=True):
        grows = (free - start) * start > 0
        np.testing.assert_allclose(chosen, np.where(grows, free, full), rtol=1e-5, atol=1e-6)
        left_out += grows.sum() * spec.decay
    assert left_out > 100


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_against_numpy(fill, nesterov):
    """Sutskever et al. 2013, with the gradient of a step in place of that ahead of it: what PyTorch calls Nesterov."""
    ahead = 0.9 if nesterov else 0.0
    for spec, start, first, second, grad_1, grad_2 in updated("sgd", fill, nesterov=nesterov):
        moved = start - RATE * (grad_1 * (1 + ahead) + DECAY * spec.decay * start)
        np.testing.assert_allclose(first, moved, rtol=1e-5, atol=1e-6)
        moment = 0.9 * grad_1 + grad_2
        update = grad_2 + 0.9 * moment if nesterov else moment
        moved -= RATE * (update + DECAY * spec.decay * moved)
        np.testing.assert_allclose(second, moved, rtol=1e-5, atol=1e-6)


def test_sgd_without_momentum_keeps_nothing(fill):
    optimizer = optim.optimizer(options("sgd", beta1=0.0), 10, SPECS)
    assert sum(leaf.size for leaf in jax.tree.leaves(optimizer.init(fill(SPECS)))) <= 1, "the step"
    for spec, start, first, grad in updated("sgd", fill, times=1, beta1=0.0):
        np.testing.assert_allclose(first, start - RATE * (grad + DECAY * spec.decay * start), rtol=1e-5, atol=1e-6)


def test_nesterov_is_an_option_of_sgd():
    with pytest.raises(ValueError, match="nesterov=true is an option of name=sgd, not of name=adamw; leave it out"):
        Optim(nesterov=True)


def root_mean_square(x):
    return np.sqrt(np.square(x).mean())


@pytest.mark.parametrize("scale", [1, 30], ids=["gradients alike", "a gradient of 30 times the size"])
def test_stable_adamw_against_numpy(fill, scale):
    """Adam with bias correction, over the root mean square of gradients to second moments where that is above 1."""
    fills = lambda specs, seed=0: jax.tree.map(lambda leaf: leaf * (scale if seed == 2 else 1), fill(specs, seed))
    clipped = []
    for spec, start, first, second, *gradients in updated("stable_adamw", fills, beta2=0.98, eps=1e-6):
        moved, means, squares = start, 0, 0
        for count, (grad, after) in enumerate(zip(gradients, (first, second), strict=True), start=1):
            means, squares = 0.9 * means + 0.1 * grad, 0.98 * squares + 0.02 * grad**2
            mean, square = means / (1 - 0.9**count), squares / (1 - 0.98**count)
            layers = range(spec.axes.startswith("L"), grad.ndim)
            ratio = np.sqrt((grad**2 / np.maximum(square, 1e-12)).mean(tuple(layers), keepdims=True))
            clipped.append(ratio.max() > 1.001)
            rate = RATE / np.maximum(1, ratio)
            moved = moved - rate * (mean / (np.sqrt(square) + 1e-6) + DECAY * spec.decay * moved)
            np.testing.assert_allclose(after, moved, rtol=2e-5, atol=2e-6)
    assert any(clipped)


@pytest.mark.parity
def test_stable_adamw_against_optimi():
    """Of one matrix, with decay (Adam with decoupled decay, as `decouple_wd`)."""
    torch, optimi = pytest.importorskip("torch"), pytest.importorskip("optimi")
    rng = np.random.default_rng(0)
    start, specs = (
        rng.normal(size=(6, 5)).astype(np.float32),
        {"kernel": tfm.Spec("DF", (6, 5), jnp.zeros, decay=True, inputs=1)},
    )
    weights = torch.nn.Parameter(torch.tensor(start))
    fields = {"lr": RATE, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": DECAY}
    reference = optimi.StableAdamW([weights], **fields, triton=False)
    optimizer = optim.optimizer(options("stable_adamw", beta2=0.98, eps=1e-6), 10, specs)
    params = {"kernel": jnp.asarray(start)}
    state = optimizer.init(params)
    for scale in (1, 1, 30, 0.1, 5):
        grad = (scale * rng.normal(size=(6, 5))).astype(np.float32)
        weights.grad = torch.tensor(grad)
        reference.step()
        updates, state = optimizer.update({"kernel": jnp.asarray(grad)}, state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(params["kernel"], weights.detach().numpy(), rtol=1e-5, atol=1e-6)


def updated_by_torch(make, name, times=6, **fields):
    """A matrix [6,10], a table [12,6] and a bias [10] after steps of an optimizer of torch, and after ours."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    specs = {
        "kernel": tfm.Spec("DF", (6, 10), jnp.zeros, decay=True, inputs=1),
        "table": tfm.Spec("VD", (12, 6), jnp.zeros, decay=True, inputs=1),
        "bias": tfm.Spec("F", (10,), jnp.zeros, decay=False),
    }
    draw = lambda scale: {key: (scale * rng.normal(size=spec.shape)).astype(np.float32) for key, spec in specs.items()}
    start = draw(1)
    weights = {key: torch.nn.Parameter(torch.tensor(leaf)) for key, leaf in start.items()}
    references = make(torch, weights)
    optimizer = optim.optimizer(options(name, decay=0, **fields), times, specs)
    params = jax.tree.map(jnp.asarray, start)
    state = optimizer.init(params)
    for scale in (3, 1, 30, 0.1, 1, 5)[:times]:
        grads = draw(scale)
        for key, leaf in grads.items():
            weights[key].grad = torch.tensor(leaf)
        for reference in references:
            reference.step()
        updates, state = optimizer.update(jax.tree.map(jnp.asarray, grads), state, params)
        params = optax.apply_updates(params, updates)
    return {key: leaf.detach().numpy() for key, leaf in weights.items()}, params


@pytest.mark.parity
@pytest.mark.parametrize(("rounded", "tolerance"), [(False, 1e-5), (True, 2e-3)], ids=["float32", "as torch rounds"])
def test_muon_against_torch(monkeypatch, rounded, tolerance):
    """`match_rms_adamw`. The polynomial of torch is rounded to bfloat16, ours is not: they differ by a fiftieth of a
    step."""
    torch = pytest.importorskip("torch")
    if not rounded:
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())

    def make(torch, weights):
        fields = {"lr": RATE, "weight_decay": 0.0}
        moment = {"momentum": 0.9, "nesterov": True, "adjust_lr_fn": "match_rms_adamw"}
        rest = [weights["table"], weights["bias"]]
        return torch.optim.Muon([weights["kernel"]], **fields, **moment), torch.optim.AdamW(rest, eps=1e-6, **fields)

    for key, (expected, param) in zip_keys(*updated_by_torch(make, "muon", beta2=0.999, eps=1e-6)):
        np.testing.assert_allclose(param, expected, atol=tolerance if key == "kernel" else 1e-5, err_msg=key)


@pytest.mark.parity
def test_adafactor_against_transformers():
    """Without the options that the paper has beside algorithm 4: steps relative to parameters, and their schedule."""
    transformers = pytest.importorskip("transformers")

    def make(torch, weights):
        off = {"scale_parameter": False, "relative_step": False, "warmup_init": False}
        return (transformers.Adafactor(list(weights.values()), lr=RATE, **off),)

    for key, (expected, param) in zip_keys(*updated_by_torch(make, "adafactor", beta2=0.999999)):
        np.testing.assert_allclose(param, expected, atol=1e-5, err_msg=key)


def zip_keys(first, second):
    return [(key, (first[key], second[key])) for key in first]


def by_factors(gradients, max_decay):
    """What Adafactor makes of the gradients [I,O] of two steps, or [O] (Shazeer & Stern 2018, algorithms 4 and 5)."""
    rows = columns = moments = 0.0
    for t, gradient in enumerate(gradients, 1):
        keep, square = min(max_decay, 1 - t**-0.8), np.square(gradient)
        if gradient.ndim == 2:
            rows, columns = keep * rows + (1 - keep) * square.sum(1), keep * columns + (1 - keep) * square.sum(0)
            update = gradient / np.sqrt(np.outer(rows, columns) / rows.sum())
        else:
            moments = keep * moments + (1 - keep) * square
            update = gradient / np.sqrt(moments)
        yield update / max(1.0, root_mean_square(update))


def matrices(spec, x):
    """The layers of a parameter, each a matrix where it is one; its letters tell which axes are inputs."""
    layers = x if spec.axes[0] == "L" else x[None]
    letters = spec.axes.removeprefix("L")
    splits = {"DKGH": 1, "DKH": 1, "KGHD": 3, "DF": 1, "FD": 1, "DE": 1, "VD": 1, "PD": 1, "YD": 1}
    inputs = splits.get(letters)
    return [layer.reshape(np.prod(layer.shape[:inputs]), -1) if inputs else layer.ravel() for layer in layers]


@pytest.mark.slow
def test_adafactor_against_numpy(fill):
    for spec, start, first, second, grad_1, grad_2 in updated("adafactor", fill, beta2=0.3):
        layers = zip(*(matrices(spec, leaf) for leaf in (start, first, second, grad_1, grad_2)), strict=True)
        for before, moved, last, *gradients in layers:
            steps = list(by_factors(gradients, max_decay=0.3))
            for at, then, by in zip((before, moved), (moved, last), steps, strict=True):
                np.testing.assert_allclose(then, at - RATE * (by + DECAY * spec.decay * at), rtol=1e-4, atol=1e-5)


def test_adafactor_of_what_has_no_gradient():
    """Rows that only pad the vocabulary, and whole parameters."""
    specs = {"table": SPECS.encoder.embed.tokens, "other": SPECS.head.dense.kernel, "bias": SPECS.head.bias}
    zeros = {name: np.zeros(spec.shape, np.float32) for name, spec in specs.items()}
    optimizer = optim.optimizer(options("adafactor", decay=0), 10, specs)
    grads = zeros | {"table": jnp.asarray(1e-4 * (np.arange(64)[:, None] < 3) * np.ones(16), jnp.float32)}
    updates = jax.device_get(jax.jit(lambda grads: optimizer.update(grads, optimizer.init(grads), grads)[0])(grads))
    assert not updates["other"].any()
    assert not updates["bias"].any()
    np.testing.assert_allclose(updates["table"][:3], -RATE, rtol=1e-5)
    assert not updates["table"][3:].any()

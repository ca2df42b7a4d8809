import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.extend import core
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tfm
from tfm.attention.kernels import block_sizes
from tfm.attention.kernels.choice import KERNELS
from tfm.catalogue.options.patterns import Sliding
from tfm.catalogue.positions.t5 import T5Bias
from tfm.config.mixers import Softmax
from tfm.config.model import Layer
from tfm.config.positions import Rotary
from tfm.masks.place import Restarted
from train.planning import counting

pytestmark = pytest.mark.usefixtures("strict")

B, T, S, K, G, H = 2, 13, 11, 2, 3, 4
RNG = np.random.default_rng(0)
SEGMENTS = tfm.segments(jax.device_put(RNG.integers(0, 3, (B, T))), jax.device_put(RNG.integers(0, 3, (B, S))))
PADDING = tfm.padding(jax.device_put(RNG.integers(0, 2, (B, S))))
PREFIX = tfm.prefix(jnp.array([3, 8]))
MASKS = {
    "none": None,
    "causal": tfm.causal(),
    "window": tfm.window(3, 1),
    "padding": PADDING,
    "packed": tfm.causal() & SEGMENTS,
    "prefix lm": tfm.causal() | PREFIX,
    "strided": tfm.causal() & (tfm.window(2, 0) | tfm.strided(5)),
    "dilated": tfm.window(6, 6) & tfm.strided(3) & PADDING,
    "all": tfm.window(6, 2) & SEGMENTS & (PREFIX | tfm.left_padding(jnp.array([1, 0]))),
}


@pytest.fixture
def small(monkeypatch):
    """Blocks of 4, which divide neither length."""
    monkeypatch.setattr(block_sizes, "SMALLEST", 4)
    monkeypatch.setattr(block_sizes, "SCORES", {"cpu": 1})


def arrays(batch=B, queries=T, keys=S, size=H):
    rng = np.random.default_rng(1)
    shapes = (batch, queries, K, G, size), (batch, keys, K, size), (batch, keys, K, size)
    return [jax.device_put(np.float32(rng.normal(size=shape))) for shape in shapes]


def values_and_gradients(kernel, mask, *inputs, bias=lambda table: None):
    """Of q, k, v and the table of a bias, where rows that see something count."""
    q, k = inputs[:2]
    seen = True if mask is None else mask.dense(q.shape[1], k.shape[1]).any(-1)[:, :, None, None, None]
    weights = jnp.where(seen, jax.device_put(np.float32(np.random.default_rng(2).normal(size=q.shape))), 0)

    def total(*inputs):
        y = jnp.where(seen, kernel(*inputs[:3], mask, bias(inputs[-1])), 0)
        return (y * weights).sum(), y

    return jax.jit(jax.value_and_grad(total, argnums=tuple(range(len(inputs))), has_aux=True))(*inputs)


def assert_same(actual, expected):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "packed" else pytest.mark.slow) for name in MASKS]
)
def test_chunks_agree_with_the_einsum(name, small):
    """With grouped heads and a learned bias, whose table has a gradient too."""
    table = jax.device_put(np.float32(np.random.default_rng(3).normal(size=(8, K, G))))
    bias = lambda table: T5Bias(table, bidirectional=True, max_distance=16)
    results = [
        values_and_gradients(kernel, MASKS[name], *arrays(), table, bias=bias) for kernel in (tfm.chunked, tfm.attend)
    ]
    assert_same(*results)
    assert np.abs(results[0][1][3]).max() > 0.01


@pytest.mark.slow
def test_chunks_agree_in_bfloat16_and_with_alibi(small):
    bias = tfm.alibi(K * G, K)
    results = [
        values_and_gradients(kernel, MASKS["causal"], *arrays(), bias=lambda v: bias)
        for kernel in (tfm.chunked, tfm.attend)
    ]
    assert_same(*results)
    q, k, v = (x.astype(jnp.bfloat16) for x in arrays())
    y = tfm.chunked(q, k, v, tfm.causal())
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype(jnp.float32), tfm.attend(*arrays(), tfm.causal()), atol=0.05)


def test_blocks_are_smaller_where_a_pattern_is_narrow():
    """Unless most pairs are visited anyway."""
    q = jax.ShapeDtypeStruct((1, 4096, 4, 1, 64), jnp.float32)
    size = lambda mask: block_sizes.block_size(q, 4096, mask)
    assert [size(mask) for mask in (None, tfm.causal(), tfm.window(512, 512))] == [256] * 3
    assert [size(tfm.window(reach, reach)) for reach in (128, 32)] == [128, 64]


@struct.dataclass
class Scaled(tfm.ScoreBias):
    """Scores times a factor of each distance (as Huang et al. 2020, method 1), looked up by an array of integers."""

    table: jax.Array
    rows: jax.Array

    def apply(self, scores, i, j):
        distance = jnp.abs(j[:, None, :] - i[:, :, None])
        return scores * self.table[self.rows[distance]][:, None, None] + scores**2

    def __call__(self, i, j):
        raise AssertionError("only apply is called")


@pytest.mark.slow
def test_chunks_call_apply(small):
    """A bias may do anything with the scores; it has gradients through them too, and may hold integers."""
    table, rows = jnp.linspace(0.5, 1.5, 4), jnp.arange(T) % 4
    bias = lambda table: Scaled(table, rows)
    run = lambda kernel, bias: values_and_gradients(kernel, MASKS["causal"], *arrays(), table, bias=bias)
    assert_same(run(tfm.chunked, bias), run(tfm.attend, bias))
    assert np.abs(run(tfm.chunked, bias)[1][0] - run(tfm.chunked, lambda table: None)[1][0]).max() > 0.01


@pytest.mark.parametrize(
    "name",
    [
        "causal",
        pytest.param("strided", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("window", "dilated")),
    ],
)
def test_chunks_visit_visible_blocks_alone(name, small):
    """Without what they skip, nothing changes: keys and values there may be anything."""
    mask, (q, k, v) = MASKS[name], arrays()
    visible = mask.blocks(4, 4, T, S)
    for block in range(len(visible)):
        hidden = ~visible[block].repeat(4)[:S, None, None] if visible[block].any() else False
        y = tfm.chunked(q, jnp.where(hidden, jnp.nan, k), jnp.where(hidden, jnp.nan, v), mask)
        rows = slice(4 * block, 4 * block + 4)
        np.testing.assert_array_equal(y[:, rows], tfm.chunked(q, k, v, mask)[:, rows])


def sizes(jaxpr):
    for equation in jaxpr.eqns:
        yield from (variable.aval.size for variable in equation.outvars)
        for inner in core.jaxprs_in_params(equation.params):
            yield from sizes(inner)


def test_chunks_never_hold_all_scores():
    """Neither forward nor backward."""
    q, k, v = arrays(1, 512, 512)
    largest = {}
    for kernel in (tfm.chunked, tfm.attend):
        program = jax.make_jaxpr(
            jax.grad(lambda q, k, v, kernel=kernel: kernel(q, k, v, tfm.causal()).sum(), argnums=(0, 1, 2))
        )(q, k, v)
        largest[kernel.__name__] = max(sizes(program.jaxpr))
    assert largest["attend"] == K * G * 512 * 512
    assert largest["chunked"] <= K * G * 128 * 512


def test_a_row_that_sees_nothing_is_finite(small):
    """Without a window it is the mean of all values, as that of the einsum, and its gradient too."""
    nothing = tfm.padding(jnp.zeros((B, S)))
    run = lambda kernel, mask: jax.jit(jax.value_and_grad(lambda *x: (kernel(*x, mask) ** 2).sum(), argnums=(0, 1, 2)))(
        *arrays()
    )
    assert_same(run(tfm.chunked, nothing), run(tfm.attend, nothing))
    windowed = run(tfm.chunked, nothing & tfm.window(2, 0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(windowed))


def test_chunks_on_shards(small):
    """Each device computes its own rows and groups of heads; the mask is cut as the rows are, wherever it was.

    Shards of key/value heads are in test_transforms.
    """
    rng = np.random.default_rng(1)
    q, k, v = (
        jax.device_put(np.float32(rng.normal(size=shape))) for shape in ((4, 6, 2, 2, 4), (4, 6, 2, 4), (4, 6, 2, 4))
    )
    mask = tfm.causal() & tfm.segments(jax.device_put(rng.integers(0, 2, (4, 6))))
    grad = lambda kernel: jax.jit(jax.grad(lambda *x: (kernel(*x, mask) ** 2).sum(), argnums=(0, 1, 2)))
    mesh = tfm.make_mesh(2, 2, 2)
    with jax.set_mesh(mesh):
        places = P("data", None, None, "tensor"), P("data"), P("data")
        sharded = [jax.device_put(x, NamedSharding(mesh, place)) for x, place in zip((q, k, v), places, strict=True)]
        run = grad(tfm.chunked).lower(*sharded).compile()
        gradients = run(*sharded)
    assert "all-to-all" not in run.as_text()
    assert [gradient.sharding.spec[0] for gradient in gradients] == ["data"] * 3
    assert_same(gradients, grad(tfm.attend)(q, k, v))


@struct.dataclass
class Offsets(tfm.ScoreBias):
    """A number for each row of the batch and each key."""

    table: jax.Array
    batched = True

    def __call__(self, i, j):
        return self.table[:, j[0]][:, None, None, None] + jnp.zeros((1, 1, 1, i.shape[1], 1))


@struct.dataclass
class KeySet(tfm.Mask):
    """Keys that all rows see; the array has no batch."""

    allowed: jax.Array

    def __call__(self, i, j):
        return self.allowed[j][:, None, :]


@pytest.mark.slow
def test_biases_and_masks_on_shards(small):
    """Arrays of a bias are cut where it says that they have rows; a mask that says nothing of its arrays is not cut."""
    rng = np.random.default_rng(1)
    q, k, v = (jax.device_put(np.float32(rng.normal(size=(4, 6, *shape)))) for shape in ((2, 2, 4), (2, 4), (2, 4)))
    bias, mask = Offsets(jax.device_put(np.float32(rng.normal(size=(4, 6))))), tfm.strided(2)
    loss = lambda kernel: lambda q, k, v, bias: (kernel(q, k, v, mask, bias) ** 2).sum()
    grad = lambda kernel: jax.jit(jax.grad(loss(kernel), argnums=(0, 1, 2, 3)))
    mesh = tfm.make_mesh(2, 2, 2)
    with jax.set_mesh(mesh):
        sharded = [jax.device_put(x, NamedSharding(mesh, P("data"))) for x in (q, k, v)]
        assert tfm.choose_kernel(*sharded[:2], mask, bias, kernel="chunked").name == "chunked"
        assert_same(grad(tfm.chunked)(*sharded, bias), grad(tfm.attend)(q, k, v, bias))
        with pytest.raises(
            tfm.KernelError, match="the batch is sharded, and a mask with arrays does not say shardable"
        ):
            tfm.choose_kernel(*sharded[:2], mask & KeySet(jnp.ones(6, bool)), kernel="chunked")


def shapes(length=1024, size=64, dtype="bfloat16", batch=8, heads=12):
    return jax.ShapeDtypeStruct((batch, length, heads, 1, size), dtype), jax.ShapeDtypeStruct(
        (batch, length, heads, size), dtype
    )


LONG = jnp.ones((8, 1024), jnp.int32)
SPARSE = tfm.causal() & (tfm.window(128, 0) | tfm.strided(128))


@struct.dataclass
class Shaw(tfm.ScoreBias):
    def values(self, weights, i, j):
        return weights


@struct.dataclass
class Disentangling(tfm.ScoreBias):
    blockwise = False


class Even(tfm.Mask):
    def __call__(self, i, j):
        return (j % 2 == 0)[:, None, :]


BLOCKS, WIDE = tfm.local_blocks(256), tfm.local_blocks(512, before=1, after=1)


def restarted(mask, length=4096):
    """A mask of packed rows, whose positions count from two texts in each."""
    ids = jnp.arange(length)[None] >= jnp.array([[1000]] * 8)
    return Restarted(mask, ids * 1000) & tfm.segments(ids.astype(jnp.int32))


PREFIX_LM = tfm.causal() | tfm.prefix(jnp.ones(8, jnp.int32))


@pytest.mark.parametrize(
    ("platform", "sizes", "options", "name", "reason"),
    [
        ("cpu", {"length": 16, "batch": 1}, {}, "einsum", "less than 1,048,576 scores a layer"),
        ("cpu", {}, {}, "chunked", "1,048,576 scores a layer or more"),
        ("cpu", {"length": 128}, {}, "einsum", "less than 256 keys"),
        ("cpu", {}, {"rate": 0.1}, "chunked", "1,048,576 scores a layer or more"),
        ("cpu", {"length": 16, "batch": 1}, {"rate": 0.1}, "einsum", "less than 1,048,576 scores a layer"),
        ("gpu 9.0", {}, {"mask": tfm.causal()}, "cudnn", "gpu"),
        ("gpu 9.0", {}, {"mask": tfm.window(8, 0) & tfm.prefix(LONG[:, 0])}, "cudnn", "gpu"),
        ("gpu 9.0", {"size": 256}, {}, "cudnn", "gpu"),
        ("gpu 8.0", {"size": 256}, {}, "einsum", "heads of size 256 must be a multiple of 8 and at most 128"),
        ("gpu 9.0", {"size": 20}, {}, "einsum", "heads of size 20 must be a multiple of 8"),
        ("gpu 7.5", {}, {}, "einsum", "compute capability 8.0 or more, and this is gpu 7.5"),
        ("gpu 9.0", {"dtype": "float32"}, {}, "einsum", "cudnn knows bfloat16 and float16, and this is float32"),
        ("gpu 9.0", {}, {"mask": tfm.segments(LONG)}, "cudnn", "it reads this mask as an array"),
        ("gpu 9.0", {"length": 1000}, {"mask": tfm.padding(LONG)}, "einsum", "lengths are no multiples of 128; less"),
        ("gpu 9.0", {"length": 4096, "batch": 16}, {"mask": tfm.padding(LONG)}, "cudnn", "reads this mask as an array"),
        (
            "gpu 9.0",
            {"length": 4096, "batch": 17},
            {"mask": tfm.padding(LONG)},
            "chunked",
            "as an array of 285,212,672 elements; 268,435,456 scores a layer or more",
        ),
        ("gpu 9.0", {}, {"bias": tfm.alibi(12), "mask": tfm.causal()}, "cudnn", "it reads this bias as an array"),
        (
            "gpu 9.0",
            {"length": 8192},
            {"bias": tfm.alibi(12)},
            "chunked",
            "bias as an array of 805,306,368 elements",
        ),
        ("gpu 9.0", {}, {"bias": Shaw()}, "einsum", "biases that are added to the scores, and this one does more"),
        ("gpu 9.0", {"length": 197}, {}, "cudnn", "it is made for a gpu and knows this mask"),
        ("gpu 9.0", {}, {"rate": 0.1}, "einsum", "attention weights are dropped"),
        ("tpu", {}, {"mask": tfm.causal() & tfm.segments(LONG) & tfm.padding(LONG)}, "splash", "tpu"),
        ("tpu", {}, {"mask": tfm.window(128, 128) & tfm.segments(LONG) & tfm.padding(LONG)}, "splash", "tpu"),
        ("tpu", {}, {"mask": SPARSE & (tfm.padding(LONG) | tfm.prefix(LONG[:, 0]))}, "splash", "tpu"),
        ("gpu 9.0", {}, {"mask": SPARSE}, "cudnn", "it reads this mask as an array"),
        ("gpu 9.0", {"length": 4096}, {"mask": WIDE}, "cudnn", "it reads this mask as an array"),
        ("gpu 9.0", {"length": 4096}, {"mask": BLOCKS}, "chunked", "all scores; the mask leaves 6% of the blocks"),
        ("tpu", {"length": 4096}, {"mask": BLOCKS}, "splash", "it is made for a tpu and knows this mask"),
        ("tpu", {"length": 4096}, {"mask": restarted(BLOCKS)}, "splash", "it is made for a tpu and knows this mask"),
        (
            "tpu",
            {"length": 2048},
            {"mask": restarted(BLOCKS | tfm.global_tokens(1))},
            "chunked",
            "this one begins anew with each text of a row; the mask leaves 34% of the blocks",
        ),
        ("cpu", {}, {"bias": Shaw()}, "einsum", "or more, but the bias adds a term to the weighted sum of values"),
        ("cpu", {}, {"bias": Disentangling()}, "einsum", "or more, but the bias is computed for all positions at once"),
        ("cpu", {}, {"mask": Even()}, "einsum", "the mask or the bias is no pytree of arrays; make its class a flax"),
        ("tpu", {"length": 1000}, {}, "einsum", "lengths must be multiples of 128, and they are 1000 and 1000"),
        ("tpu", {}, {"mask": PREFIX_LM}, "einsum", "this mask has other parts"),
        (
            "tpu",
            {"length": 4096},
            {"mask": PREFIX_LM},
            "chunked",
            "this mask has other parts; 268,435,456 scores a layer or more",
        ),
        ("tpu", {}, {"kernel": "chunked"}, "chunked", "asked for"),
        ("gpu 9.0", {}, {"mask": tfm.segments(LONG), "kernel": "cudnn"}, "cudnn", "asked for"),
    ],
)
def test_choose(platform, sizes, options, name, reason):
    choice = tfm.choose_kernel(*shapes(**sizes), platform=platform, **options)
    assert choice.name == name
    assert reason in choice.reason


def test_choose_knows_what_is_sharded():
    """A length that is sharded is left to the einsum; scores are those of one device."""
    mesh = tfm.make_mesh(8, 1, 1)
    q, k = shapes(256, batch=8, heads=4)
    on = lambda x, spec: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
    assert tfm.choose_kernel(q, k).name == "chunked"
    assert tfm.choose_kernel(on(q, P("data")), on(k, P("data"))).name == "einsum"
    q, k = shapes()
    choice = tfm.choose_kernel(on(q, P(None, "data")), on(k, P(None, "data")))
    assert choice == ("einsum", "1,048,576 scores a layer or more, but the length is sharded")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "splsh"}, "kernel=splsh is unknown; did you mean splash?"),
        (
            {"kernel": "cudnn"},
            "kernel=cudnn cannot do this: cudnn needs an NVIDIA GPU of compute capability 8.0 or more, and this is cpu",
        ),
        ({"kernel": "splash"}, "kernel=splash cannot do this: splash needs a TPU, and this is cpu; leave it at auto"),
        (
            {"kernel": "cudnn", "rate": 0.1, "platform": "gpu 9.0"},
            r"kernel=cudnn cannot do this: attention weights are dropped \(at 0.1\), which einsum, chunked",
        ),
        (
            {"kernel": "splash", "platform": "tpu", "bias": tfm.alibi(12)},
            "kernel=splash cannot do this: a bias is added to the scores",
        ),
    ],
)
def test_a_forced_kernel_that_cannot_do_it(options, message):
    with pytest.raises(tfm.KernelError, match=message):
        tfm.choose_kernel(*shapes(), **options)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        pytest.param(None, {"is_causal": False, "lengths": [S, S]}, marks=pytest.mark.slow),
        pytest.param(tfm.causal(), {"is_causal": True, "lengths": [S, S]}, marks=pytest.mark.slow),
        (tfm.causal() & PREFIX, {"is_causal": True, "lengths": [3, 8]}),
        (
            tfm.window(3, 0) & tfm.prefix(jnp.array([0, 9])),
            {"is_causal": True, "local_window_size": (3, 0), "lengths": [1, 9]},
        ),
        (tfm.window(3, 1) & PADDING, {"is_causal": False, "mask": (B, 1, T + 1, S + 1)}),
        pytest.param(tfm.window(None, 1), {"is_causal": False, "mask": (1, 1, T + 1, S + 1)}, marks=pytest.mark.slow),
    ],
)
def test_arguments_of_cudnn(mask, expected, monkeypatch):
    """And that it means the same, by jax's other implementation of the same arguments."""
    seen, original = {}, jax.nn.dot_product_attention

    def watch(*qkv, implementation, **options):
        assert implementation == "cudnn"
        seen.update({name: value for name, value in options.items() if value is not None})
        return original(*qkv, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", watch)
    mean = values_and_gradients(tfm.attend, mask, *arrays())
    assert_same(values_and_gradients(tfm.cudnn, mask, *arrays()), mean)
    lengths = seen.pop("key_value_seq_lengths", None)
    arguments = {name: value.shape if name == "mask" else value for name, value in seen.items()}
    assert {**expected, "lengths": None} == {**arguments, "lengths": None}
    assert (lengths is None) == ("lengths" not in expected)


@pytest.mark.parametrize("mask", [None, pytest.param(tfm.causal() & PADDING, marks=pytest.mark.slow)])
def test_cudnn_adds_a_learned_bias(mask, monkeypatch):
    """By jax's other implementation of the same arguments, with the gradient of its table."""
    original = jax.nn.dot_product_attention
    plain = lambda *qkv, implementation, **options: original(*qkv, implementation="xla", **options)
    monkeypatch.setattr(jax.nn, "dot_product_attention", plain)
    table = jnp.asarray(np.random.default_rng(3).normal(size=(8, K, G)), jnp.float32)
    bias = lambda table: T5Bias(table, bidirectional=True, max_distance=16)
    expected, actual = (
        values_and_gradients(kernel, mask, *arrays(), table, bias=bias) for kernel in (tfm.attend, tfm.cudnn)
    )
    assert_same(actual, expected)


def test_cudnn_lowers(monkeypatch):
    """For a GPU that is not here, once jax believes that cuDNN is installed; with a window, and with an array."""
    monkeypatch.setattr("jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version", lambda: 91000)
    qkv = [x.astype(jnp.bfloat16) for x in arrays(2, 16, 16, 8)]

    def program(mask):
        total = lambda q, k, v: tfm.cudnn(q, k, v, mask).astype(jnp.float32).sum()
        return jax.jit(jax.grad(total, (0, 1, 2))).trace(*qkv).lower(lowering_platforms=("cuda",)).as_text()

    windowed, packed = program(tfm.window(3, 0) & PREFIX), program(tfm.segments(jnp.arange(32).reshape(2, 16) // 5))
    assert windowed.count("PADDING_CAUSAL") == 2
    assert "fmhaSoftmaxBackward" in windowed
    assert "sliding_window_length\\22: 4" in windowed
    assert packed.count("NO_MASK") == 2
    assert "fmhaScaleBiasSoftmaxBackward" in packed


TEXT_STARTS = jnp.where(jnp.arange(128)[None] < jnp.array([[50], [100]]), 0, jnp.array([[50], [100]]))
SPLASHED = {
    "none": None,
    "window": tfm.window(9, 3),
    "packed": tfm.causal()
    & tfm.segments(jax.device_put(np.sort(RNG.integers(0, 3, (B, 128)))))
    & tfm.padding(jnp.arange(128)[None] < 100),
    "strided": tfm.causal()
    & (tfm.window(5, 0) | tfm.strided(7))
    & tfm.segments(jax.device_put(np.sort(RNG.integers(0, 3, (B, 128))))),
    "local": tfm.causal() & tfm.local_blocks(32, before=1),
    "fixed": tfm.causal() & (tfm.local_blocks(32) | tfm.summaries(32, 4)),
    "global": tfm.window(9, 9) | tfm.global_tokens(3),
    "bigbird": tfm.local_blocks(16, 1, 1) | tfm.global_tokens(16) | tfm.chosen_blocks(16, ((2,), (7,)) * 4),
    "packed local": tfm.causal() & Restarted(tfm.local_blocks(32), TEXT_STARTS) & tfm.segments(TEXT_STARTS),
    "more queries": tfm.window(9, 3),  # the last of which see nothing
    "fewer queries": tfm.window(9, 3),
}
LENGTHS = {"more queries": (256, 128), "fewer queries": (128, 256)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "packed" else [pytest.mark.slow]) for name in SPLASHED]
)
def test_splash_lowers(name):
    """For a TPU that is not here: three kernels, one forward and two backward."""
    grad = jax.jit(jax.grad(lambda q, k, v, mask: tfm.splash(q, k, v, mask).sum(), argnums=(0, 1, 2)))
    queries, keys = LENGTHS.get(name, (128, 128))
    program = grad.trace(*arrays(B, queries, keys), SPLASHED[name]).lower(lowering_platforms=("tpu",)).as_text()
    assert program.count("tpu_custom_call") == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", SPLASHED)
def test_splash_agrees_with_the_einsum(name):
    run = lambda q, k, v, mask, bias: tfm.splash(q, k, v, mask, interpret=True)
    queries, keys = LENGTHS.get(name, (128, 128))
    qkv = arrays(B, queries, keys, 64)
    assert_same(*(values_and_gradients(kernel, SPLASHED[name], *qkv) for kernel in (run, tfm.attend)))


@pytest.mark.parametrize("pattern", [tfm.window(128, 128), tfm.window(None, None)], ids=["local", "global"])
def test_layers_of_a_modernbert_take_splash(pattern):
    """Local and global layers of packed and padded rows: it is chosen for a TPU, and lowers for one."""
    q, k, v = (jnp.zeros((2, 1024, *shape), jnp.bfloat16) for shape in ((4, 1, 64), (4, 64), (4, 64)))
    mask = (
        pattern & tfm.segments(jnp.arange(1024)[None] // jnp.array([[300], [512]])) & tfm.padding(jnp.ones((2, 1024)))
    )
    choice = tfm.choose_kernel(q, k, mask, platform="tpu")
    assert choice == ("splash", "it is made for a tpu and knows this mask")
    grad = jax.jit(jax.grad(lambda q, k, v, mask: KERNELS[choice.name](q, k, v, mask).sum(), argnums=(0, 1, 2)))
    program = grad.trace(q, k, v, mask).lower(lowering_platforms=("tpu",)).as_text()
    assert program.count("tpu_custom_call") == 3


@pytest.mark.slow
def test_all_layers_of_a_modernbert_take_splash(monkeypatch):
    """As a model, for a TPU that is not here: local and global layers have three kernels of their own."""
    monkeypatch.setattr("tfm.attention.kernels.choice.current_platform", lambda: "tpu")
    local = Layer(mixer=Softmax(pattern=Sliding(256)), position=Rotary(base=10_000.0))
    config = dataclasses.replace(CONFIG, layers=6, period=(Layer(), local, local), length=1024)
    params = tfm.abstract(tfm.encoder_specs(config))
    tokens = jax.ShapeDtypeStruct((2, 1024), jnp.int32)

    def loss(params, tokens):
        mask = tfm.padding(tokens > 0) & tfm.segments(tokens // 10)
        return (tfm.encoder(params, config, tokens, mask) ** 2).sum()

    assert counting.kernels(loss, params, tokens) == ["splash: it is made for a tpu and knows this mask"]
    program = jax.jit(jax.grad(loss)).trace(params, tokens).lower(lowering_platforms=("tpu",)).as_text()
    assert program.count("tpu_custom_call") >= 2 * 3


@struct.dataclass
class Ladder(tfm.Mask):
    """A static mask that numpy cannot evaluate."""

    def __call__(self, i, j):
        return jnp.isin(jnp.abs(i[:, :, None] - j[:, None, :]), jnp.array([0, 1, 2, 4, 8, 16]))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [tfm.causal(), Ladder()], ids=["causal", "ladder"])
def test_splash_on_shards(pattern):
    """Patterns are evaluated while jax traces, on any mesh."""
    q, k, v = arrays(4, 128, 128)
    mask = pattern & tfm.segments(jnp.arange(128)[None] // jnp.array([[30], [64], [100], [7]]))
    mesh = tfm.make_mesh(2, 2, 2)
    with jax.set_mesh(mesh):
        sharded = [jax.device_put(x, NamedSharding(mesh, P(("data", "fsdp"), None, "tensor"))) for x in (q, k, v)]
        y = jax.jit(lambda q, k, v: tfm.splash(q, k, v, mask, interpret=True))(*sharded)
    np.testing.assert_allclose(y, tfm.attend(q, k, v, mask), rtol=1e-4, atol=1e-5)


CONFIG = tfm.Config(
    layers=2,
    heads=4,
    kv_heads=2,
    width=16,
    ffn=24,
    vocab=60,
    pad_vocab_to=64,
    length=16,
    dropout=0.0,
    position=Rotary(),
    remat="block",
)


@pytest.mark.slow
def test_a_model_has_the_same_gradients_with_every_kernel(fill, small):
    """Rotary positions, grouped heads, scanned and recomputed blocks; and the program says what computes attention."""
    params = fill(tfm.encoder_specs(CONFIG))
    tokens, ids = jnp.arange(26).reshape(2, 13), jnp.arange(13)[None] // jnp.array([[5], [9]])
    results = {}
    for kernel in ("einsum", "chunked"):
        config = dataclasses.replace(CONFIG, kernel=kernel)
        loss = lambda params, config=config: (tfm.decoder(params, config, tokens, tfm.segments(ids)) ** 2).sum()
        assert counting.kernels(loss, params) == [f"{kernel}: asked for"]
        results[kernel] = jax.jit(jax.value_and_grad(loss))(params)
    for actual, expected in zip(*map(jax.tree.leaves, results.values()), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())

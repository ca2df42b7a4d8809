"""Kernels of attention and of norms on this machine's device: how far each is from float32, and how long it takes.

    python -m train.lab.timing.kernels [--smoke]

Prints a line of JSON for every mask and kernel that can do it: `error`, the distance of gradients from those of the
einsum in float32, relative to their norm, and milliseconds, forward and backward. `--smoke` has tiny shapes.
"""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
from jax import Array

import tfm
from tfm.attention.kernels.choice import KERNELS
from tfm.norms import Norm, kernel, layer_norm

# Rows, tokens and heads of the cases, and those of a trial on a CPU.
SHAPES = {"rows of 1,024": (32, 1024, 12), "rows of 128": (256, 128, 12), "197 patches": (128, 197, 12)}
SMOKE = {"rows of 16": (2, 16, 2), "17 patches": (2, 17, 2)}
SIZE, WIDTH, ROWS, RATE = 64, 768, 32768, 0.1

# Runs of a program that are timed together, and how often; the least mean counts.
RUNS, REPEATS = 10, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="train.lab.timing.kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny shapes, in a minute on a CPU")
    is_smoke = parser.parse_args(argv).smoke
    for name, shape in (SMOKE if is_smoke else SHAPES).items():
        for row in attention_rows(*shape):
            print(json.dumps({"shape": name} | row), flush=True)
    print(json.dumps(norm_row(*((64, 48) if is_smoke else (ROWS, WIDTH)))), flush=True)
    return 0


def attention_rows(batch: int, length: int, heads: int) -> Iterator[dict[str, object]]:
    """A row for every mask and kernel: `dropped` are weights, and such results are compared with nothing."""
    shapes = (batch, length, heads, 1, SIZE), *[(batch, length, heads, SIZE)] * 2
    qkv = [jax.random.normal(jax.random.key(n), shape, "bfloat16") for n, shape in enumerate(shapes)]
    for mask_name, mask in _masks(batch, length).items():
        few = [x[:2].astype(jnp.float32) for x in qkv]
        with jax.default_matmul_precision("highest"):
            expected = _gradient(KERNELS["einsum"], _masks(2, length)[mask_name])(*few)
        for name in ("einsum", "chunked", "cudnn", "triton"):
            for rate in (0.0, RATE):
                try:
                    tfm.choose_kernel(qkv[0], qkv[1], mask, rate=rate, kernel=name)
                except tfm.KernelError:
                    continue
                gradient = _gradient(KERNELS[name], mask, rate)
                row: dict[str, object] = {"mask": mask_name, "kernel": name, "dropped": rate}
                row["ms"] = milliseconds(gradient, *qkv)
                if not rate:
                    row["error"] = distance([x[:2] for x in gradient(*qkv)], expected)
                yield row


def _masks(batch: int, length: int) -> dict[str, tfm.Mask | None]:
    """The masks of the cases; packed rows have two texts."""
    texts = jnp.broadcast_to(jnp.arange(length) // (length // 2), (batch, length)).astype(jnp.int32)
    return {"none": None, "causal": tfm.causal(), "packed": tfm.causal() & tfm.segments(texts)}


def _gradient(attend: Callable[..., Array], mask: tfm.Mask | None, rate: float = 0.0) -> Callable[..., list[Array]]:
    """The gradients of a weighted sum of the results for q, k and v."""
    dropout = (rate, jax.random.key(9)) if rate else ()

    def loss(q: Array, k: Array, v: Array) -> Array:
        y = attend(q, k, v, mask, None, *dropout)
        return jnp.einsum("...H,H->...", y.astype(jnp.float32), jnp.cos(jnp.arange(SIZE, dtype=jnp.float32))).sum()

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))


def norm_row(rows: int, width: int) -> dict[str, object]:
    """The norm with its stream, by XLA and by the kernel."""
    x = jax.random.normal(jax.random.key(0), (rows, width), "bfloat16")
    slopes = jax.random.normal(jax.random.key(1), (2, rows, width))
    params = Norm(*(1 + jax.random.normal(jax.random.key(2), (2, width))))

    def of_kernel(x: Array, params: Norm) -> Array:
        stream, y = kernel.normalized(x, params.scale, params.bias, 1e-5, centered=True, forked=True)
        return (stream.astype(jnp.float32) * slopes[0] + y.astype(jnp.float32) * slopes[1]).sum()

    def of_xla(x: Array, params: Norm) -> Array:
        y = layer_norm(params, x, 1e-5)
        return (x.astype(jnp.float32) * slopes[0] + y.astype(jnp.float32) * slopes[1]).sum()

    fused, plain = (jax.jit(jax.grad(loss, argnums=(0, 1))) for loss in (of_kernel, of_xla))
    actual, expected = fused(x, params), plain(x.astype(jnp.float32), params)
    error = distance(jax.tree.leaves(actual), jax.tree.leaves(expected))
    times = {"ms": milliseconds(fused, x, params), "ms_of_xla": milliseconds(plain, x, params)}
    return {"norm": f"{rows} x {width}", "error": error, **times}


def distance(actual: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest distance of two arrays, relative to the norm of the second."""
    norm = lambda x: float(jnp.linalg.norm(x.astype(jnp.float32).ravel()))
    pairs = zip(actual, expected, strict=True)
    return round(max(norm(x.astype(jnp.float32) - y.astype(jnp.float32)) / norm(y) for x, y in pairs), 6)


def milliseconds(function: Callable[..., object], *inputs: Array | Norm) -> float:
    """Of a run, the least mean."""
    jax.block_until_ready(function(*inputs))
    means = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        results = [function(*inputs) for _ in range(RUNS)]
        jax.block_until_ready(results)
        means.append((time.perf_counter() - start) / RUNS)
    return round(1e3 * min(means), 3)


if __name__ == "__main__":
    sys.exit(main())

"""Eight fake CPU devices, strict flags, a cache of this run's own, and one of compiled programs for all runs."""

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import jax
import numpy as np
import pytest

# XLA then compiles for a CPU in 0.4 of the time, and what it makes is hardly slower.
COMPILE_FAST = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")


def are_known(flags: Sequence[str]) -> bool:
    """Whether this XLA knows all flags; where it does not, it would end the process."""
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    env = {**os.environ, "XLA_FLAGS": " ".join(flags)}
    return not subprocess.run(command, env=env, capture_output=True, check=False).returncode


os.environ["JAX_PLATFORMS"] = "cpu"  # for the processes that tests start
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests, and the processes that they start, compile much and compute little.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
jax.config.update("jax_disable_most_optimizations", True)

if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker inherits the folder of the process that started it
    cache = tempfile.TemporaryDirectory(prefix="tfm-tests-")
    os.environ["TFM_CACHE"] = cache.name
    flags_of_xla = COMPILE_FAST if are_known(COMPILE_FAST) else [flag for flag in COMPILE_FAST if are_known([flag])]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags_of_xla]).strip()
    # Workers, and processes that tests start, read the bytecode that another one wrote.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Each worker imports all test modules, and pytest rewrites their assertions. Every second worker starts at the end:
# from where they meet, each reads what another one has rewritten.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
STARTS_AT_END = WORKER is not None and int(WORKER.removeprefix("gw")) % 2 == 1


def pytest_configure(config):
    """What one run, one worker or one module has compiled, no other compiles again: that takes most of the time of the
    tests.

    `--cache-clear` forgets it.
    """
    if not config.pluginmanager.has_plugin("cacheprovider"):
        return
    jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("xla")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    outcome = yield
    if STARTS_AT_END and isinstance(collector, pytest.Directory):
        outcome.get_result().result.reverse()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All workers have the files in one order."""
    if WORKER:
        items.sort(key=lambda item: item.path)


def pytest_collection_finish(session):
    """Thousands of collected tests stay to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def forgetting():
    """The programs of a module are of no use to the next one; thousands of them slow everything down."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def strict():
    """No implicit dtype promotion. Not for everyone: optax relies on it."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="session")
def fill():
    """`fill(specs)`: parameters of which none is 0 or 1, so that a forgotten bias or scale shows."""

    def fill(specs, seed=0):
        rng = np.random.default_rng(seed)
        return jax.tree.map(lambda spec: jax.device_put(np.float32(rng.normal(0.5, 0.5, spec.shape))), specs)

    return fill


@pytest.fixture
def in_home(home, monkeypatch):
    """A test of a module starts in the module's `home`."""
    monkeypatch.chdir(home)

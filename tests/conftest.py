"""Eight fake CPU devices, strict flags, a cache of this run's own, and one of compiled programs for all runs."""

import functools
import gc
import importlib.util
import mmap
import os
import re
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from jax._src.interpreters import mlir

# XLA then compiles for a CPU in 0.4 of the time, and what it makes is hardly slower.
COMPILE_FAST = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")


def flags_of_xla() -> list[str]:
    """Those that this XLA knows, since its largest library holds their names as strings of C; one that it does not know
    would end the process."""
    folder = Path(importlib.util.find_spec("jaxlib").origin).parent
    library = max(folder.glob("*.so"), key=lambda path: path.stat().st_size)
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        names = {flag: flag.strip("-").split("=")[0] for flag in COMPILE_FAST}
        return [flag for flag, name in names.items() if content.find(f"\0{name}\0".encode()) >= 0]


os.environ["JAX_PLATFORMS"] = "cpu"  # for the processes that tests start
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests, and the processes that they start, compile much and compute little.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
jax.config.update("jax_disable_most_optimizations", True)

# A context of MLIR takes 5 ms to make, and these tests lower 7,000 programs: all have one.
if hasattr(mlir, "make_ir_context"):
    mlir.make_ir_context = functools.cache(mlir.make_ir_context)

if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker inherits the folder of the process that started it
    cache = tempfile.TemporaryDirectory(prefix="tfm-tests-")
    os.environ["TFM_CACHE"] = cache.name
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags_of_xla()]).strip()
    # Workers, and processes that tests start, read the bytecode that another one wrote.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Each worker imports all test modules, and pytest rewrites their assertions. Every second worker starts at the end:
# from where they meet, each reads what another one has rewritten.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
STARTS_AT_END = WORKER is not None and int(WORKER.removeprefix("gw")) % 2 == 1


def pytest_configure(config):
    """What one run, one worker or one module has compiled, no other compiles again: that takes most of the time of the
    tests.

    `--cache-clear` forgets it. Nothing that is collected is garbage.
    """
    gc.disable()
    if not config.pluginmanager.has_plugin("cacheprovider"):
        return
    jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("xla")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_ignore_collect(collection_path, config):
    """A file is not imported whose tests all have a marker that `-m` leaves out."""
    left_out = re.findall(r"not (\w+)", config.option.markexpr)
    if collection_path.suffix == ".py" and config.option.markexpr == " and ".join(f"not {name}" for name in left_out):
        of_file = re.search(r"^pytestmark = (.*?)\n(?! |\])", collection_path.read_text(), re.MULTILINE | re.DOTALL)
        return True if of_file and set(re.findall(r"pytest\.mark\.(\w+)", of_file[1])) & set(left_out) else None
    return None


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
    gc.enable()
    gc.set_threshold(100_000)


@pytest.fixture(scope="module", autouse=True)
def forgetting():
    """The programs of a module are of no use to the next one; thousands of them slow everything down. What stays after
    that stays to the end."""
    yield
    jax.clear_caches()
    gc.collect()
    gc.freeze()


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
def home(tmp_path, monkeypatch):
    """An empty folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFM_CACHE", str(tmp_path / ".cache"))
    return tmp_path


@pytest.fixture
def in_home(home, monkeypatch):
    """A test of a module starts in the module's `home`."""
    monkeypatch.chdir(home)

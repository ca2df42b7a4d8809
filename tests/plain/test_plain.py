"""The plain pages against the library: losses and gradients of every plain preset, and greedy texts."""

import ast
import contextlib
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from guide.pages import ROOT, blocks, close
from random_params import random_params

import tfm
from tfm import plain
from tfm.config.model import COMPUTE, MAX_SIZES
from tfm.options.dotted import flatten
from tfm.plain import bert, gpt, translation, vit
from train.settings import flags
from train.tasks.presets import PRESETS
from train.tasks.table import AnyRun, task_of

FILES = sorted(Path(plain.__file__).parent.glob("*.py"))
LENGTH = 16

# Sizes of the texts in each row, of sources and of targets; the last row is padding.
SOURCES, TARGETS = [[16], [7, 5], [4, 6, 3], []], [[12], [5, 9], [6, 2, 8], []]
ROWS = len(SOURCES)

# Small sizes; a pair of queries shares a key, and the vocabulary is padded.
SIZES = {"model.layers": 2, "model.width": 24, "model.heads": 4, "model.kv_heads": 2, "model.ffn": 40}
OF_TEXTS = SIZES | {"model.vocab": 50, "model.pad_vocab_to": 8, "model.length": LENGTH, "batch.length": LENGTH}
OF_PICTURES = SIZES | {"model.classes": 5, "model.input.size": 12, "model.input.patch": 4}

# Dropout has no key here, and parameters are random in another way.
UNUSED = {"model.dropout": 0.0, "model.drop_path": 0.0, "model.init_std": 0.02}


class Page(NamedTuple):
    """A page.

    loss: (params, batch, vocab) -> a scalar
    options: of the model of the page, where they differ from the defaults
    sizes: of a small run
    """

    loss: Callable[..., jax.Array]
    options: dict[str, object]
    sizes: dict[str, object]


GPT = {"residual": "pre", "activation": "gelu_tanh", "norm_eps": 1e-5, "input.token_types": None, "input.norm": False}
TRANSFORMER = GPT | {"residual": "post", "activation": "relu", "position": "sinusoidal", "input.scale": True}
VIT = {"input": "patches", "residual": "pre", "norm_eps": 1e-6, "head.dense": False}

PAGES = {
    "mlm": Page(bert.mlm_loss, {}, OF_TEXTS),
    "lm": Page(gpt.lm_loss, GPT, OF_TEXTS),
    "translate": Page(translation.translation_loss, TRANSFORMER, OF_TEXTS),
    "image": Page(lambda p, batch, vocab: vit.image_loss(p, batch), VIT, OF_PICTURES),
}


def run_of(task, preset, values=None):
    """The run of a preset, with other values by dotted name."""
    return flags.build(AnyRun, {"task": task}, PRESETS[task][preset], values or {})


def options_of(model):
    """What a model is, beside its sizes, which a page reads off the parameters, and how it is computed."""
    sizes = {*MAX_SIZES, *COMPUTE, "input.size", "input.patch", "input.channels"}
    return {name: value for name, value in flatten(model).items() if name not in sizes}


def is_plain(task, preset):
    return options_of(run_of(task, preset).model) == options_of(tfm.override(tfm.Config(), PAGES[task].options))


PLAIN = [(task, preset) for task in PAGES for preset in PRESETS[task] if is_plain(task, preset)]

# The first preset of each task, and the others as slow tests: they differ in sizes alone. The gradients of a
# translation take as long as all others; the plain test command compares its greedy texts.
FIRST = list({task: (task, preset) for task, preset in reversed(PLAIN) if task != "translate"}.values())
ROWS_OF_PRESETS = [pytest.param(*row, marks=() if row in FIRST else pytest.mark.slow) for row in PLAIN]


def small_problem(task, preset):
    """Of a preset with small sizes: the model, its specs, the loss of the task, and the fields of a batch."""
    run = run_of(task, preset, PAGES[task].sizes | UNUSED)
    record = task_of(run)
    return run.model, record.specs(run), record.loss, record.batch_spec(run)


def segments_positions(sizes):
    """Sizes of the texts of each row -> segments and positions [B,T]."""
    segments, positions = np.zeros((2, ROWS, LENGTH), int)
    for row, texts in enumerate(sizes):
        segments[row, : sum(texts)] = np.repeat(np.arange(len(texts)) + 1, texts)
        positions[row, : sum(texts)] = [place for size in texts for place in range(size)]
    return segments, positions


def random_batch(model, spec):
    """Random fields of a batch: texts that share rows, padding, and weights of which some are 0."""
    rng = np.random.default_rng(0)
    shapes = {name: field.shape(ROWS, LENGTH) for name, field in spec.items()}
    segments, positions = segments_positions(SOURCES)
    target_segments, target_positions = segments_positions(TARGETS)
    is_token = (target_segments if "target" in spec else segments) > 0
    is_row = is_token.any(1)
    counts = {"BT": is_token, "BM": is_row[:, None], "B": is_row}[spec["weights"].axes]
    fields = {
        "tokens": rng.integers(1, model.vocab, segments.shape) * (segments > 0),
        "segments": segments,
        "positions": positions,
        "target": rng.integers(1, model.vocab, segments.shape) * (target_segments > 0),
        "target_segments": target_segments,
        "target_positions": target_positions,
        "targets": rng.integers(0, model.vocab, shapes.get("targets", ())),
        "where": rng.integers(0, np.maximum(is_token.sum(1), 1)[:, None], shapes.get("where", (ROWS, 1))),
        "pixels": rng.normal(size=shapes.get("pixels", ())),
        "labels": rng.integers(0, model.classes, ROWS),
        "partners": rng.integers(0, model.classes, ROWS),
        "shares": rng.random(ROWS),
        "smoothing": rng.uniform(0.05, 0.2, ROWS),
        "weights": rng.uniform(0.5, 1.5, shapes["weights"]) * (rng.random(shapes["weights"]) < 0.8) * counts,
        **{name: np.zeros(shapes.get(name, ())) for name in ("words", "bytes", "withheld")},  # of metrics
    }
    batch = {name: fields[name].astype(field.dtype) for name, field in spec.items()}
    assert {name: field.shape for name, field in batch.items()} == shapes
    return batch


@partial(jax.jit, static_argnums=(0, 1))
def library_gradients(loss, model, params, batch):
    """The mean loss of a task, and its gradients."""

    def mean(params):
        sums = loss(params, model, batch, None)
        return sums["loss"] / sums["weight"]

    return jax.value_and_grad(mean)(params)


@partial(jax.jit, static_argnums=(0, 1))
def plain_gradients(loss, vocab, params, batch):
    """The loss of a page, and its gradients."""
    return jax.value_and_grad(loss)(params, batch, vocab)


@pytest.fixture
def numpy_broadcasting():
    """A page adds vectors to arrays as everybody does."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_page_is_a_page_and_shares_no_code(path):
    text = path.read_text()
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {alias.name for node in imports for alias in node.names} <= {"jax", "jax.numpy"}
    assert len(text.splitlines()) <= 80


def test_a_preset_is_plain_if_its_options_are_those_of_a_page():
    names = {preset for _, preset in PLAIN}
    assert {"bert-tiny", "bert-large", "gpt-char", "gpt2-xl", "transformer-big", "vit-l", "deit-b"} <= names
    assert names.isdisjoint({"longformer-tiny", "gpt3-tiny", "llama-tiny", "imagegpt-s", "swin-tiny"})


@pytest.mark.parametrize(("task", "preset"), ROWS_OF_PRESETS)
def test_loss_and_gradients_are_those_of_the_task(task, preset):
    model, specs, loss, spec = small_problem(task, preset)
    params, batch = random_params(specs), random_batch(model, spec)
    of_library = library_gradients(loss, model, params, batch)
    with jax.numpy_rank_promotion("allow"):
        of_page = plain_gradients(PAGES[task].loss, model.vocab, params, batch)
    np.testing.assert_allclose(of_page[0], of_library[0], rtol=1e-6)
    leaves = jax.tree_util.tree_leaves_with_path(of_library[1])
    for (path, expected), gradient in zip(leaves, jax.tree.leaves(of_page[1]), strict=True):
        name = jax.tree_util.keystr(path)
        largest = float(abs(expected).max())
        assert float(abs(gradient - expected).max()) <= max(1e-5 * largest, 1e-7), name
        assert (largest > 1e-5) != name.endswith(".key.bias"), f"{name}: only a bias of keys cancels in the softmax"


@pytest.mark.slow
@pytest.mark.usefixtures("numpy_broadcasting")
def test_gpt_writes_what_the_library_writes():
    model, specs, *_ = small_problem("lm", "gpt2")
    rng, params = np.random.default_rng(0), random_params(specs)
    prompts = [rng.integers(0, model.vocab, 1 + row % 5).tolist() for row in range(12)]
    tokens = np.array([prompt + [0] * (LENGTH - len(prompt)) for prompt in prompts])
    lengths = np.array([len(prompt) for prompt in prompts])
    texts = np.asarray(jax.jit(gpt.generate, static_argnums=3)(params, tokens, lengths, model.vocab)).tolist()
    count = LENGTH - max(map(len, prompts))
    continuations = tfm.generate(params, model, prompts, count).tokens
    for text, prompt, continuation in zip(texts, prompts, continuations, strict=True):
        assert text[: len(prompt) + count] == prompt + continuation
    assert len({*map(tuple, continuations)}) > 5, "continuations that are equal say little"
    assert max(len({*continuation}) for continuation in continuations) > 3, "nor do those that repeat a token"


@pytest.mark.slow
@pytest.mark.usefixtures("numpy_broadcasting")
def test_the_transformer_translates_as_the_library_does():
    model, specs, *_ = small_problem("translate", "transformer-base")
    rng, params, shape = np.random.default_rng(0), random_params(specs), (24, 12)
    valid = np.arange(shape[1]) < rng.integers(3, shape[1], shape[0])[:, None]
    starts = np.arange(shape[0])
    batch = {
        "tokens": rng.integers(0, model.vocab, shape),
        "segments": valid.astype(int),
        "positions": np.arange(shape[1])[None],
        "target": np.where(np.arange(shape[1]) == 0, starts[:, None], 0),
        "target_segments": np.ones(shape, int),
        "target_positions": np.arange(shape[1])[None],
    }
    texts = np.asarray(jax.jit(translation.translate, static_argnums=2)(params, batch, model.vocab)).tolist()
    lm = tfm.encode_source(params, model, batch["tokens"], valid)
    translations = tfm.generate(lm, model, starts[:, None].tolist(), shape[1] - 1).tokens
    assert [text[1:] for text in texts] == translations
    assert len({*map(tuple, translations)}) > 8, "translations that are equal say little"


@pytest.mark.slow
@pytest.mark.usefixtures("numpy_broadcasting")
def test_the_guide_shows_what_the_pages_print():
    code, output, *_ = (block.text for block in blocks(ROOT / "docs/library/plain.md"))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "docs/library/plain.md", "exec"), {"__name__": "page"})
    assert close(output, printed.getvalue())

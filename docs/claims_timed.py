"""Claims on models that are trained for as many processor seconds: translators, and classifiers of pictures."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from claims_trained import ADAM, Values
from jax import Array

import tfm
from train.images import drawings
from train.screens.console import Log
from train.settings.recipes.pictures import resnet, vit
from train.tasks import table
from train.training import startup

# Processor seconds of a training of a translator, beside compilation, and sentences that are translated.
TRANSLATOR_SECONDS, SENTENCES = 60.0, 100
TRANSLATORS = {
    "Transformer": (),
    "GRU": ("--model.mixer=gru", "--model.mixer.score=additive", "--model.position=none"),
}

# The same of pictures: seconds, rows of a batch and rate; drawings to train on and new ones to test on.
PICTURE_SECONDS, ROWS, RATE = 20.0, 32, 2e-3
COUNTS, TESTED = (100, 1000, 10_000), 1000
CLASSIFIERS = {
    "ViT": vit(4, 64, 4, size=drawings.SIDE, patch=8),
    "CNN": resnet("8x1,16x1,32x1,64x1", 0, 64, 4, size=drawings.SIDE),
}

Batch = dict[str, np.ndarray]


class Training:
    """A training by Adam that goes on step by step, and counts its processor seconds; the rate rises for a quarter of
    them and falls to 0."""

    def __init__(
        self,
        model: Any,
        loss: Callable[[Any, dict[str, Array]], Array],
        batches: Callable[[int], Batch],
        budget: tuple[float, float],
    ):
        self.model, self.batches, (self.limit, self.peak) = model, batches, budget
        self.state, self.seconds, self.steps = ADAM.init(model), 0.0, 0

        @jax.jit
        def step(model: Any, state: Any, rate: float, batch: dict[str, Array]) -> tuple[Any, Any]:
            updates, state = ADAM.update(jax.grad(loss)(model, batch), state, model)
            return jax.tree.map(lambda leaf, update: leaf - rate * update, model, updates), state

        self._step = step
        jax.block_until_ready(step(model, self.state, 0.0, batches(0)))

    def go_on(self):
        """A step."""
        batch, share = self.batches(self.steps), self.seconds / self.limit
        rate = self.peak * min((share + 0.01) / 0.25, (1 - share) / 0.75)
        began = time.process_time()
        self.model, self.state = jax.block_until_ready(self._step(self.model, self.state, rate, batch))
        self.seconds += time.process_time() - began
        self.steps += 1


def in_turns(trainings: dict[str, Training]):
    """Goes on with whichever has had the fewest seconds until all have had theirs: what else the machine does slows all
    of them."""
    while any(training.seconds < training.limit for training in trainings.values()):
        min(trainings.values(), key=lambda training: training.seconds).go_on()


def collected(rows: list[dict[str, float]]) -> Values:
    """Values of seeds by label."""
    return {label: [row[label] for row in rows] for label in rows[0]}


def translated(seed: int) -> dict[str, float]:
    """BLEU and steps of both translators."""
    trainings, runs = {}, {}
    for name, flags in TRANSLATORS.items():
        words = ["--task=translate", f"--task.bleu={SENTENCES}", "--task.beams=1", f"--seed={seed}", *flags]
        run, corpus = runs[name] = startup.prepare(words, Log(quiet=True))
        task = table.task_of(run)

        def loss(model: Any, batch: dict[str, Array], task: Any = task, run: Any = run) -> Array:
            sums = task.loss(model, run.model, batch, jax.random.key(0))
            return sums["loss"] / sums["weight"]

        model = tfm.init(task.specs(run), jax.random.key(seed))
        trainings[name] = Training(model, loss, corpus.batch, (TRANSLATOR_SECONDS, run.optim.rate))
    in_turns(trainings)
    values = {}
    for name, (run, corpus) in runs.items():
        task, model = table.task_of(run), trainings[name].model
        metrics = task.generation_metrics(model, run, corpus, Log(quiet=True), during_training=True)
        values |= {f"{name}, BLEU": metrics["bleu"], f"{name}, steps": trainings[name].steps}
    return values


def translators(seeds: int) -> Values:
    """A Transformer translates better than a recurrent network with attention (Bahdanau et al. 2015) after as many
    processor seconds: BLEU of new sentences."""
    return collected([translated(seed) for seed in range(seeds)])


def drawn(rows: list[drawings.Drawing]) -> Batch:
    """Drawings -> pixels float32 [N,32,32,3] from -1 to 1, and classes int32 [N]: two shapes and how they lie."""
    names = sorted({drawing.label("label") for drawing in drawings.generate().train})
    pixels = np.stack([drawings.draw(drawing) for drawing in rows]).astype(np.float32) / 127.5 - 1
    return {"pixels": pixels, "labels": np.array([names.index(row.label("label")) for row in rows], np.int32)}


def recognized(train: Batch, test: Batch, seed: int) -> dict[str, float]:
    """Accuracy on the test pictures, and steps, of both classifiers."""
    trainings, classify = {}, {}
    for name, preset in CLASSIFIERS.items():
        fields = {key.removeprefix("model."): value for key, value in preset.items() if key.startswith("model.")}
        fields |= {"classes": int(test["labels"].max()) + 1, "init_std": 0.05, "scan": False}
        config = tfm.override(tfm.Config(), fields)

        def logits(model: Any, pixels: Array, config: tfm.Config = config) -> Array:
            return tfm.classify(model, config, pixels)

        def loss(model: Any, batch: dict[str, Array], logits: Any = logits) -> Array:
            return tfm.cross_entropy(logits(model, batch["pixels"]), batch["labels"]).mean()

        def batch(step: int) -> Batch:
            rows = np.random.default_rng((seed, step)).integers(len(train["labels"]), size=ROWS)
            return {field: array[rows] for field, array in train.items()}

        model = tfm.init(tfm.classifier_specs(config), jax.random.key(seed))
        trainings[name], classify[name] = Training(model, loss, batch, (PICTURE_SECONDS, RATE)), jax.jit(logits)
    in_turns(trainings)
    values = {}
    for name, training in trainings.items():
        parts = [classify[name](training.model, pixels).argmax(-1) for pixels in np.split(test["pixels"], 10)]
        accuracy = float((np.concatenate(parts) == test["labels"]).mean())
        values |= {f"{name}, accuracy": accuracy, f"{name}, steps": training.steps}
    return values


def pictures(seeds: int) -> Values:
    """With few pictures a ViT is worse than a convolutional network (Dosovitskiy et al. 2021): accuracy on new drawings
    after as many processor seconds on 100, 1,000 and 10,000 of them."""
    parts = drawings.generate()
    test, rows = drawn(parts.valid[:TESTED]), {}
    for count in COUNTS:
        train = drawn(parts.train[:count])
        values = collected([recognized(train, test, seed) for seed in range(seeds)])
        rows |= {f"{count:,} pictures, {label}": of_seeds for label, of_seeds in values.items()}
    return rows


TIMED = {function.__name__: function for function in (translators, pictures)}

"""A plain Transformer on random tokens or pictures, as a task of the trainer: `train.bench` compares it with other
libraries.

By default every position is predicted, and there is no dropout. Each batch of texts is new; pictures are drawn once.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

import tfm
from tfm.config.inputs import Tokens
from tfm.config.residuals import PreNorm
from tfm.options.dotted import override
from train import UserError
from train.data.fields import Field
from train.images.model_processor import picture_shape
from train.lab.timing.options import BenchOptions
from train.settings import flags
from train.settings.recipes import pairs, pictures, stages
from train.settings.recipes.fields import Preset
from train.settings.schema import Batch, Optim, Run
from train.settings.task_options import TaskOptions
from train.tasks.image.options import Image
from train.tasks.mlm.options import Mlm

# The recipe of the peer.
OPTIM = Optim(schedule="constant", warmup=1, decay=0.1, eps=1e-8)

# The shape of the peer's model: pre-norm, tanh GELU, learned positions, tied output table.
MODEL = tfm.Config(
    residual=PreNorm(),
    activation="gelu_tanh",
    norm_eps=1e-5,
    input=Tokens(token_types=None, norm=False),
    dropout=0.0,
)

# Steps of the run, those of a long one.
STEPS = 1000

# Classes of pictures, those of ImageNet.
CLASSES = 1000


def plain_run(options: BenchOptions) -> Run:
    """The run of the options of `train.bench`. Raises UserError for a model that there is not."""
    task: TaskOptions
    names: tuple[str, ...] = ("ffn", "scan", "dtype", "kernel", "dropout")
    variants = [*_variant("mixer", options.mixer), *_variant("position", options.position)]
    if options.reads_pictures:
        plain, shape, task = tfm.Config(classes=CLASSES), _picture_shape(options), Image()
        variants = [] if "stages" in shape else variants
    elif options.model == "t5":
        plain, shape, task, variants = tfm.Config(vocab=options.vocab), _t5_shape(options), Mlm(), []
    else:
        names += ("layers", "heads", "width", "vocab", "length")
        plain, shape, task = MODEL, dict[str, object](), Mlm()
    shape |= {name: getattr(options, name) for name in names}
    try:
        return Run(
            model=override(plain, shape, flags.parse(variants), read=flags.read),
            task=task,
            batch=Batch(size=options.batch, length=options.length),
            optim=OPTIM,
            steps=STEPS,
        )
    except ValueError as error:
        raise UserError(f"--{str(error).removeprefix('input.')}") from error


def _t5_shape(options: BenchOptions) -> dict[str, object]:
    """The model of T5 in the sizes of the options."""
    return _fields(pairs.t5(options.layers, options.width, options.heads))


def _picture_shape(options: BenchOptions) -> dict[str, object]:
    """The model of presets in the sizes of the options. Swin has up to four stages of two layers, the third of which
    has the rest (Liu et al. 2021, section 3.3)."""
    pixels = {"size": options.size, "patch": options.patch}
    if options.model == "vit":
        values = pictures.vit(options.layers, options.width, options.heads, **pixels)
    else:
        depths = (2, 2, options.layers - 6, 2) if options.layers > 6 else (2,) * (options.layers // 2)
        values = stages.swin(depths, options.width, options.heads, window=options.window, **pixels)
    return _fields(values)


def _fields(preset: Preset) -> dict[str, object]:
    """The fields of the model of a preset."""
    return {name.removeprefix("model."): value for name, value in preset.items()}


def _variant(field: str, text: str) -> list[str]:
    """A tag and its options, `softmax:pattern=sliding` -> flags of the model."""
    name, *options = text.split(":")
    return [f"--{field}={name}", *(f"--{field}.{option}" for option in options)]


def plain_task(options: BenchOptions) -> "RandomTexts | RandomPictures":
    """The task of the run of the options of `train.bench`."""
    if options.reads_pictures:
        return RandomPictures()
    family = "seq2seq" if options.model == "t5" else options.model
    return RandomTexts(family, options.predict, options.target)


@dataclasses.dataclass(frozen=True)
class RandomTexts:
    """Tokens to predict.

    family: bert (an encoder) | gpt (the same with a causal mask) | seq2seq (both)
    predict: share of positions that meet the vocabulary; masked language modelling predicts 0.15 of them
    target: tokens of a target, by default those of a source
    """

    family: str
    predict: float = 1.0
    target: int | None = None

    def specs(self, run: Run):
        """The parameters of the run's model."""
        return tfm.seq2seq_specs(run.model) if self.family == "seq2seq" else tfm.encoder_specs(run.model)

    def batch_spec(self, run: Run) -> dict[str, Field]:
        """The fields of a batch."""
        length = self.target or run.batch.length
        predicted = Field("BM", np.int32, {"M": round(self.predict * length)})
        spec = {"tokens": Field("BT", np.int32, counts_tokens=True), "targets": predicted}
        if self.family == "seq2seq":
            spec["target"] = Field("BU", np.int32, {"U": length}, counts_tokens=True)
        if self.predict < 1:
            spec["where"] = predicted
        return spec

    def batches(self, run: Run):
        """A function from a step to its batch: random tokens, new ones for each call; `where` are the first places."""

        def draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
            if name == "where":
                return np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
            return rng.integers(run.model.vocab, size=shape, dtype=np.int32)

        return _batches(run, self.batch_spec(run), draw)

    def loss(self, params, model: tfm.Config, batch, key):
        """Sums over a batch: `loss` in nats, and `weight`, the number of targets."""
        if self.family == "seq2seq":
            source = tfm.encode_source(params, model, batch["tokens"], key=key)
            hidden = tfm.decoder(source.decoder, model, batch["target"], memory=source.memory, key=key)
            table = source.output
        else:
            states = tfm.decoder if self.family == "gpt" else tfm.encoder
            hidden = states(params, model, batch["tokens"], key=key)
            table = params.embed.tokens
        if "where" in batch:
            hidden = tfm.take_positions(hidden, batch["where"])
        features = tfm.lm_features(model, hidden)
        total, *_ = tfm.vocabulary_loss(model, table, features, batch["targets"], jnp.ones(batch["targets"].shape))
        return {"loss": total, "weight": jnp.float32(batch["targets"].size)}


class RandomPictures:
    """Pictures to classify. `RandomTexts` has the same members."""

    def specs(self, run: Run):
        """The parameters of the run's model."""
        return tfm.classifier_specs(run.model)

    def batch_spec(self, run: Run) -> dict[str, Field]:
        """The fields of a batch."""
        sizes = dict(zip("hwc", picture_shape(run.model), strict=True))
        pixels = Field("Bhwc", np.float32, sizes, counts_tokens=True, row_tokens=run.row_tokens)
        return {"pixels": pixels, "labels": Field("B", np.int32)}

    def batches(self, run: Run):
        """A function from a step to its batch: random pixels and classes, always the same. Drawing them takes longer
        than a step."""

        def draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
            is_class = name == "labels"
            return rng.integers(CLASSES, size=shape, dtype=np.int32) if is_class else rng.standard_normal(shape, "f4")

        batch = _batches(run, self.batch_spec(run), draw)(0)
        return lambda step: batch

    def loss(self, params, model: tfm.Config, batch, key):
        """Sums over a batch: `loss` in nats, and `weight`, the number of pictures."""
        losses = tfm.cross_entropy(tfm.classify(params, model, batch["pixels"], key=key), batch["labels"])
        return {"loss": losses.sum(), "weight": jnp.float32(losses.size)}


def _batches(
    run: Run, spec: dict[str, Field], draw: Callable[..., np.ndarray]
) -> Callable[[int], dict[str, np.ndarray]]:
    """A function from a step to its batch, whose fields are drawn in turn: draw(name, shape, rng)."""
    rng = np.random.default_rng(run.seed)
    shapes = {name: field.shape(run.batch.size, run.batch.length) for name, field in spec.items()}
    return lambda step: {name: draw(name, shape, rng) for name, shape in shapes.items()}

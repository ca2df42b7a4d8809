"""A plain Transformer on random tokens, as a task of the trainer: `train.bench` compares it with other libraries.

Every position is predicted by default, there is no dropout, and each batch has new tokens.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

import tfm
from tfm.config.dotted import override
from tfm.config.inputs import Tokens
from tfm.config.residuals import PreNorm
from train import UserError
from train.data.fields import Field
from train.settings import flags
from train.settings.schema import Batch, Optim, Run

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


def plain_run(options: Any) -> Run:
    """The run of the options of `train.bench`. Raises UserError for a model that there is not."""
    names = ("layers", "heads", "width", "ffn", "vocab", "length", "scan", "dtype", "kernel")
    shape = {name: getattr(options, name) for name in names}
    texts = flags.parse([*_variant("mixer", options.mixer), *_variant("position", options.position)])
    try:
        return Run(
            model=override(MODEL, shape, texts, read=flags.read),
            batch=Batch(size=options.batch, length=options.length),
            optim=OPTIM,
            steps=STEPS,
        )
    except ValueError as error:
        raise UserError(f"--{error}") from error


def _variant(field: str, text: str) -> list[str]:
    """A tag and its options, `softmax:pattern=sliding` -> flags of the model."""
    name, *options = text.split(":")
    return [f"--{field}={name}", *(f"--{field}.{option}" for option in options)]


@dataclasses.dataclass(frozen=True)
class RandomTask:
    """The task for one family of models.

    family: bert (an encoder) | gpt (the same with a causal mask) | seq2seq (both)
    predict: share of positions that meet the vocabulary; masked language modelling predicts 0.15 of them
    """

    family: str
    predict: float = 1.0

    def specs(self, run: Run):
        """The parameters of the run's model."""
        return tfm.seq2seq_specs(run.model) if self.family == "seq2seq" else tfm.encoder_specs(run.model)

    def batch_spec(self, run: Run) -> dict[str, Field]:
        """The fields of a batch."""
        predicted = Field("BM", np.int32, {"M": round(self.predict * run.batch.length)})
        spec = {"tokens": Field("BT", np.int32, counts_tokens=True), "targets": predicted}
        if self.family == "seq2seq":
            spec["target"] = Field("BT", np.int32, counts_tokens=True)
        if self.predict < 1:
            spec["where"] = predicted
        return spec

    def batches(self, run: Run):
        """A function from a step to its batch: random tokens, new ones for each call."""
        rng = np.random.default_rng(run.seed)
        rows = run.batch.size
        shapes = {name: field.shape(rows, run.batch.length) for name, field in self.batch_spec(run).items()}

        def batch(step: int) -> dict[str, np.ndarray]:
            fields = {name: rng.integers(run.model.vocab, size=shape, dtype=np.int32) for name, shape in shapes.items()}
            if "where" in fields:
                positions = np.arange(shapes["targets"][1], dtype=np.int32)
                fields["where"] = np.tile(positions, (rows, 1))
            return fields

        return batch

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
        total, *_ = tfm.vocabulary_loss(model, table, hidden, batch["targets"], jnp.ones(batch["targets"].shape))
        return {"loss": total, "weight": jnp.float32(batch["targets"].size)}

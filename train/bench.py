"""Times one training step: `python -m train.bench --model=bert --layers=2 --heads=2 --width=128 --vocab=8192 --batch=32 --length=128`.

The step is forward, cross entropy at every position, backward, clip at 1.0 and AdamW, waited for; on new random tokens each time,
without dropout.
"""

import dataclasses
import json
import statistics
import sys
import time

from train import UserError, config, exit_code, flags

USAGE = """usage: python -m train.bench --model=bert|gpt|seq2seq [--layers=N ...]

Prints one JSON object: milliseconds of a training step (median and least), tokens per second, parameters, the loss reached. With
--decode=N, milliseconds of a new token (of the first and the last tenth of N), with a KV cache and when the whole context is read again."""


# Tokens of the prompts that --decode goes on from.
_PROMPT = 8


@dataclasses.dataclass(frozen=True)
class Options:
    """What to time.

    model: bert | gpt | seq2seq: an encoder, the same with a causal mask, or both, of `layers` each
    layers: number of blocks
    heads: attention heads
    width: size of the residual stream
    ffn: size of the feed-forward layer; 0 means 4 * width
    vocab: number of tokens
    batch: rows
    length: tokens a row
    dtype: float32 | bfloat16
    kernel: auto | einsum | chunked | cudnn | splash: how attention is computed
    steps: timed steps
    warmup: steps before them
    scan: one compiled block for all layers
    predict: share of positions that meet the vocabulary; 1 is the same work as a plain cross entropy, 0.15 is masked language modelling
    decode: instead of training steps, tokens to add greedily to `batch` prompts of 8 tokens; at most `length` in all
    """

    model: str = "bert"
    layers: int = 4
    heads: int = 4
    width: int = 128
    ffn: int = 0
    vocab: int = 8192
    batch: int = 12
    length: int = 64
    dtype: str = "float32"
    kernel: str = "auto"
    steps: int = 60
    warmup: int = 10
    scan: bool = False
    predict: float = 1.0
    decode: int = 0

    def __post_init__(self):
        if self.decode and not (self.model == "gpt" and 10 <= self.decode <= self.length - _PROMPT):
            raise ValueError(f"decode={self.decode} needs --model=gpt, and must be at least 10 and at most --length less {_PROMPT}")
        if self.model not in ("bert", "gpt", "seq2seq"):
            raise ValueError(f"model={self.model} must be bert, gpt or seq2seq")
        if min(self.batch, self.length, self.steps) < 1 or self.warmup < 1:
            raise ValueError("batch, length, steps and warmup must be at least 1")
        if not 0 < self.predict <= 1:
            raise ValueError(f"predict={self.predict} must be above 0 and at most 1")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(bench, argv)


def bench(argv):
    """Builds the step, times it, prints the result."""
    options = flags.options(Options, USAGE, argv)
    if options is None:
        return
    model = _model(options)

    import jax

    import tfm
    from train import devices

    facts = {"peer": "tfm", "jax": jax.__version__, "model": options.model, "dtype": options.dtype}
    if options.decode:
        print(json.dumps(facts | {"device": jax.default_backend()} | _decode(options, model)))
        return
    devices.use_cores(options.batch, -1)
    try:
        times, loss = _time(options, model)
    except tfm.KernelError as error:
        raise UserError(f"--{error}") from error
    device, milliseconds = jax.devices()[0], statistics.median(times) * 1e3
    result = {
        "device": device.platform,
        "params": tfm.count(_specs(options, model)),
        "ms_median": round(milliseconds, 3),
        "ms_min": round(min(times) * 1e3, 3),
        "tokens_per_s": round(options.batch * options.length / milliseconds * 1e3),
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
        "loss": round(loss, 4),
    }
    print(json.dumps(facts | result))


def _time(options: Options, model) -> tuple[list[float], float]:
    """Seconds of each timed step, and the last loss."""
    import jax
    import numpy as np

    import tfm
    from train import optim, step
    from train.data import feed

    specs, mesh = _specs(options, model), tfm.make_mesh()
    optimizer = optim.optimizer(config.Optim(schedule="constant", warmup=1, decay=0.1, eps=1e-8), 1, specs)
    train_step = step.make_train_step(_loss(options, model), optimizer, seed=0, dropout=False)
    rng = np.random.default_rng(0)
    places = np.arange(round(options.predict * options.length), dtype=np.int32)
    times, loss = [], 0.0
    with jax.set_mesh(mesh):
        state = step.new_state(specs, optimizer, 0, mesh)
        for _ in range(options.warmup + options.steps):
            began = time.perf_counter()
            tokens, target, targets = rng.integers(options.vocab, size=(3, options.batch, options.length), dtype=np.int32)
            batch = {"tokens": tokens, "target": target, "targets": targets[:, : len(places)]}
            batch |= {"where": np.tile(places, (options.batch, 1))}
            state, sums = train_step(state, feed.put(batch, mesh))
            loss = float(sums["loss"] / sums["weight"])
            times.append(time.perf_counter() - began)
    return times[options.warmup :], loss


def _decode(options: Options, model) -> dict[str, float]:
    """Milliseconds that a token takes, with the cache and without, and how many tokens a second that is."""
    import jax
    import numpy as np

    import tfm

    params = tfm.init(tfm.causal_lm_specs(model), jax.random.key(0))
    prompts = np.random.default_rng(0).integers(options.vocab, size=(options.batch, _PROMPT), dtype=np.int32)
    read = jax.jit(lambda params, tokens, last: tfm.causal_lm(params, model, tokens)[:, last].argmax(-1))
    tenth = options.decode // 10

    def cached() -> list[float]:
        text, times = tfm.Generation(params, model, prompts, options.decode), []
        text.advance(1)
        while not text.done:
            began, before = time.perf_counter(), text.made
            text.advance(tenth)
            times += [(time.perf_counter() - began) / (text.made - before)] * (text.made - before)
        return times

    def read_again() -> list[float]:
        tokens, times = np.zeros((options.batch, options.length), np.int32), []
        tokens[:, :_PROMPT] = prompts
        for last in range(_PROMPT - 1, _PROMPT + options.decode - 1):
            began = time.perf_counter()
            tokens[:, last + 1] = read(params, tokens, last)
            times.append(time.perf_counter() - began)
        return times

    found = {}
    for name, run in {"cached": cached, "read_again": read_again}.items():
        runs = [run() for _ in range(options.warmup // 3 + 2)][1:]  # the first one compiles
        times = np.median(runs, axis=0) * 1e3
        found[f"ms_{name}"], found[f"tokens_per_s_{name}"] = round(times.mean(), 4), round(options.batch * 1e3 / times.mean())
        found |= {f"ms_{name}_first": round(times[:tenth].mean(), 4), f"ms_{name}_last": round(times[-tenth:].mean(), 4)}
    return found


def _model(options: Options):
    """The shape of the peer's model: pre-norm, tanh GELU, learned positions, tied output table."""
    try:
        return config.Config(
            layers=options.layers,
            heads=options.heads,
            width=options.width,
            ffn=options.ffn,
            vocab=options.vocab,
            length=options.length,
            token_types=0,
            dropout=0.0,
            order="pre",
            embed_norm=False,
            norm_eps=1e-5,
            activation="gelu_tanh",
            scan=options.scan,
            dtype=options.dtype,
            kernel=options.kernel,
        )
    except ValueError as error:
        raise UserError(f"--{error}") from error


def _specs(options: Options, model):
    import tfm

    return tfm.seq2seq_specs(model) if options.model == "seq2seq" else tfm.encoder_specs(model)


def _loss(options: Options, model):
    import jax.numpy as jnp

    import tfm

    def loss(params, batch, key):
        if options.model == "seq2seq":
            reader = tfm.read_source(params, model, batch["tokens"])
            hidden = tfm.decoder(reader.decoder, model, batch["target"], memory=reader.memory)
            table = reader.output
        else:
            hidden = tfm.encoder(params, model, batch["tokens"], tfm.causal() if options.model == "gpt" else None)
            table = params.embed.tokens
        if options.predict < 1:
            hidden = tfm.states_at(hidden, batch["where"])
        total, *_ = tfm.vocabulary_loss(model, table, hidden, batch["targets"], jnp.ones(batch["targets"].shape))
        return {"loss": total, "weight": jnp.float32(batch["targets"].size)}

    return loss


if __name__ == "__main__":
    sys.exit(main())

"""The catalogue of variants, generated from the classes of options: what each is, its options, what it costs, whether
it writes, and a picture of its mask."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import tfm
from tfm.config import choices, patterns
from tfm.config.mixers import Softmax
from tfm.patterns import pattern_of
from train.costs.counting import needed_flops

matplotlib.use("Agg")
from matplotlib import pyplot as plt

BASE = tfm.Config(layers=1, width=128, heads=4, vocab=1024, length=4096, dropout=0.0, scan=False, kernel="einsum")
LENGTHS = (1024, 4096)

_HINTS = choices.type_hints(tfm.Config)
SLOTS = {
    "input": ("Inputs", _HINTS["input"]),
    "mixer": ("Mixers", _HINTS["mixer"]),
    "mixer.pattern": ("Patterns of softmax attention", choices.type_hints(Softmax)["pattern"]),
    "position": ("Positions", _HINTS["position"]),
    "residual": ("Residuals", _HINTS["residual"]),
}

# Options with which a mask of 32 positions shows what its pattern is.
PICTURED = {
    "full": patterns.Full(),
    "local": patterns.Local(block=8),
    "local, two blocks": patterns.Local(block=8, neighbours=1),
    "sliding": patterns.Sliding(window=5),
    "sliding, dilated": patterns.Sliding(window=9, dilation=3),
    "strided": patterns.Strided(stride=6),
    "fixed": patterns.Fixed(block=8, summary=2),
    "global": patterns.Global(window=5, tokens=2),
    "bigbird": patterns.BigBird(block=4, random=1),
}


def write(path: Path) -> None:
    """Writes the catalogue."""
    lines = ["# Catalogue of variants", "", *_introduction(), ""]
    for slot, (title, union) in SLOTS.items():
        lines += [f"## {title}", ""]
        for tag, cls in choices.alternatives(union).items():
            lines += [f"### `--model.{slot}={tag}`", "", *_entry(slot, tag, cls), ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def _introduction() -> list[str]:
    sizes = f"a layer of width {BASE.width} with {BASE.heads} heads"
    return [
        "Generated from the code. Costs are those of " + sizes + ": its parameters, and the multiplications and",
        "additions of a forward pass over one text, its feed-forward layer included.",
        "",
        "![What a query sees](../pictures/masks.png)",
        "",
        "[Variants](../variants.md) says more about them.",
    ]


def _entry(slot: str, tag: str, cls: type) -> list[str]:
    """The lines of one variant."""
    text = (cls.__doc__ or "").split("\n\n")[0]
    config = _config(slot, tag)
    return [" ".join(text.split()), "", *_options(slot, cls), "", *_costs(config)]


def _options(slot: str, cls: type) -> list[str]:
    """A table of options: name, default, meaning."""
    texts = _field_texts(cls)
    fields = [field for field in dataclasses.fields(cls) if field.name in texts and field.init]
    if not fields:
        return []
    rows = [
        f"| `--model.{slot}.{field.name.replace('_', '-')}` | {_default(field)} | {texts[field.name]} |"
        for field in fields
    ]
    return ["| option | default | what |", "|---|---|---|", *rows]


def _field_texts(cls: type) -> dict[str, str]:
    """What the docstring of a class says of each field."""
    texts: dict[str, str] = {}
    names = {field.name for field in dataclasses.fields(cls)}
    for line in (cls.__doc__ or "").partition("\n\n")[2].splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and name in names:
            texts[name] = text
        elif texts and line.strip():
            last = list(texts)[-1]
            texts[last] += " " + line.strip()
    return {name: text.replace("|", "\\|") for name, text in texts.items()}


def _default(field: dataclasses.Field) -> str:
    value = field.default
    if dataclasses.is_dataclass(value):
        return f"`{getattr(value, 'name', type(value).__name__)}`"
    return f"`{str(value).lower() if isinstance(value, bool) or value is None else value}`"


def _config(slot: str, tag: str) -> tfm.Config | None:
    """A model of the variant; None where it needs more than its tag."""
    for extra in ({}, {"input.norm": False}, {"position": "none"}):
        try:
            return tfm.override(BASE, {slot: tag} | extra)
        except ValueError:
            continue
    return None


def _costs(config: tfm.Config | None) -> list[str]:
    """Parameters and operations of a layer, and how it is used."""
    if config is None or config.input.grid:
        return []
    specs = tfm.encoder_specs(config)
    params = tfm.abstract(specs)
    operations = [_operations(config, params, length) for length in LENGTHS]
    rows = [
        ("parameters of a layer", f"{tfm.count_params(specs.layers):,}"),
        *(
            (f"operations of {length:,} tokens", f"{count / 1e9:.2f} billion" if count else "-")
            for length, count in zip(LENGTHS, operations, strict=True)
        ),
        *_blocks(config),
        ("reads from left to right", _answer(lambda: _decoder(config, params))),
        ("writes", _answer(lambda: _prefill(config, params))),
        ("several texts may share a row", "yes" if config.reads_packed else "no"),
    ]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def _blocks(config: tfm.Config) -> list[tuple[str, str]]:
    """How many blocks of scores a pattern leaves."""
    if not isinstance(config.mixer, Softmax) or config.mixer == Softmax():
        return []
    mask = pattern_of(config.mixer.pattern).mask(config.mixer.pattern, config, False)
    if mask is None:
        return []
    length = LENGTHS[-1]
    share = mask.blocks(64, 64, length, length).mean()
    return [(f"blocks of 64 x 64 scores that are computed, {length:,} tokens", f"{share:.1%}")]


def _operations(config: tfm.Config, params: Any, length: int) -> int | None:
    """Operations of a forward pass; None for a variant that reads from left to right alone."""
    tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
    for model in (tfm.encoder, tfm.decoder):
        try:
            return needed_flops(lambda params, tokens, model=model: model(params, config, tokens), params, tokens)
        except ValueError:
            continue
    return None


def _answer(trace) -> str:
    """Whether a program can be traced."""
    try:
        jax.eval_shape(trace)
    except ValueError:
        return "no"
    return "yes"


def _decoder(config: tfm.Config, params: Any):
    return tfm.decoder(jax.tree.map(jnp.zeros_like, params), config, jnp.zeros((1, 64), jnp.int32))


def _prefill(config: tfm.Config, params: Any):
    tokens, starts = jnp.zeros((1, 64), jnp.int32), jnp.zeros((1,), jnp.int32)
    return tfm.prefill(jax.tree.map(jnp.zeros_like, params), config, tokens, starts, 128)


def draw_masks(path: Path, count: int = 32) -> None:
    """A picture of masks: a row is a query; what it sees in a decoder is dark, and in an encoder alone pale."""
    figure, axes = plt.subplots(2, 5, figsize=(12.5, 5.4))
    for axis, (title, options) in zip(axes.flat, PICTURED.items(), strict=False):
        both = _dense(options, False, count)
        causal = _dense(options, True, count) & np.tril(np.ones((count, count), bool))
        _show(axis, title, both, causal)
    packed = np.asarray(tfm.segments(jnp.array([[1] * 12 + [2] * 14 + [3] * 6])).dense(count)[0])
    _show(axes.flat[-1], "three texts in a row", packed, np.tril(packed))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _show(axis: Any, title: str, both: np.ndarray, causal: np.ndarray) -> None:
    """One mask: what an encoder sees, and what a decoder sees."""
    axis.imshow(np.maximum(0.3 * both, causal), cmap="Blues", vmin=0, vmax=1.15)
    axis.set(title=title, xticks=[], yticks=[])


def _dense(options: Any, causal: bool, count: int) -> np.ndarray:
    """The mask of a pattern, bool [T,T]."""
    mask = pattern_of(options).mask(options, BASE, causal)
    return np.ones((count, count), bool) if mask is None else np.asarray(mask.dense(count)[0])


if __name__ == "__main__":
    draw_masks(Path(__file__).parent / "pictures" / "masks.png")

"""The catalogue of variants, generated from the classes of options: what each is, its options, what it costs, whether
it writes, and a picture of its mask. `python docs/catalogue_page.py` counts them."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mask_pictures

import tfm
from tfm.config.heads import Head
from tfm.config.mixers import Softmax
from tfm.config.stages import Stage
from tfm.config.towers import ImageTower
from tfm.options import choices
from tfm.tables.patterns import pattern_of
from train.planning.counting import needed_flops

BASE = tfm.Config(layers=1, width=128, heads=4, vocab=1024, length=4096, dropout=0.0, scan=False, kernel="einsum")
LENGTHS = (1024, 4096)

# What some variants need beside their tag: the first of these with which a model can be computed.
GRID = {"input": "patches", "input.cls": False}
BESIDE: tuple[dict[str, Any], ...] = (
    *({}, {"input.norm": False}, {"position": "none"}, {"tie_embeddings": False}),
    *(GRID, {"input": "patches"}, GRID | {"mixer.pattern": "windows"}),
)

_HINTS = choices.type_hints(tfm.Config)

# Slots whose tags have options of their own, and a file each.
SLOTS = {
    "input": ("Inputs", _HINTS["input"]),
    "mixer": ("Mixers", _HINTS["mixer"]),
    "mixer.pattern": ("Patterns of softmax attention", choices.type_hints(Softmax)["pattern"]),
    "position": ("Positions", _HINTS["position"]),
    "residual": ("Residuals", _HINTS["residual"]),
    "feed_forward": ("Feed-forward layers", _HINTS["feed_forward"]),
}

# Slots that are a choice of words, and the class that explains them.
WORDS: dict[str, tuple[str, type]] = {
    "mixer.score": ("Scores of softmax attention", Softmax),
    "norm": ("Norms", tfm.Config),
}

# Parts of a model that have options and no tags: title, class, and models whose costs show what they are.
PARTS: dict[str, tuple[str, type, dict[str, dict[str, Any]]]] = {
    "head": ("Heads", Head, {"a head of two classes": {}, "without its first linear map": {"head.dense": False}}),
    "stages": ("Stages", Stage, {"a layer alone": GRID, "a layer, and a stage of two": GRID | {"stages": 1}}),
    "images": ("Towers of images", ImageTower, {"two layers of width 128": {"images": "tower"}}),
}


def count() -> dict[str, int]:
    """How many variants each slot has, by slot."""
    return {slot: len(choices.alternatives(union)) for slot, (_, union) in SLOTS.items()}


def write(path: Path) -> None:
    """Writes the catalogue, and its pictures into the folder `masks` beside it."""
    lines = ["# Catalogue of variants", "", *_introduction(), ""]
    for slot, (title, union) in SLOTS.items():
        lines += [f"## {title}", ""]
        for tag, cls in choices.alternatives(union).items():
            lines += [f"### `--model.{slot}={tag}`", "", *_entry(slot, tag, cls), ""]
            if slot == "mixer.pattern":
                mask_pictures.draw_pattern(tag, path.parent / "masks" / f"{tag}.png")
                lines += [f"![What a query sees with {tag}](masks/{tag}.png)", ""]
    for slot, (title, cls) in WORDS.items():
        lines += [f"## {title}", "", *_words(slot, cls), ""]
    for slot, (title, cls, models) in PARTS.items():
        lines += [f"## {title}", "", _first_paragraph(cls), "", *_options(slot, cls), "", *_models(slot, models), ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def _introduction() -> list[str]:
    sizes = f"a layer of width {BASE.width} with {BASE.heads} heads"
    counts = ", ".join(f"{variants} of `{slot}`" for slot, variants in count().items())
    return [
        f"{sum(count().values())} variants: {counts}.",
        "",
        f"Generated from the code. Costs are those of {sizes}: its parameters, and the multiplications and additions",
        "of a forward pass over one text or one image, the feed-forward layer included.",
        "",
        "In a picture of a mask, a row is a query and a column is a key. Dark: a decoder and an encoder see the key.",
        "Pale: an encoder alone sees it.",
        "",
        "[Variants](../variants.md) says more about them.",
    ]


def _entry(slot: str, tag: str, cls: type) -> list[str]:
    """The lines of one variant."""
    return [_first_paragraph(cls), "", *_options(slot, cls), "", *_costs(_config(slot, tag))]


def _first_paragraph(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def _options(slot: str, cls: type) -> list[str]:
    """A table of options: name, default, meaning."""
    texts = _field_texts(cls)
    fields = [field for field in dataclasses.fields(cls) if field.name in texts and field.init]
    if not fields:
        return []
    first = f"{slot}.0" if slot == "stages" else slot
    rows = [
        f"| `--model.{first}.{field.name.replace('_', '-')}` | {_default(field)} | {texts[field.name]} |"
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


def _words(slot: str, cls: type) -> list[str]:
    """A slot that is a choice of words: what they mean, and a table of what each costs."""
    field = slot.rpartition(".")[2]
    lines = [f"`--model.{slot}=`: {_field_texts(cls)[field]}.", ""]
    return lines + _table({f"`{word}`": _config(slot, word) for word in choices.choices_of(cls, field)})


def _models(slot: str, models: dict[str, dict[str, Any]]) -> list[str]:
    """What models with such a part cost."""
    configs = {title: tfm.override(BASE, changes) for title, changes in models.items()}
    if slot == "images":
        return _table({title: config.in_images() for title, config in configs.items()})
    if slot == "head":
        return [
            "| | parameters |",
            "|---|---|",
            *(f"| {title} | {_head(config):,} |" for title, config in configs.items()),
        ]
    return _table(configs)


def _config(slot: str, tag: str) -> tfm.Config | None:
    """A model of the variant that can be computed; None for one that is only a part of others."""
    return next((config for config in _candidates(slot, tag) if _operations(config, _lengths(config)[0])), None)


def _candidates(slot: str, tag: str) -> Iterator[tfm.Config]:
    for beside in BESIDE:
        try:
            yield tfm.override(BASE, {slot: tag} | {name: value for name, value in beside.items() if name != slot})
        except ValueError:
            continue


def _head(config: tfm.Config) -> int:
    """Parameters of the head of a classifier."""
    return tfm.count_params(tfm.classifier_specs(config)) - tfm.count_params(tfm.encoder_specs(config))


def _costs(config: tfm.Config | None) -> list[str]:
    """Parameters and operations of a layer, and how it is used."""
    return (
        [] if config is None else ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in _facts(config))]
    )


def _facts(config: tfm.Config) -> Iterator[tuple[str, str]]:
    """The lines of `_costs`: a name and a value."""
    params = tfm.abstract(tfm.encoder_specs(config))
    yield "parameters of a layer", f"{tfm.count_params(tfm.encoder_specs(config).layers):,}"
    for length in _lengths(config):
        operations = _operations(config, length)
        yield f"operations of {_read(config, length)}", f"{operations / 1e9:.2f} billion" if operations else "-"
    yield from _blocks(config)
    if config.input.array_shape is None:
        yield "reads from left to right", _answer(lambda: _decoder(config, params))
        yield "writes", _answer(lambda: _prefill(config, params))
        yield "several texts may share a row", "yes" if config.reads_packed else "no"


def _table(configs: dict[str, tfm.Config | None]) -> list[str]:
    """A row of parameters and operations for each model."""
    rows = []
    for title, config in configs.items():
        assert config is not None, f"{title} cannot be computed"
        length = _lengths(config)[0]
        operations = (_operations(config, length) or 0) / 1e9
        rows.append(f"| {title} | {_all_layers(config):,} | {operations:.2f} billion, {_read(config, length)} |")
    return ["| | parameters of all layers | operations |", "|---|---|---|", *rows]


def _all_layers(config: tfm.Config) -> int:
    """Parameters of all stages, without what the model reads with."""
    specs = tfm.encoder_specs(config)
    return tfm.count_params(specs) - tfm.count_params(specs.embed)


def _lengths(config: tfm.Config) -> tuple[int, ...]:
    """The texts, or the one image or sound, that are counted."""
    return LENGTHS if config.input.array_shape is None else (config.input.max_length(config),)


def _read(config: tfm.Config, length: int) -> str:
    """What is counted, in words."""
    if config.input.suffix:
        return f"{length:,} tokens and an image of {' x '.join(map(str, config.input.pixels[:2]))} pixels"
    if config.input.array_shape is None:
        return f"{length:,} tokens"
    if len(config.input.array_shape) == 2:
        return f"{config.input.array_shape[0]:,} frames"
    *frames, height, width, _ = config.input.array_shape
    if frames:
        return f"a video of {frames[0]} frames of {height} x {width} pixels"
    return f"an image of {height} x {width} pixels"


def _blocks(config: tfm.Config) -> Iterator[tuple[str, str]]:
    """How many blocks of scores a pattern leaves."""
    if not isinstance(config.mixer, Softmax) or config.mixer.pattern == Softmax().pattern:
        return
    length = _lengths(config)[-1]
    mask = pattern_of(config.mixer.pattern).mask(config.mixer.pattern, config, False)
    if mask is not None and config.input.grid is None:
        share = mask.blocks(64, 64, length, length).mean()
        yield f"blocks of 64 x 64 scores that are computed, {length:,} tokens", f"{share:.1%}"


@functools.cache
def _operations(config: tfm.Config, length: int) -> int | None:
    """Operations of a forward pass; None for a model that cannot be computed."""
    params = tfm.abstract(tfm.encoder_specs(config))
    rows: Any = jax.ShapeDtypeStruct((1, length), jnp.int32)
    if config.input.suffix:
        rows = tfm.PicturedTokens(rows, jax.ShapeDtypeStruct((1, *config.input.pixels), jnp.float32))
    if config.input.array_shape is not None:
        rows = jax.ShapeDtypeStruct((1, *config.input.array_shape), jnp.float32)
    for model in (tfm.encoder, tfm.decoder):
        try:
            return needed_flops(lambda params, rows, model=model: model(params, config, rows), params, rows)
        except (ValueError, TypeError):
            continue
    return None


def _answer(trace: Callable[[], Any]) -> str:
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


if __name__ == "__main__":
    print(f"{sum(count().values())} variants:", *(f"{variants} {slot}," for slot, variants in count().items()))

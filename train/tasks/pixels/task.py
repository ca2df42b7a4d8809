"""Pictures, pixel by pixel: predict the colour of every pixel from those before it (ImageGPT: Chen et al. 2020).

A picture of n pixels, row by row from the top, is tokens of a palette, behind a start token (|):

    tokens     int32 [B,n]     | a b c
    targets    int32 [B,n]     a b c d      the pixel that comes next
    weights    float32 [B,n]   1 1 1 1      0 in an empty row
    withheld   float32 [B]     1 for a built-in drawing whose colour and shape never meet in training

A dimension is a pixel: its bits are those of its colour in the palette.
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array

import tfm
from train import UserError
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.labels import label_checker
from train.files import cache
from train.images import completion, drawings, palette, sheets, sources
from train.images.palette import IMAGE_PROCESSOR, AnyProcessor, PaletteProcessor
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.losses.teaching import OutputLoss, TokenOutputs
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.pixels.options import NextPixel
from train.tasks.pixels.rows import PixelRows
from train.tasks.record import Saved, Task

# Training pictures that a palette is made from.
_PALETTE_PICTURES = 2000


def specs(run: Run[NextPixel]) -> tfm.CausalLM:
    """The parameters of the run's model."""
    return tfm.causal_lm_specs(run.model)


def batch_spec(run: Run[NextPixel]) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    sizes = {"T": run.row_tokens}
    return {
        "tokens": Field("BT", np.int32, sizes, counts_tokens=True),
        "targets": Field("BT", np.int32, sizes, predicts="V"),
        "weights": Field("BT", np.float32, sizes, weighs=True, order=("tokens", 1)),
        "withheld": Field("B", np.float32),
    }


def outputs(params: tfm.CausalLM, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> TokenOutputs:
    """What the model says of the next pixels of a batch."""
    hidden = tfm.decoder(params.decoder, model, batch["tokens"], key=key)
    return TokenOutputs(hidden, None, tfm.lm_features(model, hidden), model, params.output, params.bias)


def sums(
    params: tfm.CausalLM, model: tfm.Config, batch: Mapping[str, Array], outputs: TokenOutputs
) -> dict[str, Array]:
    """Sums over the pixels of a batch, float32: `loss` in nats, `weight`, `right`, and those of withheld drawings."""
    weights, withheld = batch["weights"], batch["withheld"]
    total, losses, hits = tfm.vocabulary_loss(
        model, outputs.table, outputs.features, batch["targets"], weights, bias=outputs.bias
    )
    return {
        "loss": total,
        "weight": weights.sum(),
        "right": (hits * weights).sum(),
        "withheld_loss": (losses.sum(1) * withheld).sum(),
        "withheld": withheld.sum() * weights.shape[1],
    }


loss = OutputLoss(outputs, sums)


def metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats, the same in bits, and accuracy, of a pixel; bits of withheld drawings apart."""
    weight = max(sums["weight"], 1)
    loss = sums["loss"] / weight
    means = {"loss": loss, "bits_per_dim": loss / math.log(2), "accuracy": sums["right"] / weight}
    if sums["withheld"]:
        means["bits_per_dim_withheld"] = sums["withheld_loss"] / sums["withheld"] / math.log(2)
    return means


def load(run: Run[NextPixel], log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[PixelRows]:
    """Palette and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training pictures if --eval-data names others for validation. Raises UserError for bad
    data, and for a processor without a palette or of another shape than the model's.
    """
    reader = sources.PictureReader(run.data.field, run.data.label, label_checker("single", ["label"]))
    train, valid = sources.load(run.data, reader, partial(drawings.builtin, run.data.label), log, valid_only)
    processor = _checked(saved.processor if saved else _processor(run, train, log), run)
    train_rows, valid_rows = (
        PixelRows(ImageRows(rows, np.zeros(len(rows), np.int32), processor, run.row_tokens), processor)
        for rows in (train, valid)
    )
    digests = [[row["digest"] for row in rows] for rows in (train, valid)]
    facts = {"hash": cache.digest(*digests), "segmentation_hash": "", "colours": len(processor.clusters)}
    sizes = {"vocab": processor.start + 1}
    return Corpus(run, processor, [train_rows] if train else [], valid_rows, sizes, facts)


def _processor(run: Run[NextPixel], train: list[dict[str, Any]], log: Log) -> PaletteProcessor:
    """A processor with a palette of the training pictures."""
    task, side = run.task, math.isqrt(run.model.length)
    plain = ImageProcessor((side, side), resample=task.resample)
    rng = np.random.default_rng(run.seed)
    rows = rng.choice(len(train), min(_PALETTE_PICTURES, len(train)), replace=False)
    images = ImageRows([train[row] for row in rows], np.zeros(len(rows), np.int32), plain, run.row_tokens)
    pictures = images.pixels(np.arange(len(rows)))
    colours = palette.fit(list(pictures), task.colours, task.grey, rng)
    if len(colours) < 2:
        raise UserError(f"the pictures of --data={run.data.source} have one colour, which predicts nothing; add others")
    log.info(f"a palette of {len(colours)} {'greys' if task.grey else 'colours'}, from {len(rows):,} pictures")
    return palette.palette_processor(side, colours, task.resample)


def _checked(processor: AnyProcessor, run: Run[NextPixel]) -> PaletteProcessor:
    """The processor. Raises UserError for one without a palette, or of another shape than the model's."""
    if not isinstance(processor, PaletteProcessor):
        raise UserError("--init has no palette of colours; name a run of --task=pixels, or train without --init")
    if math.prod(processor.shape) != run.row_tokens:
        raise UserError(
            f"the model reads {run.row_tokens:,} pixels, and the processor of --init makes "
            f"{math.prod(processor.shape):,}; leave --model.length out, or train without --init"
        )
    return processor


def baselines(corpus: Corpus[PixelRows]) -> dict[str, float]:
    """`unigram_bits_per_dim`: bits of a pixel by the frequencies of validation colours alone; `n`: pictures."""
    rows = np.flatnonzero(~corpus.valid.images.withheld).tolist()
    size = corpus.processor.start
    counts = np.zeros(size, np.int64)
    for row in rows:
        counts = counts + np.bincount(corpus.valid.picture(row), minlength=size)
    shares = counts[counts > 0] / counts.sum()
    return {"unigram_bits_per_dim": float(-(shares * np.log2(shares)).sum()), "n": len(rows)}


def draw_progress(params: tfm.CausalLM, run: Run[NextPixel], corpus: Corpus[PixelRows], folder: Path):
    """Draws plots/samples.png, and plots/completions.png of halves of validation pictures."""
    count, plots = run.task.samples, folder / "plots"
    if not count:
        return
    plots.mkdir(parents=True, exist_ok=True)
    completion.draw_samples(params, run.model, corpus.processor, count, plots / "samples.png")
    rows = range(min(len(corpus.valid), (count + 1) // 2))
    originals = np.stack([corpus.valid.picture(row) for row in rows])
    completion.draw_completions(params, run.model, corpus.processor, originals, plots / "completions.png")


def report(
    params: tfm.CausalLM,
    run: Run[NextPixel],
    corpus: Corpus[PixelRows],
    log: Log,
    outcomes: Mapping[str, Any],
    folder: Path,
):
    """Draws what the model makes and completes."""
    draw_progress(params, run, corpus, folder)
    if run.task.samples:
        log.info("plots/samples.png are pictures of the model, plots/completions.png complete halves of pictures")


def contact_sheet(batches, corpus: Corpus[PixelRows], rows: int, path: Path):
    """Draws the first rows of batches in the colours of the palette."""
    tokens = np.concatenate([batch["targets"][:rows] for batch in batches])
    sheets.contact_sheet(corpus.processor.restore(tokens), [""] * len(tokens), path)


PIXELS = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min, "bits_per_dim": min, "accuracy": max},
    baselines=baselines,
    report=report,
    processor=IMAGE_PROCESSOR,
    next_commands=(
        "generate --run={folder} --complete=YOUR.png --n=4 --to=out.png",
        "evaluate --run={folder} --data=YOUR/FOLDER",
        "main --task=image --init={folder} --tune=head",
    ),
    generates="pictures",
    draw_progress=draw_progress,
    contact_sheet=contact_sheet,
    hf_heads=("pixels",),
)

"""Vectors of pictures and of captions, by contrast with all others of a batch (Radford et al. 2021; Zhai et al. 2023).

`--task=contrast` is this file where the model has a tower of images. A row is a picture and its caption:

    pixels     float32 [B,h,w,c]   normalized as preprocessor_config.json of the run folder says
    tokens     [CLS] a small red circle [SEP] [PAD]     [B,T]
    valid          1 1     1   1      1     1     0     [B,T], 0 is padding
    weights    float32 [B]         0 for an empty row
    withheld   float32 [B]         1 for a built-in drawing whose colour and shape never meet in training
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train import UserError
from train.data.corpus import Corpus
from train.data.fields import Field
from train.data.sources.files import Row
from train.data.tokens import PLAIN, Segmentation, encode, segmentation_hash, segmentations
from train.files import cache
from train.images import drawings, sheets, sources
from train.images.model_processor import image_tokens, picture_shape
from train.images.rows import ImageRows
from train.losses.joint import JointLoss
from train.metrics.retrieval import alignment, as_right, both_retrievals, uniformity, usual_and_withheld
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.captions.predict import PREDICTOR, encode_items
from train.tasks.captions.rows import CAPTION_PROCESSOR, CaptionRows, processor_of, until_end
from train.tasks.record import HfSource, Saved, Task
from train.text import tokenize

# Pictures and captions of plots/similarity.png.
_SHOWN = 10


def specs(run: Run) -> tfm.Towers:
    """The parameters of the run's model."""
    return tfm.towers_specs(run.model)


def batch_spec(run: Run) -> dict[str, Field]:
    """The fields of a batch, explained at the top of this file."""
    images = run.model.in_images()
    shape = dict(zip("hwc", picture_shape(images), strict=True))
    return {
        "tokens": Field("BT", np.int32, counts_tokens=True),
        "valid": Field("BT", np.int32),
        "pixels": Field("Bhwc", np.float32, shape, counts_tokens=True, row_tokens=image_tokens(images)),
        "weights": Field("B", np.float32, weighs=True),
        "withheld": Field("B", np.float32),
        "contents": Field("Bn", np.int32, {"n": 2}),
    }


def encode_rows(params: tfm.Towers, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> Array:
    """Vectors of the pictures and the captions of a batch, float32 [B,2,D] of length 1."""
    image_key, text_key = (None, None) if key is None else jax.random.split(key)
    images = tfm.image_vectors(params, model, batch["pixels"], key=image_key)
    texts = tfm.text_vectors(params, model, batch["tokens"], batch["valid"] > 0, key=text_key)
    return jnp.stack([images, texts], axis=1)


def compare(params: tfm.Towers, vectors: Array, batch: Mapping[str, Array]) -> dict[str, Array]:
    """vectors [P,B,2,D], fields [P,B,...] -> sums over all rows, float32: `loss` in nats, `weight`, `right` (the right
    caption is the nearest), and `scale`, the factor of cosines.

    For evaluation also the vectors, weights, `withheld` and `contents` of the rows of one part.
    """
    weights, contents = batch["weights"], batch["contents"]
    images, texts = vectors[:, :, 0], vectors[:, :, 1]
    if params.bias is None:
        losses, is_right = tfm.symmetric_losses(images, texts, weights > 0, params.log_scale, contents)
    else:
        losses, is_right = tfm.sigmoid_losses(images, texts, weights > 0, params.log_scale, params.bias, contents)
    return {
        "loss": (losses * weights).sum(),
        "weight": weights.sum(),
        "right": (is_right.astype(jnp.float32) * weights).sum(),
        "scale": jnp.exp(params.log_scale) * weights.sum(),
        "vectors": vectors[0],
        **{name: batch[name][0] for name in ("weights", "withheld", "contents")},
    }


loss = JointLoss(encode_rows, compare)


def metrics(sums: Mapping[str, Any]) -> dict[str, float]:
    """Means from sums; with the `vectors` of all rows also how evenly those of pictures lie."""
    weight = max(sums["weight"], 1)
    names = {"loss": "loss", "right": "accuracy", "scale": "scale"}
    means = {name: sums[total] / weight for total, name in names.items()}
    if "vectors" in sums:
        means["uniformity"] = uniformity(sums["vectors"][sums["weights"] > 0, 0])
    return means


def corpus_metrics(outputs: Mapping[str, Any], corpus: Corpus[CaptionRows], during_training: bool) -> dict[str, float]:
    """How often the right caption of a picture is the nearest, and the other way round; drawings with withheld pairs
    apart. Of a picture with several captions each is right, and of a caption with several pictures."""
    results: dict[str, float] = {}
    vectors, contents = outputs["vectors"], outputs["contents"]
    for name, rows in usual_and_withheld(outputs["weights"], outputs["withheld"]):
        images, texts = vectors[rows, 0], vectors[rows, 1]
        values = both_retrievals(images, texts, corpus.run.task.candidates, contents[rows])
        values["alignment"] = alignment(images, texts)
        results |= {f"{metric}{name}": value for metric, value in values.items()}
    return results


def load(run: Run, log: Log, saved: Saved | None = None, valid_only: bool = False) -> Corpus[CaptionRows]:
    """Processor and rows as the run describes them; `saved` are processor and facts of the run to resume or start from.

    `valid_only` leaves out the training pictures if --eval-data names others for validation. Raises UserError for a
    processor of another shape than the model's, and for bad data.
    """
    reader = sources.PictureReader(run.data.field, run.data.label, check_caption, several=True)
    train, valid = sources.load(run.data, reader, partial(drawings.builtin, run.data.label), log, valid_only)
    check_captions([*train, *valid], run)
    processor = processor_of(run, run.model.in_images(), [row["label"] for row in train], saved, log)

    def rows_of(rows: Sequence[Row], name: str, segmentation: Segmentation = PLAIN) -> CaptionRows:
        images = ImageRows(rows, np.zeros(len(rows), np.int32), processor.images, image_tokens(run.model.in_images()))
        texts = encode(processor.tokenizer, [row["label"] for row in rows], log, name, segmentation)
        texts = until_end(texts, processor.tokenizer, run.model)
        return CaptionRows(images, texts, processor.tokenizer, run.batch.length)

    train_rows = [rows_of(train, "captions", split) for split in segmentations(run)] if train else []
    for part in train_rows:
        part.images.train_with(part.images.loss, run.task.augment)
    facts = {
        "tokenizer": tokenize.fingerprint(processor.tokenizer),
        "hash": cache.digest(*([f"{row['digest']} {row['label']}" for row in rows] for rows in (train, valid))),
        "segmentation_hash": segmentation_hash(run, (part.captions for part in train_rows)),
        "train_rows": len(train),
        "eval_rows": len(valid),
    }
    sizes = {"vocab": processor.tokenizer.get_vocab_size()}
    return Corpus(run, processor, train_rows, rows_of(valid, "validation captions"), sizes, facts)


def check_caption(caption: Any):
    """Raises ValueError for what is no caption."""
    if not isinstance(caption, str) or not caption.strip():
        raise ValueError(f"the caption {caption!r} says nothing; write one, or leave the row out")


def check_captions(rows: Sequence[Row], run: Run):
    """Raises UserError for pictures that all have the same caption: there is nothing to tell apart."""
    captions = {row["label"] for row in rows}
    if len(captions) == 1 and len(rows) > 1:
        raise UserError(
            f"every picture of --data={run.data.source} has the caption {captions.pop()!r}; name a table of pictures "
            "and captions, such as --data=FILE.tsv --data.field=image --data.label=caption"
        )


def baselines(corpus: Corpus[CaptionRows]) -> dict[str, float]:
    """`chance`: how often a guess is the right caption; `n`: the number of rows."""
    usual = int((~corpus.valid.images.withheld).sum()) or len(corpus.valid)
    return {"chance": 1 / min(corpus.run.task.candidates or usual, usual), "n": len(corpus.valid)}


def report(
    params: tfm.Towers,
    run: Run,
    corpus: Corpus[CaptionRows],
    log: Log,
    outcomes: Mapping[str, np.ndarray],
    folder: Path,
):
    """Prints ten validation captions, each with the nearest caption of its picture, and draws plots/similarity.png."""
    rows = np.flatnonzero(outcomes["weights"] > 0)
    chosen = rows[:: max(1, len(rows) // _SHOWN)][:_SHOWN]
    images, texts = (outcomes["vectors"][:, side] for side in (0, 1))
    captions = [corpus.processor.tokenizer.decode(corpus.valid.captions[row].tolist()) for row in rows]
    cosines = images[chosen] @ texts[rows].T
    are_right = as_right(outcomes["contents"][chosen], outcomes["contents"][rows])
    for row, nearest, is_right, cosine in zip(chosen, cosines.argmax(1), are_right, cosines.max(1), strict=True):
        verdict = "right" if is_right[nearest] else f"not {captions[np.searchsorted(rows, row)]}"
        log.info(f"{captions[nearest]} {cosine:.4f} ({verdict})")
    titles = [captions[place] for place in np.searchsorted(rows, chosen)]
    pictures, path = corpus.valid.images.pixels(chosen), folder / "plots" / "similarity.png"
    sheets.similarities(pictures, titles, texts[chosen] @ images[chosen].T, path)
    log.info(f"cosines of {len(chosen)} pictures and captions: plots/similarity.png")


def contact_sheet(batches: Iterable[Mapping[str, np.ndarray]], corpus: Corpus[CaptionRows], rows: int, path: Path):
    """Draws the first rows of batches as the model sees them, each under its caption as the tokenizer decodes it."""
    decode, pictures, titles = corpus.processor.tokenizer.decode, [], []
    for batch in batches:
        pictures.append(corpus.processor.images.restore(batch["pixels"][:rows]))
        for tokens, valid in zip(batch["tokens"][:rows], batch["valid"][:rows], strict=True):
            titles.append(sheets.wrapped(decode(tokens[valid > 0].tolist())))
    sheets.contact_sheet(np.concatenate(pictures), titles, path)


def hf_run_values(head: str, folder: HfSource) -> dict[str, Any]:
    """Options of a run that could have trained a Hugging Face model: the columns of pictures and captions."""
    return {"data.field": "image", "data.label": "caption"}


def hf_template(run: Run, tokenizer: Any) -> tuple[str, ...]:
    """The tokenizer marks captions itself."""
    return ()


CAPTIONS = Task(
    specs=specs,
    batch_spec=batch_spec,
    load=load,
    loss=loss,
    metrics=metrics,
    goals={"loss": min} | dict.fromkeys(("accuracy", "retrieval_1", "retrieval_5"), max),
    baselines=baselines,
    report=report,
    processor=CAPTION_PROCESSOR,
    next_commands=(
        "predict --run={folder} --file='YOUR/*.jpg' --labels='a cat,a dog'",
        "embed --run={folder} --file='YOUR/*.jpg' --to=vectors.npy --query='YOUR TEXT'",
        "evaluate --run={folder} --data=YOUR.tsv",
    ),
    corpus_metrics=corpus_metrics,
    predictor=PREDICTOR,
    contact_sheet=contact_sheet,
    encode_items=encode_items,
    hf_heads=("towers",),
    hf_run_values=hf_run_values,
    hf_template=hf_template,
)

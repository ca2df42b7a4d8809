"""Pictures of train.generate: from nothing, or completed from the upper part of a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train import UserError
from train.generation.options import FILTERS, GenerateOptions
from train.runs.weights import as_weights

if TYPE_CHECKING:
    import tfm
    from train.images.palette import PaletteProcessor
    from train.runs.hf_folder import HfFolder
    from train.runs.run_folder import RunFolder
    from train.screens.console import Log


# The flags that pictures have, beside those of a strategy.
_FLAGS = {*"run complete keep n to average weights batch strategy temperature seed".split(), *FILTERS}

# Pictures of one sheet.
_SHEET = 512


def write(folder: "RunFolder | HfFolder", options: GenerateOptions, explicit: Mapping[str, object], strategy: str):
    """Makes pictures and draws them on a sheet, --to=FILE.png. Raises UserError for flags of texts and bad files."""
    foreign = sorted(set(explicit) - _FLAGS)
    if foreign or strategy == "beam":
        flag = foreign[0].replace("_", "-") if foreign else "strategy=beam"
        raise UserError(f"--{flag} is for texts, and --run={options.run} makes pictures; leave it out")
    to = Path(options.to)
    if to.suffix != ".png" or not to.absolute().parent.is_dir():
        raise UserError(f"--to={options.to} cannot be drawn; name a file that ends in .png, in a folder that is there")

    from train.images import completion, sheets
    from train.screens.console import Log

    processor = folder.processor
    originals = _originals(options.complete, processor)
    if options.n * max(1, len(originals)) > _SHEET:
        raise UserError(f"--n={options.n} of {max(1, len(originals))} pictures are more than the {_SHEET} of a sheet")
    log = Log()
    beginnings = [completion.kept_part(tokens, processor, options.keep) for tokens in originals] or [np.zeros(0, int)]
    params = as_weights(options.weights, folder, folder.load(log=log.info, average=options.average), log)
    samples = _sampled(
        params, folder, options, explicit, strategy, [row for row in beginnings for _ in range(options.n)], log
    )
    pictures, titles = [], []
    for index in range(len(beginnings)):
        if originals:
            pixels = processor.restore(originals[index])
            pictures += [pixels, completion.masked(pixels, len(beginnings[index]))]
            titles += ["picture", "kept"]
        pictures += [*samples[index * options.n : (index + 1) * options.n]]
        titles += [""] * options.n
    sheets.contact_sheet(np.stack(pictures), titles, to, columns=2 + options.n if originals else None)
    log.info(f"saved in {to}")


def _originals(pattern: str, processor: "PaletteProcessor") -> list[np.ndarray]:
    """The tokens of the pictures to complete. Raises UserError for one that is broken."""
    from train.images import sources
    from train.images.decoding import BrokenImageError

    tokens = []
    for picture in sources.named_pictures(pattern) if pattern else ():
        try:
            tokens.append(processor.normalize(processor.prepare(picture.open(processor.channels))))
        except BrokenImageError as error:
            raise UserError(f"{picture} {error}; leave it out of --complete") from error
    return tokens


def _sampled(
    params: "tfm.CausalLM",
    folder: "RunFolder | HfFolder",
    options: GenerateOptions,
    explicit: Mapping[str, object],
    strategy: str,
    rows: Sequence[np.ndarray],
    log: "Log",
) -> np.ndarray:
    """The pictures that the model makes of their beginnings, uint8 [N,H,W,C]."""
    import dataclasses

    from train.data.batching import row_batches
    from train.devices import capacity
    from train.images import completion

    model = folder.config.model
    if "temperature" not in explicit:
        options = dataclasses.replace(options, temperature=1.0)
    size = min(options.batch, len(rows))
    capacity.check_decoding(params, model, size, model.length + 1)
    samples = []
    with log.progress(f"making {len(rows)} pictures", len(rows)) as advance:
        for batch, count in row_batches(range(len(rows)), size):
            seeds = np.asarray(batch, np.int32) + options.seed
            choice = options.greedy() if strategy == "greedy" else options.sample(seeds)
            pictures = completion.complete(params, model, folder.processor, [rows[row] for row in batch], choice)
            samples.append(pictures[:count])
            advance(count)
    return np.concatenate(samples)

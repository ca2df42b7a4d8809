"""A trained model as a folder that transformers or a server loads: `python -m train.export --run=DIR --to=FOLDER`.

    python -m train.export --run=runs/classify-bert-tiny-1 --to=opinions
    python -c "from transformers import pipeline; print(pipeline('text-classification', 'opinions')('a fine film'))"

The folder is read back, and both models are compared layer by layer on random tokens: certificate.json in the folder
has the differences.
"""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import dataclasses
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tfm.options.choices import check_fields, check_minimum
from train import UserError, exit_code
from train.files.strict_json import json_text
from train.runs.run_folder import open_folder
from train.settings import flags

USAGE = """usage: python -m train.export --run=DIR --to=FOLDER [--average=N] [--adapter | --merge] [--certify]
                              [--format=huggingface|stablehlo|onnx] [--length=N]
       python -m train.export --run=FOLDER --certify

Writes config.json, model.safetensors and the tokenizer, reads them back, and says how much each layer differs. As
stablehlo or onnx it writes a program for batches of any size, which jax or onnxruntime call without this project.
--certify compares what transformers makes of the folder: ids, scores, greedy texts, vectors, pixels."""

CERTIFICATE = "certificate.json"

# Run folder, parameters and folder -> the largest differences after reading it back.
_Write = Callable[[Any, Any, Path], dict[str, float]]


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """What to write, and where.

    run: the run folder, or a Hugging Face folder
    to: the folder to write, a new or an empty one
    average: the newest checkpoints whose mean is used
    format: huggingface | stablehlo | onnx: what loads the folder: transformers, jax alone, or an ONNX runtime
    length: tokens of a row of a stablehlo or onnx program; none: those of a row in training
    adapter: only the low-rank updates and the head, as a folder that PEFT loads over the model of --init
    merge: a whole model, with its low-rank updates in its kernels (the default)
    certify: also compare the folder with transformers, where that is installed; without `to`, the folder of `run`
    """

    run: str = ""
    to: str = ""
    average: int = 1
    format: Literal["huggingface", "stablehlo", "onnx"] = "huggingface"
    length: int | None = None
    adapter: bool = False
    merge: bool = False
    certify: bool = False

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name the folder of a run")
        if not self.to and not self.certify:
            raise ValueError("to=FOLDER must name the folder to write")
        check_fields(self)
        check_minimum(self, average=1, length=1)
        if not self.to:
            _check_only_certifies(self)
        if self.adapter and self.merge:
            raise ValueError("adapter and --merge are two forms of a model; choose one")
        if self.certify and (self.adapter or self.format != "huggingface"):
            raise ValueError("certify is for a whole model in the format huggingface; leave it out")
        if self.adapter and self.format != "huggingface":
            raise ValueError(f"format={self.format} is for whole models; leave --adapter out")
        if self.length is not None and self.format == "huggingface":
            raise ValueError(f"length={self.length} is for --format=stablehlo or onnx; leave it out")


def _check_only_certifies(options: ExportOptions):
    """Raises ValueError for an option of a folder that is written, where none is."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in ("run", "certify") and value != field.default:
            raise ValueError(
                f"{field.name}={value} is for a folder that is written, and without to=FOLDER certify only compares "
                "that of run; add to=FOLDER, or leave it out"
            )


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(export, argv)


def export(argv):
    """Loads a model, writes the folder, and compares."""
    options = flags.options(ExportOptions, USAGE, argv)
    if options is None:
        return
    if not options.to:
        _certify(options.run)
        return
    target = Path(options.to)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"--to={options.to} already holds something; choose another folder")

    from tfm.low_rank import has_low_rank
    from train.screens.console import Log

    log = Log()
    folder = open_folder(options.run)
    params = folder.load(log=log.info, average=options.average)
    if options.merge and not has_low_rank(params):
        raise UserError(f"--merge: {options.run} has no low-rank updates; leave the flag out")
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        differences = _writer(options, folder)(folder, params, part)
        if options.certify:
            differences |= _of_transformers(part, log)
        (part / CERTIFICATE).write_text(json_text(differences, indent=1) + "\n")
        if target.exists():
            target.rmdir()
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    log.table("largest difference after reading it back", {name: f"{value:.1e}" for name, value in differences.items()})
    log.info(f"saved in {target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
    print(json_text(differences))


def _certify(run: str):
    """Compares a folder of transformers with what transformers makes of it. Raises UserError for a run folder."""
    from train.runs.hf_folder import is_hf_folder
    from train.screens.console import Log

    if not is_hf_folder(run):
        raise UserError(
            f"--certify without --to compares a folder that transformers loads, and --run={run} is none; "
            "add --to=FOLDER, the folder to write"
        )
    log = Log()
    differences = _of_transformers(Path(run), log)
    log.table("largest difference", {name: f"{value:.1e}" for name, value in differences.items()})
    print(json_text(differences))


def _of_transformers(folder: Path, log) -> dict[str, float]:
    """The differences of a folder from what transformers makes of it."""
    from train.serving.reference import reference_differences

    return {f"transformers: {name}": value for name, value in reference_differences(folder, log).items()}


def _writer(options: ExportOptions, folder) -> _Write:
    """The function that writes the parameters of a training in the format of the options. Raises UserError for a length
    it cannot have."""
    if options.format == "huggingface" and not options.adapter:
        return _write
    write = _final_writer(options, folder)
    return lambda folder, params, to: write(folder, folder.task.final_model(folder.config, params), to)


def _final_writer(options: ExportOptions, folder) -> _Write:
    """The function that writes the final model of a task, as an adapter or as a program."""
    if options.adapter:
        return _write_adapter
    limit, length = folder.config.model.max_length, options.length or folder.config.row_tokens
    if options.length and folder.config.task.reads_pictures:
        raise UserError(f"--length={length} is for models of texts, and {options.run} reads pictures; leave it out")
    if limit is not None and length > limit:
        raise UserError(f"--length={length} is more than the {limit} positions of the model; ask for fewer")
    if options.format == "stablehlo":
        from train.serving import stablehlo

        return partial(stablehlo.write, length=length)
    from train.serving import onnx

    return partial(onnx.write, length=length)


def _write(folder, trained, to: Path) -> dict[str, float]:
    """Writes the folder and reads it back; returns the largest differences, of every layer and of the output, when both
    models compute in float32."""
    import tfm
    from tfm.low_rank import merge_low_rank
    from train.runs import hf_match, parity, written_files

    model, params = folder.config.model, folder.task.final_model(folder.config, trained)
    try:
        match = hf_match.match(folder, params)
    except ValueError as error:
        remedy = "; transformers classifies by the first token: train with --model.head.pool=first"
        raise UserError(
            f"--run={folder.path} cannot be exported: {error}{remedy if 'head.pool=' in str(error) else ''}"
        ) from error
    folder.save_hf(to, match.model, match.params, match.fields, trained)
    read_model, read_params = tfm.from_hf(to)
    layers = _token_differences(folder, to, read_model) | written_files.file_differences(folder, to)
    model, matched = (dataclasses.replace(config, dtype=read_model.dtype) for config in (model, match.model))
    layers |= parity.layer_differences(matched, match.params, read_model, read_params)
    layers |= parity.output_difference(model, params, read_model, read_params)
    return layers | _greedy_difference(folder, merge_low_rank(params), to, read_params)


def _token_differences(folder, to: Path, model) -> dict[str, float]:
    """How many strings have other token ids in the written folder: none, or UserError. {} where there are no texts."""
    from train.text import hf_tokenizer, same_ids

    tokenizer = folder.task.processor.tokenizer(folder.processor)
    if tokenizer is None:
        return {}
    same_ids.keep_ids(to)
    count = same_ids.differing(tokenizer, hf_tokenizer.read(to, model))
    if count:
        raise UserError(
            f"--run={folder.path} cannot be exported: {count} of {len(same_ids.STRINGS)} strings have other token ids "
            "in the written folder; please report this tokenizer"
        )
    return {"token ids": 0.0}


def _greedy_difference(folder, params, to: Path, read_params) -> dict[str, float]:
    """How many greedy texts differ in the written folder: none, or UserError. {} where none are written."""
    from train.generation.greedy_texts import text_difference, writes_texts
    from train.runs.hf_folder import HfFolder

    if not writes_texts(folder):
        return {}
    return {"greedy texts": text_difference(folder, params, HfFolder(to), read_params)}


def _write_adapter(folder, params, to: Path) -> dict[str, float]:
    """Writes the updates and the head, reads them back; returns the largest difference of the output."""
    from tfm.hf.adapter import load_adapter, read_adapter, to_adapter
    from train.runs import parity

    run = folder.config
    fields = folder.hf_fields()
    named = {name: fields[name] for name in ("model_type", "architectures") if name in fields}
    try:
        to_adapter(run.model, params, to, run.init, named)
        read = load_adapter(read_adapter(to), run.model, _without_updates(params))
    except ValueError as error:
        raise UserError(f"--run={folder.path} cannot be exported as an adapter: {error}") from error
    return parity.output_difference(run.model, params, run.model, read)


def _without_updates(params):
    """The parameters with zeros in place of updates and heads."""
    import jax
    import jax.numpy as jnp

    import tfm
    from tfm.low_rank import low_rank_base, with_base

    zeros = jax.tree.map(jnp.zeros_like, params)
    parts = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    bodies = {
        name: with_base(getattr(zeros, name), low_rank_base(part))
        for name, part in parts.items()
        if isinstance(part, tfm.Encoder)
    }
    return dataclasses.replace(zeros, **bodies)


if __name__ == "__main__":
    sys.exit(main())

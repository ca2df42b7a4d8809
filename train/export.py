"""A trained model as a folder that transformers loads: `python -m train.export --run=DIR --to=FOLDER`.

    python -m train.export --run=runs/classify-bert-tiny-1 --to=opinions
    python -c "from transformers import pipeline; print(pipeline('text-classification', 'opinions')('a fine film'))"

What was written is read back, and both models are compared layer by layer on random tokens; certificate.json in the folder keeps that.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from train import UserError, exit_code
from train.settings import flags

USAGE = """usage: python -m train.export --run=DIR --to=FOLDER [--average=N]

Writes config.json, model.safetensors and the tokenizer, reads them back, and says how much each layer differs."""

CERTIFICATE = "certificate.json"


@dataclasses.dataclass(frozen=True)
class Options:
    """What to write, and where.

    run: the run folder, or a Hugging Face folder
    to: the folder to write, a new or an empty one
    average: checkpoints whose mean is used, the newest so many
    """

    run: str = ""
    to: str = ""
    average: int = 1

    def __post_init__(self):
        for name, what in {
            "run": "run=DIR must name the folder of a run",
            "to": "to=FOLDER must name the folder to write",
        }.items():
            if not getattr(self, name):
                raise ValueError(what)
        if self.average < 1:
            raise ValueError(f"average={self.average} must be at least 1")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(export, argv)


def export(argv):
    """Loads a run, writes the folder, and compares."""
    from train.runs import pretrained

    options = flags.options(Options, USAGE, argv)
    if options is None:
        return
    folder = Path(options.to)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--to={options.to} already holds something; choose another folder")

    from train.reporting.console import Log

    log = Log()
    trained = pretrained.load(options.run, say=log.info, average=options.average)
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        found = _written(trained, options.run, part)
        (part / CERTIFICATE).write_text(json.dumps(found, indent=1) + "\n")
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    log.table("largest difference after reading it back", {name: f"{value:.1e}" for name, value in found.items()})
    log.info(f"saved in {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    print(json.dumps(found))


def _written(trained, source: str, folder: Path) -> dict[str, float]:
    """Writes the folder; the largest difference between the model and what is read back, after each layer and at the end."""
    import tfm
    from tfm.hf.folder import fit, read_config
    from train.runs import hf_folder, parity

    run, params = trained.run, trained.params
    given = read_config(Path(source)) if hf_folder.here(source) else _fields(trained)
    try:
        kind, architecture, config, theirs = fit(
            run.model, params, {name: given[name] for name in ("model_type", "architectures") if name in given}
        )
    except ValueError as error:
        remedy = (
            "; transformers classifies by the first token: train with --model.pool=first"
            if "pool=mean" in str(error)
            else ""
        )
        raise UserError(f"--run={source} cannot be exported: {error}{remedy}") from error
    given = given | {"model_type": kind.name, "architectures": [architecture]}
    tfm.to_hf(config, theirs, folder, tokenizer=source if hf_folder.here(source) else None, like=given)
    if not hf_folder.here(source):
        _write_tokenizer(trained, folder)
    again, read = tfm.from_hf(folder)
    return parity.of_layers(config, theirs, again, read) | parity.of_output(run.model, params, again, read)


def _fields(trained) -> dict[str, Any]:
    """What config.json shall say beside the model: which tokens are special, and the names of classes."""
    from train.runs import hf_folder
    from train.text import tokenizer as tokenize

    special, task = tokenize.specials(trained.processor), trained.run.task
    fields: dict[str, Any] = {"pad_token_id": special.pad}
    if task.name in ("lm", "translate"):
        fields |= {"bos_token_id": special.sep if task.name == "lm" else special.cls, "eos_token_id": special.sep}
    if task.name == "translate":
        marks = tokenize.marks(trained.processor, task.start)
        fields |= {
            "decoder_start_token_id": marks.start,
            "forced_eos_token_id": marks.after[-1],
            "num_beams": task.beams,
        }
        fields |= {"forced_bos_token_id": marks.before[0]} if marks.before else {}
    if task.name == "classify":
        names = trained.facts["classes"] or ["LABEL_0"]
        labels = {str(number): name for number, name in enumerate(names)}
        fields |= {
            "problem_type": hf_folder.PROBLEMS[task.kind],
            "id2label": labels,
            "label2id": {name: int(n) for n, name in labels.items()},
        }
    return fields


def _write_tokenizer(trained, folder: Path):
    """tokenizer.json, which puts the special tokens where training had them, and what AutoTokenizer wants to know of it."""
    from tokenizers import Tokenizer

    from train.text import tokenizer as tokenize

    tokenizer, special = Tokenizer.from_str(trained.processor.to_str()), tokenize.specials(trained.processor)
    task = trained.run.task.name
    if not getattr(trained.run.task, "start", ""):  # else it marks texts already, as it did in training
        cls, sep = ((str(tokenizer.id_to_token(number)), number) for number in (special.cls, special.sep))
        tokenizer.post_processor = _template(trained.run.task, cls, sep)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {"pad_token": special.pad, "unk_token": special.unk, "cls_token": special.cls, "sep_token": special.sep}
    roles |= {"mask_token": special.mask} if task == "mlm" else {}
    roles |= {"eos_token": special.sep} if task in ("lm", "translate") else {}
    options: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trained.run.model.length,
    }
    options |= {"clean_up_tokenization_spaces": False} | {
        name: tokenizer.id_to_token(number) for name, number in roles.items()
    }
    types = ["token_type_ids"] if trained.run.model.token_types > 1 else []
    options["model_input_names"] = ["input_ids", *types, "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(options, indent=2) + "\n")


def _template(task, cls: tuple[str, int], sep: tuple[str, int]):
    """What puts the special tokens around texts."""
    from tokenizers import processors

    if task.name in ("mlm", "classify"):
        single, pair = f"{cls[0]} $A {sep[0]}", f"{cls[0]} $A {sep[0]} $B:1 {sep[0]}:1"
        return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[cls, sep])
    single = f"$A {sep[0]}" if task.name == "translate" else "$A" if task.windows else f"{sep[0]} $A"
    return processors.TemplateProcessing(single=single, special_tokens=[sep])


if __name__ == "__main__":
    sys.exit(main())

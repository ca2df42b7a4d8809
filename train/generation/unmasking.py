"""Texts of train.generate by unmasking: a prompt with gaps that are filled, or a text to go on from."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from train import UserError
from train.files.lines import line_writer
from train.files.strict_json import json_text
from train.generation.options import GenerateOptions
from train.runs.weights import as_weights

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from train.runs.hf_folder import HfFolder
    from train.runs.run_folder import RunFolder

# The flags of unmasking.
_FLAGS = {
    *"run prompt prompt_file file to n batch average weights max_new_tokens steps order block temperature seed".split(),
    "strategy",
}

# A gap of a prompt: a masked token, or so many.
_GAP = r"\[MASK(?:\*(\d+))?\]"


class PromptTokens(NamedTuple):
    """A text with masked tokens: ids int32 [T], and which of them are masked, bool [T]."""

    ids: np.ndarray
    masked: np.ndarray


def write(
    folder: "RunFolder | HfFolder",
    options: GenerateOptions,
    explicit: Mapping[str, object],
    strategy: str,
    prompts: list[str],
):
    """Fills the gaps of prompts, and writes the texts. Raises UserError for flags of other models and long prompts."""
    foreign = sorted(set(explicit) - _FLAGS)
    if foreign or strategy == "beam":
        flag = foreign[0].replace("_", "-") if foreign else "strategy=beam"
        raise UserError(f"--{flag} is not for --run={options.run}, which writes by unmasking; leave it out")

    from train.screens.console import Log

    canvases = [canvas_of(folder.processor, prompt, options, folder.config.batch.length) for prompt in prompts]
    log = Log()
    params = as_weights(options.weights, folder, folder.load(log=log.info, average=options.average), log)
    temperature = 0.0 if strategy == "greedy" else options.temperature
    rows = [canvas for canvas in canvases for _ in range(options.n)]
    with line_writer(options.to) as write_line, log.progress("writing", len(rows)) as advance:
        for start in range(0, len(rows), options.batch):
            part = rows[start : start + options.batch]
            for index, ids in enumerate(
                _filled(params, folder, options, temperature, part, options.seed + start), start
            ):
                text = folder.processor.decode([int(token) for token in ids])
                prompt = prompts[index // options.n]
                write_line(json_text({"prompt": prompt, "text": text}) if options.to.endswith(".jsonl") else text)
            advance(len(part))


def canvas_of(tokenizer: "Tokenizer", prompt: str, options: GenerateOptions, length: int) -> PromptTokens:
    """A prompt with its gaps; without one, masked tokens follow it: --max-new-tokens, or as many as fill a row.

    Raises UserError for a text that is longer than the rows of the training.
    """
    from train.text import tokenize
    from train.text.special import words_have_spaces

    mask = tokenize.special_tokens(tokenizer).mask
    spaces = r"\s*" if words_have_spaces(tokenizer, str(tokenizer.id_to_token(mask))) else ""
    ids: list[int] = []
    last = 0
    for gap in re.finditer(spaces + _GAP, prompt):
        ids += [*_encoded(tokenizer, prompt[last : gap.start()]), *[mask] * min(int(gap[1] or 1), length + 1)]
        last = gap.end()
    ids += _encoded(tokenizer, prompt[last:])
    if mask not in ids:
        ids += [mask] * (options.max_new_tokens or max(0, length - len(ids)))
    elif options.max_new_tokens is not None:
        raise UserError(
            f"--max-new-tokens={options.max_new_tokens} adds tokens to a prompt without a gap; leave it out"
        )
    if len(ids) > length or mask not in ids:
        raise UserError(
            f"the prompt has {len(ids)} tokens with its gaps, and rows of the training have {length}; shorten it"
        )
    tokens = np.array(ids, np.int32)
    return PromptTokens(tokens, tokens == mask)


def _encoded(tokenizer: "Tokenizer", text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def _filled(
    params, folder, options: GenerateOptions, temperature: float, rows: Sequence[PromptTokens], seed: int
) -> Iterator[np.ndarray]:
    """The tokens of rows, without masks; a batch is padded to a common length."""
    import tfm
    from train.text import tokenize

    tokenizer, specials = folder.processor, tokenize.special_tokens(folder.processor)
    length = min(tfm.bucket(max(len(row.ids) for row in rows)), folder.config.batch.length)
    tokens = np.full((len(rows), length), specials.pad, np.int32)
    masked, valid = np.zeros((2, *tokens.shape), bool)
    for n, row in enumerate(rows):
        tokens[n, : len(row.ids)], masked[n, : len(row.ids)], valid[n, : len(row.ids)] = row.ids, row.masked, True
    model = tokenize.writing_model(folder.config.model, tokenizer)
    steps = options.steps or int(masked.sum(1).max())
    unmasking = tfm.Unmasking(steps, options.order, options.block, temperature, seed)
    written = tfm.unmask(params, model, tfm.Canvas(tokens, masked, valid), unmasking, tuple(specials))
    return (row[: len(canvas.ids)] for row, canvas in zip(written, rows, strict=True))

"""What a model writes greedily on strings that tell tokenizers apart."""

from typing import Any

from train import UserError
from train.generation.defaults import choose
from train.generation.options import GenerateOptions
from train.generation.writer import WRITERS
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.screens.console import Log
from train.text import languages
from train.text.same_ids import STRINGS

# The most tokens that are written.
NEW_TOKENS = 8

PROMPTS = tuple(" ".join(text.split()[:4]) for text in STRINGS[:3])


def writes_texts(folder: RunFolder | HfFolder) -> bool:
    """Whether it holds a language model, or a translator whose languages are known."""
    if folder.task.generates not in WRITERS:
        return False
    return languages.of(folder.processor) is None or bool(folder.config.task.target_language)


def greedy_texts(folder: RunFolder | HfFolder, params: Any) -> list[str]:
    """What a language model or a translator writes for each prompt; "" where its positions leave no place for that."""
    options = GenerateOptions(run=str(folder.path), prompt=PROMPTS[0], max_new_tokens=NEW_TOKENS)
    writer_class = WRITERS[folder.task.generates]
    explicit = {"max_new_tokens": NEW_TOKENS}
    choice = choose(folder, options, explicit, "greedy", writer_class.default_strategy)
    writer = writer_class(folder, params, choice, Log(quiet=True), sliding_context=False)
    texts = dict.fromkeys(PROMPTS, "")
    prompts = {}
    for text in PROMPTS:
        try:
            prompts[text] = writer.encode(text)
        except UserError:  # it is longer than the model reads
            continue
    for text, completions in zip(prompts, writer.write(list(prompts.values())), strict=True):
        texts[text] = completions[0].text
    return list(texts.values())


def text_difference(folder: RunFolder | HfFolder, params: Any, written: HfFolder, written_params: Any) -> float:
    """How many texts of two folders differ: none, or UserError."""
    pairs = zip(greedy_texts(folder, params), greedy_texts(written, written_params), strict=True)
    if different := [pair for pair in pairs if pair[0] != pair[1]]:
        raise UserError(
            f"--run={folder.path} writes {different[0][0]!r}, and the written folder {different[0][1]!r}: nothing is "
            "saved; that is a mistake in the program: please report it"
        )
    return 0.0

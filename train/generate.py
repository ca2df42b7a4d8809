"""Text from a language model, or a translation: `python -m train.generate --run=DIR --prompt=TEXT`.

    python -m train.generate --run=runs/multi30k --file=test.en --to=test.de --average=5
    python -m train.generate --run=runs/shakespeare --prompt="ROMEO:" --temperature=0.7 --seed=3
    python -m train.generate --run=runs/books --prompt-file=shots.txt --strategy=greedy --stop='\\n'
    python -m train.generate --run=runs/pixels --complete=IMAGE --n=4 --to=out.png
    python -m train.generate --run=runs/diffusion --prompt="the [MASK*6] of the list" --steps=6

where shots.txt has a line for each solved example, and the beginning of another line for the model to complete.
"""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from train import UserError, exit_code
from train.files.lines import line_writer
from train.files.strict_json import json_text
from train.generation.options import GenerateOptions, choose_strategy
from train.runs.hf_folder import NO_CHANGES
from train.runs.languages import open_for
from train.runs.weights import as_weights
from train.settings import flags

USAGE = """usage: python -m train.generate --run=DIR --prompt=TEXT | --prompt-file=FILE | --file=IN | --interactive
                                | --complete=IMAGE
                                [--to=OUT] [...]

Prints the prompt and its completion while it is written, or a translation alone; of a file, one after the other. If OUT
ends in .jsonl, each completion is an object."""

# The messages of a conversation, each with its role and content.
Chat = list[dict[str, str]]

_SOURCES = ("prompt", "prompt_file", "file")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(generate, argv)


def generate(argv):
    """Loads a model and writes."""
    options = flags.options(GenerateOptions, USAGE, argv)
    if options is None:
        return
    explicit = flags.explicit_options(options, argv)
    strategy = choose_strategy(explicit)
    folder = open_for(options, NO_CHANGES)
    if folder.task.generates in ("pictures", "unmasking"):
        _write_at_once(folder, options, explicit, strategy)
        return
    prompts = [] if options.interactive else _prompts(explicit)
    _check_writes(folder, explicit)
    from train.generation.defaults import choose, describe
    from train.generation.writer import WRITERS
    from train.screens.console import Log

    writer_class = WRITERS[folder.task.generates]
    choice = choose(folder, options, explicit, strategy, writer_class.default_strategy)
    options, strategy = choice.options, choice.strategy
    if not writer_class.takes_empty_prompts:
        _refuse_empty(prompts, explicit)
    if strategy == "beam" and options.n > options.beams:
        raise UserError(
            f"--n={options.n} is more than --beams={options.beams}; follow more beams or ask for fewer texts"
        )
    log = Log()
    params = as_weights(options.weights, folder, folder.load(log=log.info, average=options.average), log)
    if line := describe(choice):
        log.info(line)
    writer = writer_class(folder, params, choice, log, explicit.get("sliding_context"))
    del params  # the writer has a copy
    if options.interactive:
        _converse(options, writer)
    else:
        _write(options, writer, prompts)


def _write_at_once(folder: Any, options: GenerateOptions, explicit: Mapping[str, object], strategy: str):
    """Makes pictures, or texts whose tokens are not written from left to right."""
    if folder.task.generates == "pictures":
        from train.generation import pictures

        pictures.write(folder, options, explicit, strategy)
    else:
        from train.generation import unmasking

        unmasking.write(folder, options, explicit, strategy, _prompts(explicit))


def _check_writes(folder: Any, explicit: Mapping[str, Any]):
    """Raises UserError for a model that writes no text, and for flags of pictures."""
    run = explicit["run"]
    if folder.task.generates == "transcript":
        raise UserError(f"--run={run} writes what is said in sounds; name these with python -m train.predict --file")
    if not folder.task.generates:
        raise UserError(
            f"--run={run} was trained for --task={folder.config.task.name}, which writes no text; "
            "train one with --task=lm"
        )
    for name, purpose in (("chat", "talks with a language model"), ("draft", "helps to continue a text")):
        if explicit.get(name) and folder.task.generates != "continuation":
            raise UserError(f"--{name} {purpose}, and --run={run} translates; leave it out")
    for name in ("complete", "keep"):
        if name in explicit:
            raise UserError(f"--{name} is for pictures, and --run={run} writes texts; leave it out")
    for name in ("steps", "order", "block"):
        if name in explicit:
            raise UserError(f"--{name} is for models of --task=diffuse, and --run={run} is none; leave it out")


def _prompts(explicit: Mapping[str, Any]) -> list[str]:
    """The prompts that a flag names. Raises UserError if none does, or several do."""
    sources = [name for name in _SOURCES if name in explicit]
    if len(sources) != 1:
        raise UserError("--prompt=TEXT, --prompt-file=FILE or --file=IN must say what to go on from, one of the three")
    if sources == ["prompt"]:
        return [explicit["prompt"]]
    from train.data.sources import files

    prompts = files.read_lines(Path(explicit[sources[0]]))
    return prompts if sources == ["file"] else ["\n".join(prompts)]


def _refuse_empty(prompts: list[str], explicit: Mapping[str, Any]):
    """Raises UserError for an empty prompt."""
    flag = next((name for name in _SOURCES if name in explicit), "")
    for line, prompt in enumerate(prompts, start=1):
        if not prompt.strip("\n"):
            place = f"line {line} of --file={explicit['file']}" if flag == "file" else f"--{flag.replace('_', '-')}"
            raise UserError(f"{place} is empty; give a text to go on from")


def _typed_lines(prompt_kind: str) -> Iterator[str]:
    """The lines that a user types, without the empty ones."""
    print(f"{prompt_kind}, a line each; Ctrl-D ends", file=sys.stderr)
    for line in sys.stdin:
        if line.strip():
            yield line.rstrip("\n")


def _converse(options: GenerateOptions, writer):
    """Writes a completion of every line that a user types; with --chat, the lines are one conversation."""
    messages: Chat = []
    for line in _typed_lines("what you say" if options.chat else writer.prompt_kind):
        messages = [*messages, _said("user", line)] if options.chat else []
        answer = _write(options, writer, [line], [messages])
        messages = [*messages, _said("assistant", answer)]


def _said(role: str, content: str) -> dict[str, str]:
    """A message of a conversation."""
    return {"role": role, "content": content}


def _write(options: GenerateOptions, writer, prompts: list[str], chats: list[Chat] | None = None) -> str:
    """Writes the completions of the prompts, or of conversations, to --to; returns the last one."""
    if options.chat:
        encoded = [writer.encode_chat(chat) for chat in chats or ([_said("user", prompt)] for prompt in prompts)]
    else:
        encoded = [writer.encode(prompt) for prompt in prompts]
    shows, last = writer.shows_prompt and not options.chat, ""
    texts = [prompt if shows else "" for prompt in prompts]
    with line_writer(options.to) as write:
        if len(prompts) == options.n == 1 and writer.strategy != "beam" and not options.to and prompts[0].strip():
            groups = iter([[writer.stream(encoded[0], texts[0], sys.stdout)]])
        else:
            groups = writer.write(encoded)
        for prompt, text, completions in zip(prompts, texts, groups, strict=True):
            for completion in completions:
                _show(options, write, (prompt, text), completion)
                last = completion.text
    return last


def _show(options: GenerateOptions, write, prompts: tuple[str, str], completion):
    """Writes one completion as the options ask, behind its prompt and the part of that which is shown."""
    source, prompt = prompts
    pairs = list(zip(completion.pieces, completion.logprobs, strict=False))
    if options.to.endswith(".jsonl"):
        row = {"prompt": source, "completion": completion.text}
        if completion.score is not None:
            row["score"] = completion.score
        if options.logprobs:
            row["logprobs"] = pairs
        write(json_text(row))
        return
    if not completion.streamed:
        write(prompt + completion.text)
    if options.logprobs:
        for piece, logprob in pairs:
            write(f"{logprob:8.3f}  {piece!r}")
    if options.n > 1 or (options.file and prompt):
        write("")


if __name__ == "__main__":
    sys.exit(main())

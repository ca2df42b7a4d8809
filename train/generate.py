"""Text from a language model, or a translation: `python -m train.generate --run=DIR --prompt=TEXT`.

    python -m train.generate --run=runs/multi30k --file=test.en --to=test.de --average=5
    python -m train.generate --run=runs/shakespeare --prompt="ROMEO:" --temperature=0.7 --seed=3
    python -m train.generate --run=runs/books --prompt-file=shots.txt --strategy=greedy --stop='\\n'

where shots.txt shows the model what is wanted, a line for each example, and the beginning of one more line for it to complete.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from train import UserError, exit_code
from train.files import lines as output
from train.runs import folder as folders
from train.settings import flags, schema

USAGE = """usage: python -m train.generate --run=DIR --prompt=TEXT | --prompt-file=FILE | --file=IN | --interactive [--to=OUT] [...]

Prints the prompt and what follows it, as it comes, or a translation alone; of a file, a line each, one after the other. Where OUT ends in
.jsonl, each completion is an object."""

# The flags of each strategy, beside those of all.
_OWN = {
    "greedy": ("repetition_penalty", "logprobs"),
    "sample": ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "logprobs"),
    "beam": ("beams", "beam_groups", "diversity", "length_penalty", "coverage", "early_stopping"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What to write, and how.

    run: the run folder of a language model or a translation model
    prompt: the text to go on from, or to translate
    prompt_file: the same, out of a file: examples of what is wanted, and the beginning of another one
    file: a file of prompts or sentences, one a line
    interactive: prompts are typed, one a line
    average: checkpoints whose mean is used, the newest so many
    to: where to write what is found; by default on stdout
    max_new_tokens: tokens to add; 0 means 200, for a translation twice as many as the source has, or as many as there are positions for
    n: completions of each prompt: so many samples, or the best so many of a beam
    stop: text that ends a completion and is left out; several are joined by |, a line break is \\n
    slide: go on when the model's positions are full, from the second half of the text; so by default where rows were --task.windows
    logprobs: also show every token and its log-probability (sample, greedy)
    batch: texts at a time
    strategy: greedy | sample | beam; by default what the other flags belong to, else sample, or beam to translate
    temperature: below 1 the probable becomes more probable, above 1 less (sample)
    top_k: draw from the so many most probable tokens; 0 means all (sample)
    top_p: draw from the smallest set of tokens that has this probability (sample)
    min_p: draw from tokens with this share of the probability of the most probable one; 0 means all (sample)
    repetition_penalty: above 1, makes tokens that were there before less probable (sample, greedy)
    seed: of the draws; the next texts take the next numbers (sample)
    beams: texts that are followed at a time (beam)
    beam_groups: parts of the beam that avoid each other's tokens (beam)
    diversity: how much they do, in nats (beam)
    length_penalty: above 0, longer texts are preferred; 0 compares plain probabilities (beam)
    coverage: above 0, translations are preferred that look at every word of the source (beam)
    early_stopping: end with as many complete texts as there are beams, though better ones might follow (beam)
    """

    run: str = ""
    prompt: str = ""
    prompt_file: str = ""
    file: str = ""
    interactive: bool = False
    average: int = 1
    to: str = ""
    max_new_tokens: int = 0
    n: int = 1
    stop: str = ""
    slide: bool = False
    logprobs: bool = False
    batch: int = 16
    strategy: str = ""
    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    beams: int = 4
    beam_groups: int = 1
    diversity: float = 0.5
    length_penalty: float = 0.6
    coverage: float = 0.0
    early_stopping: bool = False

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name the run folder of a language model")
        for name, least in {
            "max_new_tokens": 0,
            "n": 1,
            "batch": 1,
            "average": 1,
            "top_k": 0,
            "seed": 0,
            "beams": 1,
            "beam_groups": 1,
        }.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name.replace('_', '-')}={getattr(self, name)} must be at least {least}")
        if self.temperature <= 0:
            raise ValueError(
                f"temperature={self.temperature} must be above 0; for the most probable token take --strategy=greedy"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top-p={self.top_p} must be above 0 and at most 1, which means all tokens")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min-p={self.min_p} must be at least 0, which means all tokens, and at most 1")
        if self.repetition_penalty < 1:
            raise ValueError(f"repetition-penalty={self.repetition_penalty} must be at least 1, which means none")
        for name in ("diversity", "coverage"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        if self.beams % self.beam_groups:
            raise ValueError(f"beam-groups={self.beam_groups} must divide beams={self.beams}")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(generate, argv)


def generate(argv):
    """Loads a run and writes."""
    from train.runs import pretrained

    options = flags.options(Options, USAGE, argv)
    if options is None:
        return
    given = flags.parse(argv, flags.flags_of(Options, {}), {})
    strategy = _strategy(given)
    prompts = [] if options.interactive else _prompts(given)
    run = flags.build(schema.Run, folders.read(options.run))
    if run.task.name not in ("lm", "translate"):
        raise UserError(
            f"--run={options.run} was trained for --task={run.task.name}, which writes no text; train one with --task=lm"
        )
    strategy = strategy or ("sample" if run.task.name == "lm" else "beam")
    if run.task.name == "lm":
        _refuse_empty(prompts, given)
    if strategy == "beam" and options.n > options.beams:
        raise UserError(
            f"--n={options.n} is more than --beams={options.beams}; follow more beams or ask for fewer texts"
        )

    from train.generation import writer as writing
    from train.reporting.console import Log

    log = Log()
    trained = pretrained.load(options.run, say=log.info, average=options.average)
    writer = writing.of(trained, options, strategy, given.get("slide"), log)
    if options.interactive:
        for line in _lines(run.task.name):
            _write(options, writer, strategy, [line])
    else:
        _write(options, writer, strategy, prompts)


def _write(options: Options, writer, strategy: str, prompts: list[str]):
    """The completions of the prompts, to where the options say."""
    encoded = [writer.encode(prompt) for prompt in prompts]
    with output.lines(options.to) as write:
        if len(prompts) == options.n == 1 and strategy != "beam" and not options.to and prompts[0].strip():
            groups = iter([[writer.stream(encoded[0], prompts[0], sys.stdout)]])
        else:
            groups = writer.write(encoded)
        for prompt, group in zip(prompts, groups, strict=True):
            for completion in group:
                _show(options, write, prompt if writer.echo else "", completion)


def _lines(task: str) -> Iterator[str]:
    """What a user types, line by line, to the end of the input; empty lines are passed over."""
    print(
        f"{'a text to go on from' if task == 'lm' else 'a sentence to translate'}, a line each; Ctrl-D ends",
        file=sys.stderr,
    )
    for line in sys.stdin:
        if line.strip():
            yield line.rstrip("\n")


def _strategy(given: Mapping[str, Any]) -> str:
    """The strategy that is named, or that the flags belong to, if any. Raises UserError where they belong to several."""
    named = given.get("strategy", "")
    if "strategy" in given and named not in _OWN:
        from tfm.config.model import suggest

        raise UserError(f"--strategy={named} is unknown{suggest(named, _OWN)}")
    homes = {flag: [name for name, own in _OWN.items() if flag in own] for flag in given}
    homes = {flag: names for flag, names in homes.items() if names}
    if not named and not homes:
        return ""
    chosen = named or next(
        (name for name in ("sample", "beam") if all(name in names for names in homes.values())), "beam"
    )
    for flag, names in homes.items():
        if chosen not in names:
            raise UserError(
                f"--{flag.replace('_', '-')} belongs to --strategy={' or '.join(names)}, not to {chosen}; leave it out"
            )
    return chosen


def _prompts(given: Mapping[str, Any]) -> list[str]:
    """The texts to go on from. Raises UserError where none is named."""
    sources = [name for name in ("prompt", "prompt_file", "file") if name in given]
    if len(sources) != 1:
        raise UserError("--prompt=TEXT, --prompt-file=FILE or --file=IN must say what to go on from, one of the three")
    if sources == ["prompt"]:
        return [given["prompt"]]
    from train.data.sources import files

    lines = files.read_lines(Path(given[sources[0]]))
    return lines if sources == ["file"] else ["\n".join(lines)]


def _refuse_empty(prompts: list[str], given: Mapping[str, Any]):
    """Raises UserError where there is nothing to go on from."""
    for number, prompt in enumerate(prompts, start=1):
        if not prompt.strip("\n"):
            named = next(f"--{name.replace('_', '-')}" for name in ("prompt", "prompt_file", "file") if name in given)
            which = f"line {number} of --file={given['file']}" if named == "--file" else named
            raise UserError(f"{which} is empty; give a text to go on from")


def _show(options: Options, write, prompt: str, completion):
    """Writes a completion as the options ask."""
    pairs = list(zip(completion.pieces, completion.logprobs, strict=False)) if options.logprobs else []
    if options.to.endswith(".jsonl"):
        found = {"prompt": prompt, "completion": completion.text} | (
            {"score": completion.score} if completion.score is not None else {}
        )
        write(json.dumps(found | ({"logprobs": pairs} if options.logprobs else {}), ensure_ascii=False))
        return
    if not completion.shown:
        write(prompt + completion.text)
    for piece, logprob in pairs:
        write(f"{logprob:8.3f}  {piece!r}")
    if options.n > 1 or (options.file and prompt):
        write("")


if __name__ == "__main__":
    sys.exit(main())

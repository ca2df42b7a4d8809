"""The first batches, as a person looks at them: `python -m train.inspect [flags of train.main] [--to=FILE.html]`."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tfm.options.choices import check_fields, check_minimum
from train import UserError, exit_code
from train.settings import flags
from train.settings.schema import Run

if TYPE_CHECKING:
    import numpy as np

    from train.data.corpus import Corpus
    from train.screens.console import Log

USAGE = """usage: python -m train.inspect [--task=NAME] [--section.field=value ...] [--batches=N] [--rows=N]
                               [--to=FILE.html]

Shows the batches that train.main would train on with these flags (see its --help): every token in the color of its
role (special, masked, target, padding), where another text begins, and what is right. On stdout, and as a page with
--to=FILE.html. Without colors, a star follows a target. Pictures, as they are augmented, are drawn into --to=FILE.png.
Nothing is trained. Flags of its own, and their defaults:"""


@dataclasses.dataclass(frozen=True)
class InspectOptions:
    """What to show.

    batches: the first batches
    rows: the first rows of each
    eval: batches of the validation text in place of the training text
    to: the file for the page
    """

    batches: int = 1
    rows: int = 4
    eval: bool = False
    to: str = ""

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, batches=1, rows=1)


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(inspect, argv)


def inspect(argv):
    """Makes the batches, and shows them."""
    if flags.print_help(InspectOptions, USAGE, argv):
        return
    own, rest = flags.split_argv(argv, [field.name for field in dataclasses.fields(InspectOptions)])
    options = flags.build(InspectOptions, flags.parse(own))
    to = Path(options.to) if options.to else None
    if to and (to.is_dir() or not to.absolute().parent.is_dir()):
        raise UserError(f"--to={to} cannot be written; name a file in a folder that is there")

    from train.screens.console import Log
    from train.tasks import table
    from train.training import startup

    log = Log()
    run, corpus = startup.prepare(rest, log)
    if contact_sheet := table.task_of(run).contact_sheet:
        _draw_pictures(options, run, corpus, contact_sheet, log)
    else:
        _show_tokens(options, run, corpus, log)


def _batches(options: InspectOptions, corpus: "Corpus") -> "Iterator[Mapping[str, np.ndarray]]":
    """The first batches, of fields [B, ...]."""
    return corpus.valid_batches(options.batches) if options.eval else map(corpus.batch, range(options.batches))


def _draw_pictures(options: InspectOptions, run: Run, corpus: "Corpus", contact_sheet: Callable[..., None], log: "Log"):
    """Draws the pictures of batches into a file. Raises UserError where none is named."""
    to = Path(options.to)
    if to.suffix != ".png":
        raise UserError(f"--task={run.task.name} has pictures; say where to draw them with --to=FILE.png")
    contact_sheet(_batches(options, corpus), corpus, options.rows, to)
    log.table(f"{run.task.name} {run.preset}", corpus.overview())
    log.info(f"saved in {to}")


def _show_tokens(options: InspectOptions, run: Run, corpus: "Corpus", log: "Log"):
    """Prints the rows of batches with the roles of their tokens, and writes the page."""
    from rich.console import Console

    from train.lab import roles, token_view
    from train.runs import run_folder
    from train.tasks import table

    facts = corpus.facts()
    reader = roles.RoleReader(table.task_of(run).batch_spec(run), corpus.processor, facts.get("classes") or ())
    batches = [list(reader.rows(batch)) for batch in _batches(options, corpus)]
    shares = roles.shares(list(itertools.chain(*batches)))
    title = f"{run.task.name} {run.preset}: {'validation' if options.eval else 'training'} batches"
    rows = corpus.overview() | {
        "places": ", ".join(f"{role} {share:.1%}" for role, share in shares.items() if share),
    }
    log.table(title, rows)
    console = Console(highlight=False, soft_wrap=True)
    shown = [batch[: options.rows] for batch in batches]
    for n, batch in enumerate(shown):
        for index, row in enumerate(batch):
            console.print(f"batch {n}, row {index}", style="bold", markup=False)
            console.print(token_view.terminal(row))
    if options.to:
        run_folder.write(Path(options.to), token_view.page(title, rows, roles.ROLES, shown))
        log.info(f"saved in {options.to}")

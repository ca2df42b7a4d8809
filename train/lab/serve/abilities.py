"""What a folder can answer: its model as functions of texts, and how requests share batches of it."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfm.params import PyTree
from train import UserError
from train.generation.defaults import choose
from train.generation.options import GenerateOptions
from train.generation.writer import ContinuationWriter
from train.lab.embedding.folder import FolderEncoder, Pooling
from train.lab.serve.engine import BatchQueue, Content, EngineWork, Said
from train.lab.serve.looking import looking
from train.lab.serve.options import ServeOptions
from train.lab.serve.writing import SlotWriter
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder, open_folder
from train.screens.console import Log
from train.tasks.classify.predict import logits as logits_of
from train.tasks.mlm.predict import Blanks
from train.tasks.rank.options import Rank
from train.tasks.record import Predictor
from train.text import chat, control_tokens
from train.text.special import AnyTokenizer

# Texts that a predictor reads at a time; the budget of tokens decides how many come.
_ROWS = 32


class Served(NamedTuple):
    """A model that answers.

    name: what requests call it
    folder: where it is
    tokenizer: a copy that counts tokens, on the thread that reads requests
    batches: by ability (embed, classify, fill, translate, rank, look), what reads texts
    writer: what writes texts, of a language model
    continues: what knows the prompts of that
    chats: whether its folder has a template of conversations
    """

    name: str
    folder: RunFolder | HfFolder
    tokenizer: AnyTokenizer
    batches: dict[str, BatchQueue]
    writer: SlotWriter | None = None
    continues: ContinuationWriter | None = None
    chats: bool = False

    @property
    def works(self) -> list[EngineWork]:
        """What the engine does for it."""
        return [*self.batches.values(), *([self.writer] if self.writer else [])]

    @property
    def has_final_scores(self) -> bool:
        """Whether scores of pairs are said as they are: of a cross-encoder that was trained so."""
        return isinstance(self.folder.config.task, Rank) and self.folder.config.task.activation == "identity"

    @property
    def abilities(self) -> list[str]:
        """What it can be asked, by name."""
        written = ["complete", *(["chat"] if self.chats else [])] if self.writer else []
        return [*self.batches, *written]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The tokens of texts, without those that stand around them. Raises UserError for a forbidden text."""
        with control_tokens.reading(self.folder.config.data.control_tokens):
            return [len(encoding.ids) for encoding in control_tokens.encode(self.tokenizer, texts, offsets=False)]


def load(path: str, options: ServeOptions, log: Log) -> Served:
    """The model of a folder. Raises UserError for one that answers nothing here."""
    folder = open_folder(path)
    if folder.task.generates == "transcript":
        raise UserError(f"--run={path} writes what is said in sounds, and requests are texts; name another model")
    name = Path(os.path.abspath(path)).name
    tokenizer, quiet = copy.deepcopy(folder.processor), Log(quiet=True)
    batched = partial(BatchQueue, wait=options.wait / 1000, budget=options.tokens, limit=options.queue)
    task = folder.config.task.name
    if folder.task.generates == "continuation" and not _has_modules(folder):
        params = folder.load(log=log.info)
        continues = _continuing(path, folder, params)
        writer = SlotWriter(continues.params, continues.decoder.config, options.slots, options.queue)
        looks = {ability: batched(answer) for ability, answer in looking(continues.params, folder).items()}
        return Served(name, folder, tokenizer, looks, writer, continues, _chats(folder))
    answers: dict[str, Callable[[list[Content]], Sequence[Said]]] = {}
    if task in _PREDICTED and not _has_modules(folder):
        params = folder.load(log=log.info)
        ability, contents = _PREDICTED[task]
        assert folder.task.predictor is not None, "tasks that predict"
        answers[ability] = partial(_predict, folder.task.predictor, contents, params, folder, quiet)
        answers |= looking(params, folder)
        if ability == "classify":
            answers["rank"] = partial(_ranking, params, folder, quiet)
    if task == "rank":
        params = folder.load(log=log.info)
        answers |= {"rank": partial(_ranking, params, folder, quiet), **looking(params, folder)}
    if "rank" not in answers and task != "translate":
        encoder = FolderEncoder(path, Pooling(), quiet)
        answers["embed"] = lambda texts: list(encoder(texts))
    if not answers:
        raise UserError(f"--run={path} holds a model of --task={task}, which answers no requests; name another one")
    return Served(name, folder, tokenizer, {ability: batched(answer) for ability, answer in answers.items()})


def _has_modules(folder: RunFolder | HfFolder) -> bool:
    """Whether the folder says itself how a text becomes a vector."""
    return isinstance(folder, HfFolder) and folder.has_modules


def _chats(folder: RunFolder | HfFolder) -> bool:
    try:
        chat.chat_template(folder.processor)
    except UserError:
        return False
    return True


def _continuing(path: str, folder: RunFolder | HfFolder, params: PyTree) -> ContinuationWriter:
    """What reads prompts and spells texts. Raises UserError where texts have constraints, which no batch has here."""
    options = GenerateOptions(run=path)
    choice = choose(folder, options, {"run": path}, "", "sample")
    if choice.strategy == "beam":
        choice = choice._replace(strategy="greedy")
    if choice.constrains:
        raise UserError(f"{choice.generation} forbids or forces tokens, which train.serve does not; use train.generate")
    return ContinuationWriter(folder, params, choice, Log(quiet=True), sliding_context=False)


def _predict(
    predictor: Predictor[PyTree, Content],
    contents: Callable[[list[Content]], Content],
    params: PyTree,
    folder: RunFolder | HfFolder,
    log: Log,
    items: list[Content],
) -> list[Said]:
    """What train.predict says of texts, as objects."""
    with control_tokens.reading(folder.config.data.control_tokens):
        return [prediction.row for prediction in predictor.predict(params, folder, contents(items), log, _ROWS)]


def _columns(texts: Sequence[tuple[str, ...]]) -> list[dict[str, str]]:
    """Texts or pairs, by column."""
    return [dict(zip(("text", "pair"), parts, strict=False)) for parts in texts]


# Tasks whose predictor answers: the ability, and what it predicts for.
_PREDICTED: dict[str, tuple[str, Callable[[list[Content]], Content]]] = {
    "classify": ("classify", _columns),
    "mlm": ("fill", lambda items: Blanks([text for text, _ in items], max(count for _, count in items))),
    "translate": ("translate", list),
}


def _ranking(params: PyTree, folder: RunFolder | HfFolder, log: Log, pairs: list[Content]) -> list[float]:
    """What ranks pairs of a query and a text: the value of a classifier with one output, else the logit of its last
    class against the others."""
    with control_tokens.reading(folder.config.data.control_tokens):
        rows = list(logits_of(params, folder, _columns(pairs), log, _ROWS))
    return [float(row[-1] - (np.logaddexp.reduce(row[:-1]) if len(row) > 1 else 0)) for row in rows]


def served(options: ServeOptions, log: Log) -> Iterator[Served]:
    """The models of --run. Raises UserError for two of one name."""
    names: dict[str, str] = {}
    for path in options.run.split(","):
        model = load(path, options, log)
        if model.name in names:
            raise UserError(f"--run names two folders {model.name}, {names[model.name]} and {path}; rename one of them")
        names[model.name] = path
        yield model

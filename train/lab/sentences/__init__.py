"""SentEval's tasks for any function from sentences to vectors.

from train.sentences import evaluate, read_tasks

results = evaluate(encode, read_tasks("senteval/data", "MR,TREC,STS-B"))      # encode(["a cat sat", ...]) -> [N,D]
results["MR"]["metrics"]["accuracy"]["value"]
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from train.lab.sentences.evaluation import LoadedTask, SentEvalResult, measure
from train.lab.sentences.settings import PROTOCOLS, Settings


def read_tasks(data: str, names: str = "") -> list[LoadedTask]:
    """The tasks in the folders `data`, joined by commas: those with these names, or all that are there.

    Raises UserError for an unknown name, for files that are missing, and for bad ones.
    """
    from train.lab.sentences import suite
    from train.lab.sentences.rows import Files

    files = Files(data)
    return [LoadedTask(task, task.load(files)) for task in suite.choose(names, files)]


def evaluate(
    encode: Callable[[Sequence[str]], np.ndarray], tasks: Iterable[LoadedTask], settings: Settings | None = None
) -> dict[str, SentEvalResult]:
    """What `measure` says of each task, by name; `encode` maps N sentences to vectors [N,D].

    settings: by default those that SentEval calls comparable; `Settings(**PROTOCOLS["prototype"])` are faster. Raises
    UserError where vectors are not finite, or of another size than the sentences.
    """
    return {loaded.task.name: measure(encode, loaded, settings or Settings()) for loaded in tasks}


__all__ = ["PROTOCOLS", "Settings", "evaluate", "read_tasks"]

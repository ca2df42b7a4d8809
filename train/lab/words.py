"""Vectors of words from a text, by word2vec: `python -m train.words --data=FILES --to=OUT.vec [--kind=skipgram]`."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train import UserError, exit_code
from train.files.lines import whole_file
from train.files.strict_json import json_text
from train.lab.embedding.word_vectors import parts_of
from train.settings import flags
from train.tasks import resolve
from train.tasks.table import AnyRun
from train.text.word_vectors import ENDINGS

if TYPE_CHECKING:
    from gensim.models import KeyedVectors, Word2Vec

    from train.screens.console import Log

USAGE = """usage: python -m train.words --data=FILES --to=OUT.vec|OUT.txt|OUT.bin [--size=300] [--kind=skipgram|cbow]

Learns a vector for every word of a text, by gensim: pip install -e ".[words]". --data is what --task=mlm reads;
--data.split=line, --data.field=text and the like say how. A tenth of it is left out, as in every training. Words are
in lower case, and punctuation marks are words. Prints one JSON object.
python -m train.sentences --encoder=bow:OUT.vec and --expand=OUT.vec of other commands read the file."""


@dataclasses.dataclass(frozen=True)
class WordsOptions:
    """What to read, and how to learn from it.

    data: builtin, or the files
    to: where the vectors go: .vec (word2vec's text), .txt (GloVe's) or .bin (word2vec's)
    kind: skipgram | cbow: a word predicts those around it, or they predict the word (Mikolov et al. 2013)
    size: numbers of a vector
    window: words on both sides
    epochs: passes over the text
    min_count: rarer words get no vector
    negative: words that are drawn against each right one
    seed: of the first vectors and of the drawn words; the same seed gives the same vectors
    """

    data: str = "builtin"
    to: str = ""
    kind: Literal["skipgram", "cbow"] = "skipgram"
    size: int = 300
    window: int = 5
    epochs: int = 5
    min_count: int = 5
    negative: int = 5
    seed: int = 0

    def __post_init__(self):
        check_fields(self)
        if not self.to.endswith(ENDINGS):
            raise ValueError(f"to={self.to} must name a file to write, which ends in {', '.join(ENDINGS)}")
        check_minimum(self, size=1, window=1, epochs=1, min_count=1, negative=1, seed=0)
        check_maximum(self, "no vector needs as many", size=1 << 16, window=1 << 10, negative=1 << 10)
        check_maximum(self, "it must fit in 32 bits", seed=(1 << 32) - 1)


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(learn, argv)


def learn(argv):
    """Reads the text, trains the vectors, and writes them."""
    changes, argv = resolve.split_data_flags(argv)
    options = flags.options(WordsOptions, USAGE, argv)
    if options is None:
        return
    run = flags.build(AnyRun, {}, changes | {"data.source": options.data})
    if not Path(options.to).parent.is_dir():
        raise UserError(f"--to={options.to}: there is no folder {Path(options.to).parent}; make it, or choose another")
    word2vec = _word2vec()

    from train.data import documents, pairs
    from train.screens.console import Log

    log = Log()
    sentences, _ = pairs.split(documents.load(run.data, log.info)[0])
    log.info(f"text        {options.data}: {len(sentences):,} sentences")
    model = _trained(word2vec, options, SentenceFile(sentences), log)
    _write(model.wv, options.to)
    log.info(f"saved in {options.to}: {len(model.wv):,} words of {options.size} numbers")
    print(json_text({"words": len(model.wv), "size": options.size, "text_words": model.corpus_total_words}))


@dataclasses.dataclass(frozen=True)
class SentenceFile:
    """The words of sentences, one sentence after the other, as often as they are asked for."""

    texts: Sequence[str]

    def __iter__(self) -> Iterator[list[str]]:
        return map(parts_of, self.texts)


def _word2vec() -> ModuleType:
    """The module of gensim. Raises UserError where it is not installed."""
    try:
        from gensim.models import word2vec
    except ImportError as error:
        raise UserError('word vectors are trained by gensim; pip install -e ".[words]"') from error
    return word2vec


def _trained(word2vec: ModuleType, options: WordsOptions, sentences: SentenceFile, log: "Log") -> "Word2Vec":
    """The model after all epochs. One thread trains, so that a seed says all.

    Raises UserError for a text without a word that is frequent enough.
    """
    model = word2vec.Word2Vec(
        vector_size=options.size,
        window=options.window,
        min_count=options.min_count,
        negative=options.negative,
        sg=options.kind == "skipgram",
        seed=options.seed,
        workers=1,
    )
    model.build_vocab(sentences)
    if not len(model.wv):
        raise UserError(f"no word of {options.data} occurs {options.min_count} times; try --min-count=1, or more text")
    log.info(f"words       {model.corpus_total_words:,}; {len(model.wv):,} different ones get a vector")
    alphas = [model.alpha + (model.min_alpha - model.alpha) * n / options.epochs for n in range(options.epochs + 1)]
    for epoch, (start, end) in enumerate(itertools.pairwise(alphas), 1):
        model.train(sentences, total_examples=model.corpus_count, epochs=1, start_alpha=start, end_alpha=end)
        log.info(f"epoch {epoch:>5} of {options.epochs}")
    return model


def _write(vectors: "KeyedVectors", to: str):
    """All words and vectors, most frequent words first; the file takes its name when it is complete."""
    with whole_file(to) as part:
        vectors.save_word2vec_format(str(part), binary=to.endswith(".bin"), write_header=not to.endswith(".txt"))

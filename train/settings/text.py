"""The settings of the text and of its tokenizer."""

from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, check_rates, frozen

# Paths that may differ when a run goes on, but not be left out: hashes in run.json say whether what they lead to is the
# same.
BY_HASH = ("data.source", "data.eval", "teacher.folder")


@frozen
class Data:
    """The text.

    source: builtin | listops | copy | recall | path or glob of .txt .jsonl .tsv .csv .conll (.gz) | tfds:NAME | a store
    eval: validation text; without it, a tenth of the training text is held out
    field: the column that holds the text; for pairs two of them, joined by a comma; of .conll its position, from 1
    label: the column that holds the label; for --task.kind=multi also several columns of 0 and 1
    header: the first line of a .tsv or .csv names its columns; if not, the first holds the text and the last the label
    split: file | line | blank-line: what a document of a .txt file is
    format: text | jsonl | tsv | csv | conll | json: what files hold; none: what their endings say
    control_tokens: text | error | keep: what [MASK], </s> and the like are where they stand in a text
    pack: several documents share a row (true), or each has rows of its own (false); none: as the model can
    broken: skip | error: leave out pictures that cannot be decoded, named and counted, or end; none: end
    folds: parts of the rows for cross-validation, each with its share of every label; none: one split
    fold: which of them, from 0, is held out for validation; none: the first
    mixture: size | unimax | NAME:WEIGHT,NAME:WEIGHT | file.json of phases: how often rows of a store's sources come
    temperature: of mixture=size: the root of the sizes that weights are; 1: every row once an epoch
    max_epochs: how often a source may be read; unimax: 1, where nothing is said; none: as often as the mixture says
    shuffle: full | blocks: rows of a store in any order, or blocks of rows, and rows within a window of blocks
    """

    source: str = "builtin"
    eval: str = ""
    field: str = "text"
    label: str = "label"
    header: bool = True
    split: Literal["file", "line", "blank-line"] = "file"
    format: Literal["text", "jsonl", "tsv", "csv", "conll", "json"] | None = None
    control_tokens: Literal["text", "error", "keep"] = "text"
    pack: bool | None = None
    broken: Literal["skip", "error"] | None = None
    folds: int | None = None
    fold: int | None = None
    mixture: str = "size"
    temperature: float = 1.0
    max_epochs: float | None = None
    shuffle: Literal["full", "blocks"] = "full"

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, folds=2, fold=0)
        check_maximum(self, "each fold is a training of its own", folds=10_000)
        for name in ("temperature", "max_epochs"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise ValueError(f"{name}={value} must be more than 0")
        if self.fold is not None and self.fold >= (self.folds or 0):
            raise ValueError(
                f"fold={self.fold} must be less than data.folds={self.folds or 'none'}, which it counts from 0"
            )


@frozen
class Tokenizer:
    """How text becomes tokens.

    kind: wordpiece | bpe | unigram | word | char: what to train on the training text; bpe is of bytes
    vocab: number of tokens to train
    alphabet: bytes | text: what bpe begins with: all bytes, or those of the training text, where vocab may be below 300
    lower: lower-case (wordpiece, word)
    strip_accents: take the accents off letters (wordpiece, word); none: where they are lower-cased
    path: instead of training: tokenizer.json, vocab.txt, SentencePiece's .model, vocab.json beside merges.txt
    dropout: rate of merges that are left out at random when a training text is split (bpe)
    sampling: exponent of the probability with which a training text is split at random, among its 64 most probable
        splits, 0 for equal chances (unigram); none: it is split in the most probable way
    draws: random splits of the training text that are made and taken in turn, one an epoch
    sentinels: tokens that stand for spans that are left out (denoise), <extra_id_0> and so on, added behind the others
    """

    kind: Literal["wordpiece", "bpe", "unigram", "word", "char"] = "wordpiece"
    vocab: int = 8192
    alphabet: Literal["bytes", "text"] = "bytes"
    lower: bool = True
    strip_accents: bool | None = None
    path: str = ""
    dropout: float = 0.0
    sampling: float | None = None
    draws: int = 4
    sentinels: int = 0

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, draws=1, sentinels=0)
        check_maximum(self, "no row has as many spans", sentinels=1 << 16)
        check_maximum(self, "each draw tokenizes all of the text", draws=1000)
        check_maximum(self, "no tokenizer is as large", vocab=1 << 20)
        if self.alphabet == "text" and self.kind != "bpe":
            raise ValueError(f"alphabet=text is an option of kind=bpe, not of kind={self.kind}; leave it out")
        check_minimum(self, vocab=10)
        if self.vocab < 300 and self.alphabet == "bytes":
            raise ValueError(f"vocab={self.vocab} must be at least 300, room for single characters")
        check_rates(self, "dropout", usual="Provilkov et al. use 0.1")
        if self.sampling is not None and not 0 <= self.sampling <= 1:
            raise ValueError(f"sampling={self.sampling} must be at least 0 and at most 1; Kudo uses 0.2")
        if self.sampling is not None and self.dropout:
            raise ValueError(
                f"dropout={self.dropout} is for bpe, and sampling={self.sampling} for unigram; leave one out"
            )

    @property
    def randomness(self) -> str:
        """The option by which a training text is split at random, as `dropout=0.1`; "" without one."""
        if self.sampling is not None:
            return f"sampling={self.sampling}"
        return f"dropout={self.dropout}" if self.dropout else ""

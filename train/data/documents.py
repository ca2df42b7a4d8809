"""Plain text for language models: training documents and validation documents, in memory or in stores."""

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Protocol

from train import UserError
from train.data import mixture
from train.data.sources import builtin, files, sources
from train.data.store.layout import is_store
from train.data.store.reading import StoredTokens
from train.data.store.texts import StoredText
from train.data.tokens import DocumentTokens, encode, segmentation_hash, segmentations
from train.files import cache
from train.screens.console import Log
from train.settings.schema import Data, Run
from train.text import control_tokens, tokenize
from train.text.special import AnyTokenizer, DocumentMarks

# Documents, and characters of each, of which `text_kept` asks whether their tokens lose text.
_TRIED_DOCUMENTS, _TRIED_CHARACTERS = 50, 2000


class TextRows(Protocol):
    """Rows of documents."""

    @property
    def text(self) -> DocumentTokens:
        """The tokens of the documents."""

    def __len__(self) -> int: ...


def load(
    data: Data, log: sources.LogLine = sources.to_stderr, valid_only: bool = False
) -> tuple[Sequence[str], Sequence[str]]:
    """Training and validation documents, by default English text that comes with Python; or the text of stores.

    `valid_only` leaves out training documents if --eval-data has a source of its own. Raises UserError for several
    columns, for a store that holds out nothing where no --eval-data is named, and for folds of a store.
    """
    if not (is_store(data.source) or is_store(data.eval)):
        return _in_memory(data, log, valid_only)
    if data.folds:
        raise UserError(f"--data.folds={data.folds} divides a text, and a store is divided already; leave it out")

    def text_of(source: str, parts: Sequence[str]) -> Sequence[str]:
        if is_store(source):
            return StoredText.of(source, parts)
        columns = files.Columns.of(data, labelled=False)
        rows = sources.read(source, data, columns, lambda: _of_python(columns), log)
        return [row[columns.texts[0]] for row in rows]

    valid = text_of(data.eval, ("train", "valid")) if data.eval else text_of(data.source, ("valid",))
    if not len(valid):
        raise UserError(
            f"--data={data.source} holds out no text for validation; name some with --eval-data, or make the store "
            "with a larger --hold-out"
        )
    return [] if valid_only else text_of(data.source, ("train",)), valid


def _in_memory(data: Data, log: sources.LogLine, valid_only: bool) -> tuple[list[str], list[str]]:
    columns = files.Columns.of(data, labelled=False)
    column = columns.texts[0]
    if len(columns.texts) > 1:
        raise UserError(
            f"--data.field={data.field} names {len(columns.texts)} columns, and only one can be read; leave one"
        )
    parts = sources.load(data, columns, lambda: _of_python(columns), log, valid_only)
    train, valid = ([row[column] for row in rows] for rows in parts)
    return train, valid


def _of_python(columns: files.Columns) -> tuple[list[files.Row], list[files.Row]]:
    rows = [{columns.texts[0]: document} for document in builtin.documents()]
    return sources.train_valid_split(rows, columns)


def tokenizer_of(run: Run, train: Sequence[str], log: Log) -> Any:
    """The tokenizer of a run that takes over none: that of its store if no file is named, else as --tokenizer says."""
    if isinstance(train, StoredText) and not run.tokenizer.path:
        log.info("the tokenizer is that of the store; --tokenizer trains none")
        return train.tokenizer()
    return tokenize.load(run.tokenizer, train, log)


def train_tokens(
    run: Run, tokenizer: AnyTokenizer, train: Sequence[str], log: Log, marks: DocumentMarks | None = None
) -> list[DocumentTokens]:
    """The tokens of the training text: once for each segmentation, or those of each source of stores."""
    if isinstance(train, StoredText):
        if run.tokenizer.randomness:
            raise UserError(f"--tokenizer.{run.tokenizer.randomness} needs text; a store has one segmentation")
        return [train.tokens(tokenizer, marks is not None, source) for source in train.shards]
    return [
        encode(tokenizer, train, log, "training text", segmentation, marks)
        for segmentation in (segmentations(run) if train else [])
    ]


def valid_tokens(
    tokenizer: AnyTokenizer, valid: Sequence[str], log: Log, marks: DocumentMarks | None = None
) -> DocumentTokens:
    """The tokens of the validation text."""
    if isinstance(valid, StoredText):
        return valid.tokens(tokenizer, marks is not None)
    return encode(tokenizer, valid, log, "validation text", marks=marks)


def rows_by_source(
    tokenizer: AnyTokenizer,
    valid: Sequence[str],
    rows_of: Callable[[DocumentTokens], Sized],
    marks: DocumentMarks | None = None,
) -> dict[str, dict[str, int]]:
    """The fact `eval_sources`: how many of the rows that `rows_of` makes of the validation text are of each source."""
    if not isinstance(valid, StoredText) or len(valid.shards) == 1:
        return {}
    texts = {name: valid.tokens(tokenizer, marks is not None, name) for name in valid.shards}
    return {"eval_sources": {name: len(rows_of(text)) for name, text in texts.items()}}


def num_bytes(documents: Sequence[str], tokens: DocumentTokens) -> int:
    """Bytes in UTF-8 of documents that have these tokens."""
    if isinstance(tokens, StoredTokens):
        return tokens.num_bytes
    return sum(len(document.encode("utf-8", "surrogatepass")) for document in documents)


def text_kept(tokenizer: AnyTokenizer, documents: Sequence[str], log: Log) -> dict[str, float]:
    """`text_kept`, the share of documents that come back from their tokens, where it is below 1; said in the log.

    The first documents are tried, and the beginning of each. Spaces around a document do not count.
    """
    if isinstance(documents, StoredText):
        return {}
    tried = [document[:_TRIED_CHARACTERS].strip() for document in documents[:_TRIED_DOCUMENTS]]
    ids = [encoding.ids for encoding in control_tokens.encode(tokenizer, tried)]
    kept = [
        tokenizer.decode(row, skip_special_tokens=False).strip() == text for row, text in zip(ids, tried, strict=True)
    ]
    if all(kept):
        return {}
    log.info(
        f"the tokenizer loses text: {len(kept) - sum(kept)} of {len(kept)} documents do not come back from their "
        "tokens; bits a byte are too small, compare them with runs of this tokenizer alone"
    )
    return {"text_kept": sum(kept) / len(kept)}


def kept_of(facts: Mapping[str, float]) -> dict[str, float]:
    """`text_kept` of a corpus, where its tokenizer loses text."""
    return {"text_kept": facts["text_kept"]} if "text_kept" in facts else {}


def facts(
    run: Run,
    tokenizer: AnyTokenizer,
    text: tuple[Sequence[str], Sequence[str]],
    train_rows: Sequence[TextRows],
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What run.json says of the text: hashes, and of sources in stores their rows and their shares of a run.

    text: training and validation documents, `train_rows` the rows of the first
    before: the facts of the run that goes on, whose shares stay, or of one whose weights are taken
    """
    train, digests = text[0], [[part.digest] if isinstance(part, StoredText) else part for part in text]
    about: dict[str, Any] = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*digests),
        "segmentation_hash": segmentation_hash(run, (rows.text for rows in train_rows)),
    }
    if not isinstance(train, StoredText):
        return about
    sizes = {name: len(rows) for name, rows in zip(train.shards, train_rows, strict=True)}
    kept = before.get("mixture") if before and run.resume else None
    phases = kept or mixture.resolve(run.data, sizes, run.steps * run.batch.size)
    return about | {"sources": sizes, "mixture": [[first, dict(shares)] for first, shares in phases]}

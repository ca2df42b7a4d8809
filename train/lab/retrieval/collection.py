"""Collections as BEIR has them: a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv (Thakur et al. 2021)."""

from collections.abc import Iterator
from pathlib import Path

from tfm.options import json_text
from tfm.options.choices import check_object
from train import UserError
from train.data.sources import opening
from train.data.synthetic import deals
from train.data.synthetic.deals import Collection
from train.settings.gate import user_errors


def read(source: str, split: str, log) -> Collection:
    """The collection of a folder, or the built-in one, with the queries that a split of its judgments has.

    Of a passage with a title, both are its text. Raises UserError for files that are absent or damaged, and where no
    query is left.
    """
    if source == "builtin":
        return deals.read().collection
    root = Path(source)
    if not root.is_dir():
        raise UserError(
            f"--data={source} is no folder; name one with corpus.jsonl, queries.jsonl and qrels/, or builtin"
        )
    corpus = dict(_records(_file(root, "corpus.jsonl"), is_titled=True))
    texts = dict(_records(_file(root, "queries.jsonl"), is_titled=False))
    path = _file(root / "qrels", f"{split}.tsv", f"; its splits are {_splits(root)}")
    qrels = _judgments(path)
    queries = {name: texts[name] for name in qrels if name in texts}
    if not queries:
        raise UserError(f"{path} judges no query of {root / 'queries.jsonl'}; do their ids belong together?")
    if absent := len(qrels) - len(queries):
        log.info(f"{absent:,} judged queries are not in queries.jsonl, and are left out")
    qrels = {name: qrels[name] for name in queries}
    if absent := len({place for judged in qrels.values() for place in judged if place not in corpus}):
        log.info(f"{absent:,} judged passages are not in corpus.jsonl, and are never retrieved")
    return Collection(corpus, queries, qrels, {})


def _file(root: Path, name: str, remedy: str = "") -> Path:
    """A file of a folder, perhaps compressed by gzip. Raises UserError where it is absent."""
    paths = [root / name, root / f"{name}.gz"]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(
            f"{root} has no {name}{remedy or '; collections of BEIR have corpus.jsonl, queries.jsonl, qrels/'}"
        )
    return path


def _splits(root: Path) -> str:
    names = sorted(path.name.partition(".tsv")[0] for path in (root / "qrels").glob("*.tsv*"))
    return ", ".join(names) or "none"


def _records(path: Path, is_titled: bool) -> Iterator[tuple[str, str]]:
    """Ids and texts of a file of JSON lines. Raises UserError for another line, an id twice, and no line at all."""
    seen: set[str] = set()
    hints = {"_id": str | int, "text": str, "title": str | None}
    for line_number, line in opening.lines(str(path)):
        if not line.strip():
            continue
        where = f"{path}, line {line_number}"
        with user_errors():
            record = check_object(f"{where}: ", json_text.parse(line, where), hints)
        if not {"_id", "text"} <= record.keys():
            raise UserError(f"{where} has no {'text' if '_id' in record else '_id'}; correct it")
        name = str(record["_id"])
        if name in seen:
            raise UserError(f"{where} has the _id {name!r} of an earlier line; remove one of them")
        seen.add(name)
        title = (record.get("title") or "") if is_titled else ""
        text = f"{title} {record['text']}".strip()
        if not text and not is_titled:
            raise UserError(f"{where} is a query without text; remove it")
        yield name, text
    if not seen:
        raise UserError(f"{path} is empty; download it again")


def _judgments(path: Path) -> dict[str, dict[str, int]]:
    """Of each query, the relevance of passages. Raises UserError for a line that is not query, passage, score."""
    qrels: dict[str, dict[str, int]] = {}
    for line_number, line in opening.lines(str(path)):
        parts = line.split("\t")
        if not line.strip() or (line_number == 1 and parts[:1] == ["query-id"]):
            continue
        if len(parts) != 3 or not parts[2].strip().removeprefix("-").isdecimal():
            raise UserError(
                f"{path}, line {line_number} must be a query's id, a passage's id and a whole number, with tabs between"
            )
        query, passage, score = (part.strip() for part in parts)
        if qrels.setdefault(query, {}).setdefault(passage, int(score)) != int(score):
            raise UserError(
                f"{path}, line {line_number} judges {passage!r} for {query!r} again, and otherwise; remove one of them"
            )
    return qrels

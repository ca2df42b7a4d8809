"""Text from the corpus that ships with Python, or from files: a list of documents, and the part held out for validation."""

import ast
import glob
import gzip
import hashlib
import json
import re
import sys
import sysconfig
import warnings
import zlib
from pathlib import Path

from train import UserError, cache
from train.config import Data

# Modules whose docstrings are about other things than Python, or that are tests.
_SKIPPED = {"test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "site-packages", "pydoc_data"}


def load(data: Data) -> tuple[list[str], list[str]]:
    """Documents to train on and documents to validate on."""
    documents = read(data.source, data)
    if data.eval:
        return documents, read(data.eval, data)
    return hold_out(documents)


def read(source: str, data: Data) -> list[str]:
    """The documents of one source, none of them blank. Raises UserError where there are none, or a file is not what it should be."""
    if source == "builtin":
        return builtin()
    paths = sorted(glob.glob(source, recursive=True))
    if not paths:
        raise UserError(f"no file matches {source!r}; give a path or a quoted glob of .txt or .jsonl files, or builtin")
    documents = [document for path in paths for document in _read_file(Path(path), data)]
    if not documents:
        raise UserError(f"{source} holds no text; check the file, or choose another")
    return documents


def hold_out(documents: list[str]) -> tuple[list[str], list[str]]:
    """The last tenth of a single document, or the tenth of many whose hash says so, at least one."""
    if len(documents) == 1:
        (text,) = documents
        cut = int(len(text) * 0.9)
        return [text[:cut]], [text[cut:]]
    hashes = [hashlib.sha256(document.encode("utf-8", "surrogatepass")).digest() for document in documents]
    chosen = {digest for digest in hashes if digest[0] % 10 == 0}
    if not chosen or chosen == set(hashes):
        chosen = {min(hashes)}
    train = [document for document, digest in zip(documents, hashes, strict=True) if digest not in chosen]
    held = [document for document, digest in zip(documents, hashes, strict=True) if digest in chosen]
    return train, held


def builtin() -> list[str]:
    """About 2 MB of English that is on every machine: Python's language reference topics and the standard library's docstrings.

    A topic is a document and so are the docstrings of a module. Repeated docstrings are dropped, and runs of a punctuation mark, mostly
    rulers, become one. The text depends on the version of Python, hence the hash in run.json.
    """
    path = cache.folder() / f"builtin-{cache.digest([sys.version, _punctuation.pattern])}.json"
    if not path.exists():
        cache.write(path, json.dumps(_extract()).encode())
    return json.loads(path.read_text())


def _extract() -> list[str]:
    from pydoc_data.topics import topics

    documents = [topics[name] for name in sorted(topics)]
    root, seen = Path(sysconfig.get_path("stdlib")), set()
    for path in sorted(root.rglob("*.py")):
        if _SKIPPED.isdisjoint(path.relative_to(root).parts):
            fresh = [text for text in _docstrings(path) if text not in seen]
            seen.update(fresh)
            documents.append("\n\n".join(dict.fromkeys(fresh)))
    cleaned = (_punctuation.sub(r"\1", text).strip() for text in documents)
    return [text for text in dict.fromkeys(cleaned) if text]


_punctuation = re.compile(r"([^\w\s])\1+")


def _docstrings(path: Path) -> list[str]:
    """Of a module, its classes and its functions. Files that this Python cannot parse (templates, other versions) have none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [text for node in ast.walk(tree) if isinstance(node, kinds) if (text := ast.get_docstring(node))]


def _read_file(path: Path, data: Data) -> list[str]:
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a quoted glob of its files, such as '{path}/*.txt'")
    if kind not in (".txt", ".jsonl"):
        raise UserError(f"{path} is not a .txt or .jsonl file, nor one of these with .gz")
    text = _read_text(path)
    documents = _json_lines(path, text, data.field) if kind == ".jsonl" else _SPLITS[data.split](text)
    return [document for document in documents if document.strip()]


_SPLITS = {
    "file": lambda text: [text],
    "line": str.splitlines,
    "blank-line": lambda text: re.split(r"\n\s*\n", text),
}


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except PermissionError as error:
        raise UserError(f"{path} may not be read; change its permissions") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a whole .gz file ({error}); compress it again") from error
    if b"\0" in raw[:100_000]:
        raise UserError(f"{path} is a binary file; give a text file")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}); convert it, for example with iconv -t UTF-8") from error


def _json_lines(path: Path, text: str, field: str) -> list[str]:
    documents = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(value, dict) or not isinstance(value.get(field), str):
            names = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            raise UserError(f"{path}, line {number} has no text field {field!r} (it has {names}); name the field with --data.field=NAME")
        documents.append(value[field])
    return documents

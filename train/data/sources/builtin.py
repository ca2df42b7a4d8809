"""English text that every machine has: Python's reference topics and the docstrings of its library, about 2 MB."""

import ast
import re
import sys
import sysconfig
import warnings
from pathlib import Path

from train.files import cache

# Modules that are tests, or are not about Python.
_SKIPPED = {"test", "tests", "idle_test", "idlelib", "lib2to3", "turtledemo", "site-packages", "pydoc_data"}

_PUNCTUATION = re.compile(r"([^\w\s])\1+")


def documents() -> list[str]:
    """One document for each topic, and one for the docstrings of each module.

    Repeated docstrings are dropped. Runs of a punctuation mark (rulers) become one mark. The text depends on the
    version of Python, hence the hash in run.json.
    """
    return cache.json_value(f"builtin-{cache.digest([sys.version, _PUNCTUATION.pattern])}", _extract)


def _extract() -> list[str]:
    from pydoc_data.topics import topics

    texts = [topics[name] for name in sorted(topics)]
    root, seen = Path(sysconfig.get_path("stdlib")), set()
    for path in sorted(root.rglob("*.py")):
        if _SKIPPED.isdisjoint(path.relative_to(root).parts):
            fresh = [text for text in _docstrings(path) if text not in seen]
            seen.update(fresh)
            texts.append("\n\n".join(dict.fromkeys(fresh)))
    cleaned = (_PUNCTUATION.sub(r"\1", text).strip() for text in texts)
    return [text for text in dict.fromkeys(cleaned) if text]


def _docstrings(path: Path) -> list[str]:
    """Docstrings of a module, its classes and functions; none of a file that this Python cannot parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [text for node in ast.walk(tree) if isinstance(node, kinds) if (text := ast.get_docstring(node))]

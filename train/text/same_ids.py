"""Whether two tokenizers have the same ids, on strings that tell tokenizers apart."""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.files.strict_json import json_text
from train.text import extra_tokens, hf_roles, tokenizer_classes, tokenizer_files
from train.text.special import AnyTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STRINGS = (
    "In 2023 the café sold 1,250 naïve e-mails at 3.14 each; don't ask why.",
    "  Two spaces,\ttabs\nand lines  ",
    "ÄÖÜ möchte FRÜH; İstanbul, Straße, fiancée.",
    "東京タワーへ行く。 한국어 ไทย हिन्दी שלום مرحبا",
    "молоко и хлеб, Ελλάδα",
    "def f(x_1): return x_1**2 + 10000000  # {a: [b]}",
    "😀 👩‍👩‍👧 http://a.b/c?d=e#f x@y.z",
    "THE Cat sat ON the MAT'S edge... or not?!",
)


def differing(tokenizer: AnyTokenizer, again: AnyTokenizer) -> int:
    """How many of the strings have other ids, without what stands around a text."""
    sides = [side.encode_batch(list(STRINGS), add_special_tokens=False) for side in (tokenizer, again)]
    return sum(first.ids != second.ids for first, second in zip(*sides, strict=True))


def keep_ids(folder: Path) -> None:
    """Lets transformers 5 read tokenizer.json as it is, where the folder's class would prepare texts in another way.

    It takes the vocabulary alone for the classes that it knows. A generic class has no rules of its own.
    """
    path = folder / hf_roles.CONFIG
    if not (folder / "tokenizer.json").exists() or not path.exists():
        return
    again = _by_class(folder)
    if again is None:
        return
    from tokenizers import Tokenizer

    if differing(Tokenizer.from_file(str(folder / "tokenizer.json")), again):
        fields = json.loads(path.read_text(encoding="utf-8")) | {"tokenizer_class": "PreTrainedTokenizerFast"}
        path.write_text(json_text(fields, indent=2) + "\n", encoding="utf-8")


def _by_class(folder: Path) -> "Tokenizer | None":
    """The vocabulary of tokenizer.json by the rules of the folder's class; None where that is not known."""
    name = tokenizer_files.read(folder).class_name
    rules = tokenizer_classes.CLASSES.get(name)
    if rules is None or rules.files not in (("vocab.txt",), ("vocab.json", "merges.txt")):
        return None
    model: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    vocab = model.get("vocab")
    if not isinstance(vocab, dict):
        return None
    with tempfile.TemporaryDirectory() as temporary:
        to = Path(temporary)
        for file in (hf_roles.CONFIG, extra_tokens.MAP):
            if (folder / file).exists():
                (to / file).write_bytes((folder / file).read_bytes())
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges", ())]
        (to / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n", encoding="utf-8")
        (to / "vocab.json").write_text(json_text(vocab), encoding="utf-8")
        (to / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
        try:
            return tokenizer_classes.read(to)
        except ValueError:
            return None  # the class does not fit the vocabulary: transformers cannot take it either

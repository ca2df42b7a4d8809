"""Each field of each file of all-MiniLM-L6-v2 removed or changed: the vectors of sentence-transformers, or a sentence
with the field; no silence.

Where the library fails, vectors here are no other ones.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from mutants import ABSENT, mutations
from small import call

from real import folders
from train.lab import embed

pytestmark = pytest.mark.real

TEXTS = ["A man, naïve as a café, is dancing in 東京.", "It is NOT what i never saw " * 60, "two kittens"]
# Files, and in how many tests their mutants are shared.
PARTS = {
    "config.json": 6,
    "tokenizer_config.json": 4,
    "special_tokens_map.json": 2,
    "sentence_bert_config.json": 1,
    "1_Pooling/config.json": 2,
    "modules.json": 2,
}
# They say who wrote a folder, or what training alone reads.
SILENT = set(
    "_name_or_path name_or_path transformers_version architectures attention_probs_dropout_prob gradient_checkpointing "
    "hidden_dropout_prob initializer_range use_cache idx name model_type".split()
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folders.minilm(tmp_path_factory.mktemp("minilm"))


def copied(source, to):
    """A folder whose weights are those of the source."""
    for path in source.rglob("*"):
        if path.is_file():
            target = to / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target) if path.suffix == ".safetensors" else target.write_bytes(path.read_bytes())
    return to


def mutants(content):
    """(field, value, content) for every change of one field of an object, or of one object of a list."""
    if isinstance(content, list):
        for index, entry in enumerate(content):
            yield "type", "entry removed", content[:index] + content[index + 1 :]
            for field, value, changed in mutants(entry):
                yield field, value, [*content[:index], changed, *content[index + 1 :]]
        return
    for field, value in content.items():
        for mutant in mutations(field, value) if field not in SILENT else ():
            changed = {name: old for name, old in (content | {field: mutant}).items() if old is not ABSENT}
            yield field, "absent" if mutant is ABSENT else repr(mutant), changed


def expected(path):
    """What the library makes of the texts; None where it fails."""
    from sentence_transformers import SentenceTransformer

    try:
        return SentenceTransformer(str(path), device="cpu").encode(TEXTS)
    except Exception:  # whatever its validation, torch or a shape raises
        return None


def verdict(path, file, field, to):
    """How a folder is read; "silent ..." where its vectors are others, and no line names the field or its file."""
    (to / "texts.txt").write_text("\n".join(text.strip() for text in TEXTS) + "\n")
    code, _, err = call(embed.main, f"--run={path}", f"--file={to / 'texts.txt'}", f"--to={to / 'vectors.npy'}")
    if code:
        return (
            "refused"
            if code == 2 and (field in err or file in err)
            else f"silent: exit code {code}, {err.splitlines()[-1:]}"
        )
    vectors, of_library = np.load(to / "vectors.npy"), expected(path)
    if of_library is None:
        return "the library fails"
    if vectors.shape == of_library.shape and np.abs(vectors - of_library).max() < 1e-5:
        return "equal"
    return "said" if field in err else "silent"


@pytest.mark.parametrize(
    ("file", "part"), [(file, part) for file, parts in PARTS.items() for part in range(parts)], ids=str
)
def test_no_field_is_read_otherwise_in_silence(folder, tmp_path, file, part):
    pytest.importorskip("sentence_transformers")
    path = copied(folder, tmp_path / "mutant")
    content, verdicts = json.loads((path / file).read_text()), {}
    for field, value, changed in [*mutants(content)][part :: PARTS[file]]:
        Path(path / file).write_text(json.dumps(changed))
        verdicts[field, value] = verdict(path, file, field, tmp_path)
    counts = {name: [*verdicts.values()].count(name) for name in sorted(set(verdicts.values()))}
    print(f"{file}: {len(verdicts)} mutants, {counts}")
    assert not {name: reason for name, reason in verdicts.items() if reason.startswith("silent")}

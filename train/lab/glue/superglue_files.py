"""The JSON lines of SuperGLUE as rows of `text`, `pair`, `label` and `idx`.

MultiRC nests answers in questions in a passage, and ReCoRD has entities as spans of a passage and queries with a gap.
Both become pairs: each answer is right or wrong, and so is each entity in the gap. COPA becomes two pairs a question.
WiC and WSC mark their words in the text, with asterisks and number signs, as T5 does (Raffel et al. 2019, section 2.4).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tfm.options import json_text
from train import UserError
from train.data.sources import files
from train.data.sources.files import Row
from train.lab.glue.glue_rows import GlueRow
from train.lab.glue.suites import GlueTask
from train.settings.gate import user_errors

# What a choice of COPA is an answer to (Roemmele et al. 2011).
_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}

# The texts of the tasks that are a pair.
_PAIRS = (("premise", "hypothesis"), ("question", "passage"), ("sentence1", "sentence2"))


def read(path: Path, task: GlueTask, labelled: bool) -> list[GlueRow]:
    """The rows of a file. Raises UserError for a line that is not as the task has it."""
    rows: list[GlueRow] = []
    for line_number, line in enumerate(files.read_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {line_number}"
        with user_errors():
            row = json_text.parse_object(line, where)
        rows += convert(_flat(row, task, where), task, labelled, where)
    if not rows:
        raise UserError(f"{path} holds no rows; fetch the file again")
    return rows


def convert(flat_rows: Iterable[Row], task: GlueTask, labelled: bool, where: str) -> list[GlueRow]:
    """Rows as TensorFlow data sets have them -> rows to train on. Raises UserError, which names `where`.

    An `answers` or `entity` row has `idx` (passage, question, answer) or the query, and the latter its `entity` and
    the right `answers`; of an unlabelled file none has a label.
    """
    rows: list[GlueRow] = []
    for flat in flat_rows:
        try:
            rows += _CONVERTERS.get(task.name, _pair)(flat, task, labelled)
        except KeyError as error:
            raise UserError(f"{where} has no {error} (it has {', '.join(map(str, flat))}); fetch it again") from error
        except (TypeError, AttributeError) as error:
            raise UserError(f"{where} has a field of another type than {task.name} has: {error}") from error
        except ValueError as error:
            raise UserError(f"{where} {error}; repair it") from error
    return rows


def _flat(row: Row, task: GlueTask, where: str) -> Iterator[Row]:
    """The objects in a line, as the TensorFlow data set has them."""
    try:
        if task.name == "MultiRC":
            for question in row["passage"]["questions"]:
                for answer in question["answers"]:
                    idx = {"paragraph": row["idx"], "question": question["idx"], "answer": answer["idx"]}
                    texts = {"paragraph": row["passage"]["text"], "question": question["question"]}
                    yield texts | {"answer": answer["text"], "idx": idx, "label": answer.get("label")}
        elif task.name == "ReCoRD":
            passage = row["passage"]["text"]
            entities = {passage[span["start"] : span["end"] + 1]: True for span in row["passage"]["entities"]}
            for query in row["qas"]:
                answers = list({answer["text"]: True for answer in query.get("answers") or ()})
                gap = {"passage": passage, "query": query["query"], "entities": list(entities)}
                yield gap | {"answers": answers, "idx": {"passage": row["idx"], "query": query["idx"]}}
        else:
            yield {**row, **row["target"]} if task.name == "WSC" else row
    except KeyError as error:
        raise UserError(f"{where} has no {error}; fetch the file again") from error
    except (TypeError, AttributeError) as error:
        raise UserError(f"{where} is not built as {task.name} is: {error}") from error


def _pair(flat: Row, task: GlueTask, labelled: bool) -> list[GlueRow]:
    """BoolQ, CB, RTE and the diagnostics: two texts; of a passage and its question, the question comes first."""
    first, second = next((names for names in _PAIRS if names[0] in flat), _PAIRS[0])
    texts: GlueRow = {"text": _text(flat, first), "pair": _text(flat, second)}
    return [texts | {"idx": flat["idx"]} | _labels(flat, task, labelled)]


def _word_in_context(flat: Row, task: GlueTask, labelled: bool) -> list[GlueRow]:
    """WiC: a word in two sentences, between asterisks; places are characters, the end is excluded."""
    marked = []
    for side in ("1", "2"):
        text, start, end = _text(flat, f"sentence{side}"), flat[f"start{side}"], flat[f"end{side}"]
        if not 0 <= start < end <= len(text):
            raise ValueError(f"has the word at {start}-{end} in a sentence of {len(text)} characters")
        marked.append(f"{text[:start]}*{text[start:end]}*{text[end:]}")
    texts: GlueRow = {"text": marked[0], "pair": marked[1]}
    return [texts | {"idx": flat["idx"]} | _labels(flat, task, labelled)]


def _coreference(flat: Row, task: GlueTask, labelled: bool) -> list[GlueRow]:
    """WSC: one text, in which a noun stands between asterisks and a pronoun between number signs.

    Places are indexes of words. Some are off by a few, so that the nearest place with the same words is taken.
    """
    words = _text(flat, "text").split(" ")
    marks = (
        (flat["span1_index"], _text(flat, "span1_text"), "*"),
        (flat["span2_index"], _text(flat, "span2_text"), "#"),
    )
    for index, span, mark in marks:
        size = len(span.split())
        starts = [start for start in range(len(words)) if _begins(words[start : start + size], span)]
        if not 0 <= index < len(words):
            raise ValueError(f"has a span at word {index} in a text of {len(words)} words")
        start = min(starts, key=lambda start: abs(start - index), default=index)
        last = min(start + size, len(words)) - 1
        words[start] = mark + words[start]
        words[last] += mark
    return [{"text": " ".join(words), "idx": flat["idx"]} | _labels(flat, task, labelled)]


def _begins(words: list[str], span: str) -> bool:
    """Whether words are a span, but for case and the punctuation and marks around it."""
    return [word.strip(".,;:!?'\"*#").lower() for word in words] == [
        word.strip(".,;:!?'\"").lower() for word in span.split()
    ]


def _choices(flat: Row, task: GlueTask, labelled: bool) -> list[GlueRow]:
    """COPA: a pair of the premise and its question with each choice; the label says whether it is the right one."""
    if flat["question"] not in _QUESTIONS:
        raise ValueError(f"asks for {flat['question']!r}, neither cause nor effect")
    text = f"{_text(flat, 'premise')} {_QUESTIONS[flat['question']]}"
    right = {"choice1": 0, "choice2": 1}.get(flat["label"], flat["label"]) if labelled else None
    if labelled and right not in (0, 1):
        raise ValueError(f"has the label {flat['label']!r}, neither 0 nor 1")
    rows: list[GlueRow] = []
    for choice in (0, 1):
        row: GlueRow = {"text": text, "pair": _text(flat, f"choice{choice + 1}"), "idx": [flat["idx"], choice]}
        rows.append(row | {"label": str(int(choice == right))} if labelled else row)
    return rows


def _answer(flat: Row, task: GlueTask, labelled: bool) -> list[GlueRow]:
    """MultiRC: a passage, and a question with an answer."""
    idx = [flat["idx"][name] for name in ("paragraph", "question", "answer")]
    pair = f"{_text(flat, 'question')} {_text(flat, 'answer')}"
    return [{"text": _text(flat, "paragraph"), "pair": pair, "idx": idx} | _labels(flat, task, labelled)]


def _entities(flat: Row, task: GlueTask, labelled: bool) -> list[GlueRow]:
    """ReCoRD: a passage, and a query with each entity in its gap.

    A passage without entities has a row with none, so that its query counts as unanswered.
    """
    passage = " ".join(_text(flat, "passage").replace("@highlight", " ").split())
    query, answers = _text(flat, "query"), list(flat["answers"])
    if "@placeholder" not in query:
        raise ValueError("has a query without @placeholder")
    rows: list[GlueRow] = []
    for entity in flat["entities"] or [""]:
        pair = query.replace("@placeholder", entity)
        row: GlueRow = {"text": passage, "idx": flat["idx"]["query"], "pair": pair, "entity": entity}
        rows.append(row | {"answers": answers, "label": str(int(entity in answers))} if labelled else row)
    return rows


def _labels(flat: Row, task: GlueTask, labelled: bool) -> GlueRow:
    """The label as the table of tasks writes it: true and True and a boolean are one, and so are 1 and true."""
    if not labelled:
        return {}
    label = str(flat["label"]).lower()
    if task.labels == ("0", "1"):
        label = {"false": "0", "true": "1"}.get(label, label)
    if label not in task.labels:
        raise ValueError(f"has the label {flat['label']!r}; {task.name} has {', '.join(task.labels)}")
    return {"label": label}


def _text(flat: Row, name: str) -> str:
    if not isinstance(flat[name], str):
        raise TypeError(f"{name} is no text")
    return flat[name]


_CONVERTERS: Mapping[str, Callable[[Row, GlueTask, bool], list[GlueRow]]] = {
    "COPA": _choices,
    "MultiRC": _answer,
    "ReCoRD": _entities,
    "WiC": _word_in_context,
    "WSC": _coreference,
}

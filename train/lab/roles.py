"""What the places of a batch are for: special tokens, masks, targets and padding, read off the fields that a task
declares, whatever the task is."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from train.data.fields import BatchSpec, Field
from train.text import tokenize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ROLES = {
    "text": "what the model reads",
    "special": "a token that is no text, such as [CLS] or the mark between documents",
    "masked": "hidden; behind the arrow, what stood there",
    "target": "counts in the loss; behind the arrow, what is right where it is not the token itself",
    "padding": "nothing: it is not read",
}

# Fields that are 0 where there is padding.
_FILLED = ("segments", "valid")


@dataclasses.dataclass
class TokenPlace:
    """A token of a row.

    text: the token as text
    role: one of ROLES
    target: what is right there, or after it; "" where that is the token itself, or nothing
    details: the values of all fields at this place, by name
    """

    text: str
    role: str = "text"
    target: str = ""
    details: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class RowView:
    """A row of a batch: its texts by the name of their field, and its fields that have one value a row."""

    texts: dict[str, list[TokenPlace]]
    values: dict[str, object]


@dataclasses.dataclass(frozen=True)
class RoleReader:
    """Reads batches of a task.

    spec: the fields of its batches
    tokenizer: turns ids into text
    classes: names of classes, where the task has any
    """

    spec: BatchSpec
    tokenizer: "Tokenizer"
    classes: Sequence[str] = ()

    def rows(self, batch: Mapping[str, np.ndarray]) -> Iterator[RowView]:
        """The rows of a batch, whose fields are [B, ...]."""
        names = [name for name, field in self.spec.items() if field.counts_tokens]
        for row in range(len(batch[names[0]])):
            fields = {name: _of_row(batch, name, row, len(batch[names[0]])) for name in self.spec}
            texts = {}
            for name in names:
                companions = self._companions(name, names, fields)
                stacked = fields[name].ndim > 1  # a row has several texts
                for index in range(len(fields[name])) if stacked else [None]:
                    part = {key: value if index is None else value[index] for key, value in companions.items()}
                    texts[name if index is None else f"{name} {index}"] = self._places(part.pop(name), part, fields)
            yield RowView(texts, {name: self._shown(name, value) for name, value in self._values(fields).items()})

    def _companions(self, name: str, names: Sequence[str], fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The fields with a value for each token of a text, by names without that of the text before them.

        Of several texts the last one has the targets.
        """
        chosen = {name: fields[name]}
        for key, field in self.spec.items():
            is_of_targets = field.weighs or bool(field.predicts)
            if field.axes != self.spec[name].axes or field.counts_tokens:
                continue
            owner = next((text for text in names if key.startswith(f"{text}_")), None)
            if owner is not None:
                if owner == name:
                    chosen[key.removeprefix(f"{name}_")] = fields[key]
            elif len(names) == 1 or is_of_targets == (name == names[-1]):
                chosen[key] = fields[key]
        return chosen

    def _values(self, fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: fields[name] for name, field in self.spec.items() if field.axes in ("B", "BC")}

    def _shown(self, name: str, value: np.ndarray) -> object:
        """A value of a row, as a person reads it; those of the texts that share it."""
        if value.ndim == len(self.spec[name].axes):
            return "; ".join(str(self._shown(name, of_text)) for of_text in value)
        values = value.tolist()
        if self.spec[name].predicts == "C" and isinstance(values, int):
            return self._target(self.spec[name], values)
        if self.spec[name].axes == "BC" and self.classes:
            return ", ".join(label for label, is_so in zip(self.classes, values, strict=True) if is_so)
        return round(values, 6) if isinstance(values, float) else values

    def _places(
        self, ids: np.ndarray, by_token: Mapping[str, np.ndarray], fields: Mapping[str, np.ndarray]
    ) -> list[TokenPlace]:
        """The places of a text."""
        special, tokens = tokenize.special_tokens(self.tokenizer), ids.tolist()
        special_ids = {*special, *self._special_ids}
        filled = next((by_token[name] > 0 for name in _FILLED if name in by_token), None)
        counted = next((by_token[name] > 0 for name in by_token if self.spec[name].weighs), np.zeros(len(ids), bool))
        places = []
        for index, token in enumerate(tokens):
            is_padding = token == special.pad and not counted[index] if filled is None else not filled[index]
            role = "padding" if is_padding else "special" if token in special_ids else "text"
            role = "masked" if token == special.mask and role == "special" else role
            details = {name: _plain(values[index]) for name, values in by_token.items()}
            places.append(TokenPlace(self._text(token), role, details={"place": index, "id": token, **details}))
        self._mark_targets(places, tokens, by_token, counted)
        self._mark_chosen(places, tokens, fields)
        return places

    def _mark_targets(
        self, places: list[TokenPlace], tokens: list[int], by_token: Mapping[str, np.ndarray], counted: np.ndarray
    ):
        """Targets of every place. Where it is the next token, that one is the target, and needs no arrow."""
        name = next((name for name in by_token if self.spec[name].predicts), None)
        if name is None:
            return
        field = self.spec[name]
        for index in np.flatnonzero(counted).tolist():
            right = int(by_token[name][index])
            if field.predicts == "V" and tokens[index + 1 : index + 2] == [right]:
                _become_target(places[index + 1])
            else:
                _become_target(places[index])
                places[index].target = self._target(field, right)

    def _mark_chosen(self, places: list[TokenPlace], tokens: list[int], fields: Mapping[str, np.ndarray]):
        """Targets of chosen places: the field `where` names them, or the target is itself a place (predicts T)."""
        if "where" in fields:
            for where, right, weight in zip(fields["where"], fields["targets"], fields["weights"], strict=True):
                if weight > 0:
                    _become_target(places[where])
                    kept = tokens[where] == right
                    places[where].target = "kept" if kept else self._text(int(right))
        for name in (name for name, field in self.spec.items() if field.predicts == "T"):
            for index in np.atleast_1d(fields[name]).tolist():
                _become_target(places[index])
                places[index].target = f"{places[index].target} {name}".strip()

    @property
    def _special_ids(self) -> set[int]:
        return {index for index, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}

    def _target(self, field: Field, index: int) -> str:
        if field.predicts == "V":
            return self._text(index)
        return str(self.classes[index]) if index < len(self.classes) else str(index)

    def _text(self, token: int) -> str:
        """A token as text, with its spaces and line breaks as signs."""
        text = self.tokenizer.decode([token], skip_special_tokens=False)
        if not text or "\ufffd" in text:
            text = self.tokenizer.id_to_token(token) or str(token)
        return text.replace(" ", "\u00b7").replace("\n", "\u23ce").replace("\t", "\u21e5")


def shares(rows: Sequence[RowView]) -> dict[str, float]:
    """The share of every role in the places of these rows."""
    roles = [place.role for row in rows for places in row.texts.values() for place in places]
    return {role: roles.count(role) / max(1, len(roles)) for role in ROLES}


def _of_row(batch: Mapping[str, np.ndarray], name: str, row: int, rows: int) -> np.ndarray:
    """A field of a row; of texts that share it, their values [n,...], without places where there is none."""
    field = np.asarray(batch[name])
    if len(field) == rows:
        return field[row]
    is_there = np.asarray(batch["rows"]).reshape(rows, -1)[row] >= 0
    return field.reshape(rows, -1, *field.shape[1:])[row][is_there]


def _become_target(place: TokenPlace):
    """A place counts in the loss: one that is masked says so already."""
    if place.role != "masked":
        place.role = "target"


def _plain(value: np.generic) -> float:
    """A number of a field; a whole one without a point."""
    plain = value.item()
    return int(plain) if plain == int(plain) else plain

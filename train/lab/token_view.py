"""Rows of a batch as a person looks at them: tokens coloured by role, on a terminal and as a page of HTML."""

import html
from collections.abc import Mapping, Sequence

from rich.text import Text

from train.lab.roles import RowView, TokenPlace

# Styles of roles on a terminal, and in a page: background, text.
STYLES = {"text": "", "special": "cyan", "masked": "bold white on red", "target": "bold green", "padding": "dim"}
COLORS = {
    "text": ("#ffffff", "#202020"),
    "special": ("#d6e8f7", "#10406b"),
    "masked": ("#c0392b", "#ffffff"),
    "target": ("#d5f0d2", "#145214"),
    "padding": ("#f0f0f0", "#a0a0a0"),
}

_STYLE = """body { font: 15px/1.3 system-ui, sans-serif; margin: 2em; max-width: 75em; color: #202020 }
h2 { font-size: 1em; margin: 1.6em 0 .3em } table { border-collapse: collapse } td { padding: .1em .8em .1em 0 }
.row { border: 1px solid #d0d0d0; border-radius: 5px; padding: .5em; margin: .3em 0 }
.t { display: inline-block; vertical-align: top; margin: 1px; padding: 0 3px; border-radius: 3px; text-align: center;
  font-family: ui-monospace, monospace; font-size: 13px }
.t small { display: block; font-size: 10px; min-height: 1.2em }
.seg { border-left: 3px solid #8e44ad; margin-left: 6px }
.values { color: #606060; font-size: 13px }"""


def terminal(row: RowView) -> Text:
    """A row in lines. A bar stands where another text of the row begins; padding is counted.

    A star follows a target that has no arrow, unless nearly all of the text are targets.
    """
    lines = Text()
    for name, places in row.texts.items():
        lines.append(f"{name}: ", "dim")
        padding, has_stars = 0, sum(place.role == "text" for place in places) > 1
        for index, place in enumerate(places):
            if place.role == "padding":
                padding += 1
                continue
            if index and _begins(places, index):
                lines.append("\u2502 ", "magenta")
            arrow = f"\u2192{place.target}" if place.target else ""
            star = "*" if has_stars and place.role == "target" and not arrow else ""
            lines.append(f"{place.text}{arrow}{star}", STYLES[place.role])
            lines.append(" ")
        lines.append(f"and {padding} of padding\n" if padding else "\n", "dim")
    values = "  ".join(f"{name} {value}" for name, value in row.values.items())
    if values:
        lines.append(f"{values}\n", "dim")
    return lines


def page(title: str, facts: Mapping[str, str], legend: Mapping[str, str], batches: Sequence[Sequence[RowView]]) -> str:
    """A page of HTML that needs no other file: a table of `facts`, the roles, and the rows of every batch."""
    lines = ["<!doctype html>", '<html lang="en"><head><meta charset="utf-8">', f"<title>{_safe(title)}</title>"]
    lines += [f"<style>{_STYLE}", *map(_rule, COLORS), "</style></head><body>", f"<h1>{_safe(title)}</h1>", "<table>"]
    lines += [f"<tr><td>{_safe(name)}</td><td>{_safe(value)}</td></tr>" for name, value in facts.items()]
    lines += [
        f'<tr><td><span class="t {role}">{role}</span></td><td>{_safe(legend[role])}</td></tr>' for role in COLORS
    ]
    lines += [
        "</table>",
        "<p>A bar on the left: another text begins. Hold the pointer over a token for its fields.</p>",
    ]
    for n, rows in enumerate(batches):
        for index, row in enumerate(rows):
            lines += [f"<h2>batch {n}, row {index}</h2>", *_row(row)]
    return "\n".join([*lines, "</body></html>", ""])


def _rule(role: str) -> str:
    background, text = COLORS[role]
    return f".{role} {{ background: {background}; color: {text} }}"


def _row(row: RowView) -> list[str]:
    """A row as boxes, one for each of its texts."""
    lines = []
    for name, places in row.texts.items():
        label = f'<div class="values">{_safe(name)}</div>' if len(row.texts) > 1 else ""
        tokens = (_token(place, index > 0 and _begins(places, index)) for index, place in enumerate(places))
        lines.append(f'<div class="row">{label}{"".join(tokens)}</div>')
    values = "; ".join(f"{name} {value}" for name, value in row.values.items())
    return [*lines, f'<div class="values">{_safe(values)}</div>']


def _token(place: TokenPlace, begins: bool) -> str:
    details = ", ".join(f"{name} {value}" for name, value in place.details.items())
    bar = " seg" if begins and place.role != "padding" else ""
    target = f"\u2192{place.target}" if place.target else ""
    return (
        f'<span class="t {place.role}{bar}" title="{_safe(details)}">{_safe(place.text)}'
        f"<small>{_safe(target)}</small></span>"
    )


def _begins(places: Sequence[TokenPlace], index: int) -> bool:
    """Whether another text begins at a place: its segment or its type is not that of the place before it."""
    before, current = places[index - 1].details, places[index].details
    return any(before.get(name) != current.get(name) for name in ("segments", "types"))


def _safe(text: object) -> str:
    return html.escape(str(text))

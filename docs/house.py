"""The house in one picture: the core and its catalogue, training and its tools, and the imports between their rooms.

The picture holds the hash of what it shows; a test compares it with the code."""

import ast
import hashlib
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import ConnectionPatch, FancyBboxPatch

ROOT = Path(__file__).parent.parent

# The parts of the house from left to right, with their colors; some are shelves, from which rooms are taken one by one.
COLORS = {"tfm": "#cfe3f5", "tfm/catalogue": "#e4eef8", "train": "#fde3cf", "train/lab": "#fdf1e7"}
TITLES = {
    "tfm": "tfm: the core",
    "tfm/catalogue": "tfm/catalogue",
    "train": "train",
    "train/lab": "train/lab: tools",
}

ARROW = {"arrowstyle": "->", "color": "0.7"}
SHELVES = ("tfm/catalogue", "train/lab")

Arrows = dict[str, set[str]]


class Place(NamedTuple):
    """Where a room stands: across, and the height above the ground, both from 0 to 1."""

    x: float
    y: float


def part_of(room: str) -> str:
    """The part of the house that a room is in."""
    return max((part for part in COLORS if f"{room}/".startswith(f"{part}/")), key=len)


def room_of(path: Path) -> str:
    """The folder below a part of the house that a file is in; files of the part itself are a room too."""
    folder = path.relative_to(ROOT).parent.as_posix()
    part = part_of(folder)
    below = folder.removeprefix(part).strip("/").split("/")[0]
    return f"{part}/{below}" if below else part


def read_rooms() -> Arrows:
    """The rooms that every room imports."""
    arrows: Arrows = {}
    for path in (path for package in ("tfm", "train") for path in sorted(ROOT.glob(f"{package}/**/*.py"))):
        room = room_of(path)
        arrows.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in COLORS:
                for alias in node.names:
                    target = _file_of(f"{node.module}.{alias.name}") or _file_of(node.module)
                    if target and room_of(target) != room:
                        arrows[room].add(room_of(target))
    return arrows


def _file_of(module: str) -> Path | None:
    """The file of a module."""
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def levels(arrows: Arrows) -> dict[str, int]:
    """How far a room stands above the ground: more than all it imports; rooms that import each other share a level."""
    level = dict.fromkeys(arrows, 0)
    for _ in arrows:
        for room in arrows:
            below = [level[target] for target in arrows[room] if room not in arrows[target]]
            level[room] = min(max(below, default=-1) + 1, len(arrows))
    return level


def rows_of(arrows: Arrows, part: str) -> list[list[str]]:
    """The rooms of a part in rows from the ground up; a shelf has one in a row."""
    rooms = sorted(room for room in arrows if part_of(room) == part)
    if part in SHELVES:
        return [[room] for room in reversed(rooms)]
    level = levels({room: arrows[room] & {*rooms} for room in rooms})
    return [[room for room in rooms if level[room] == height] for height in sorted({*level.values()})]


def places(rows: list[list[str]]) -> dict[str, Place]:
    """Where the rooms of a part stand."""
    return {
        room: Place((n + 0.5) / len(row), (height + 0.5) / len(rows))
        for height, row in enumerate(rows)
        for n, room in enumerate(row)
    }


def steps(arrows: Arrows, rows: list[list[str]]) -> list[tuple[str, str]]:
    """The arrows that are drawn in a part: from a room to one of the row below."""
    return sorted((room, target) for below, row in pairwise(rows) for room in row for target in arrows[room] & {*below})


def doors(arrows: Arrows) -> list[tuple[str, str]]:
    """The arrows from the core into the catalogue, but for the public names."""
    return sorted(
        (room, target)
        for room in arrows
        if part_of(room) == "tfm" and room != "tfm"
        for target in arrows[room]
        if part_of(target) == "tfm/catalogue"
    )


def fingerprint() -> str:
    """A hash of all that the picture shows."""
    arrows = read_rooms()
    parts = [(rows, steps(arrows, rows)) for rows in (rows_of(arrows, part) for part in COLORS)]
    return hashlib.sha256(repr((parts, doors(arrows))).encode()).hexdigest()


def draw_part(axis: Axes, part: str, rows: list[list[str]], arrows: Arrows) -> None:
    """A row a level; on a floor, an arrow leads to a room of the row below."""
    place = places(rows)
    for room, target in [] if part in SHELVES else steps(arrows, rows):
        start, end = place[room], place[target]
        axis.annotate("", (end.x, end.y + 0.024), (start.x, start.y - 0.024), arrowprops=ARROW)
    width = 0.9 / max(map(len, rows))
    for room, (x, y) in place.items():
        box = FancyBboxPatch((x - width / 2, y - 0.018), width, 0.036, "round,pad=0.004", color=COLORS[part])
        axis.add_patch(box)
        label = "*.py" if room == part else room.removeprefix(f"{part}/")
        axis.text(x, y, label, ha="center", va="center", fontsize=9)
    axis.set(xlim=(0, 1), ylim=(0, 1))
    axis.set_title(TITLES[part], fontsize=12)
    axis.axis("off")


def draw(path: Path) -> None:
    """The parts beside each other; dashed arrows lead from the core into the catalogue."""
    arrows = read_rooms()
    figure, axes = plt.subplots(1, 4, figsize=(14, 8), width_ratios=(2.4, 0.8, 2.4, 0.8))
    rows = {part: rows_of(arrows, part) for part in COLORS}
    for axis, part in zip(axes, COLORS, strict=True):
        draw_part(axis, part, rows[part], arrows)
    figure.tight_layout(w_pad=4)
    place, shelves = places(rows["tfm"]), places(rows["tfm/catalogue"])
    half = 0.45 / max(map(len, rows["tfm"]))
    for room, target in doors(arrows):
        ends = (place[room].x + half, place[room].y), (0.02, shelves[target].y)
        patch = ConnectionPatch(*ends, "data", "data", axesA=axes[0], axesB=axes[1], linestyle="--", zorder=0, **ARROW)
        axes[0].add_artist(patch)
    figure.savefig(path, dpi=110, metadata={"Description": fingerprint()})
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(__file__).parent / "pictures" / "house.png")

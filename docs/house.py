"""The house in one picture: rooms of the two packages, and who imports whom, read from the code.

The picture holds the hash of what it shows; a test compares it with the code."""

import ast
import hashlib
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).parent.parent
COLORS = {"tfm": "#cfe3f5", "train": "#fde3cf"}


def room_of(path: Path) -> str:
    """The folder below the package that a file is in; files of the package itself are a room too."""
    parts = path.relative_to(ROOT).parts
    if len(parts) > 2:
        return f"{parts[0]}/{parts[1]}"
    return f"{parts[0]} (core)"


def read_rooms() -> dict[str, set[str]]:
    """The rooms that every room imports."""
    arrows: dict[str, set[str]] = {}
    for path in (path for package in COLORS for path in sorted(ROOT.glob(f"{package}/**/*.py"))):
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


def levels(arrows: dict[str, set[str]], rooms: list[str]) -> dict[str, int]:
    """How far a room stands above the ground: more than all it imports; rooms that import each other share a level."""
    level = dict.fromkeys(rooms, 0)
    for _ in rooms:
        for room in rooms:
            below = [level[target] for target in arrows[room] if room not in arrows[target]]
            level[room] = min(max(below, default=-1) + 1, len(rooms))
    return level


def places(arrows: dict[str, set[str]], package: str) -> dict[str, tuple[float, int]]:
    """Where the rooms of a package stand: across, from 0 to 1, and the row from below."""
    rooms = sorted(room for room in arrows if room.startswith(package))
    level = levels({room: arrows[room] & {*rooms} for room in rooms}, rooms)
    result = {}
    for height, row in enumerate(sorted({*level.values()})):
        members = [room for room in rooms if level[room] == row]
        result |= {room: ((n + 0.5) / len(members), height) for n, room in enumerate(members)}
    return result


def steps(arrows: dict[str, set[str]], place: dict[str, tuple[float, int]]) -> list[tuple[str, str]]:
    """The arrows that are drawn: from a room to one of the row below."""
    return sorted(
        (room, target) for room in place for target in arrows[room] & {*place} if place[room][1] - place[target][1] == 1
    )


def fingerprint() -> str:
    """A hash of all that the picture shows."""
    arrows = read_rooms()
    shown = [(place, steps(arrows, place)) for place in (places(arrows, package) for package in COLORS)]
    return hashlib.sha256(repr(shown).encode()).hexdigest()


def draw(path: Path) -> None:
    """A row a level; an arrow leads to a room of the row below."""
    arrows = read_rooms()
    figure, axes = plt.subplots(1, 2, figsize=(13, 7.5), width_ratios=(1, 1))
    for axis, package in zip(axes, COLORS, strict=True):
        place = places(arrows, package)
        for room, target in steps(arrows, place):
            (x0, y0), (x1, y1) = place[room], place[target]
            axis.annotate("", (x1, y1 + 0.24), (x0, y0 - 0.24), arrowprops={"arrowstyle": "->", "color": "0.6"})
        for room, (x, y) in place.items():
            box = FancyBboxPatch((x - 0.085, y - 0.2), 0.17, 0.4, "round,pad=0.005", color=COLORS[package])
            axis.add_patch(box)
            axis.text(x, y, room.split("/")[-1], ha="center", va="center", fontsize=8)
        rows = max(row for _, row in place.values()) + 1
        axis.set(xlim=(0, 1), ylim=(-0.5, rows - 0.5), title=package)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Description": fingerprint()})
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(__file__).parent / "pictures" / "house.png")

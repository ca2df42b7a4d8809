"""What a compiled program is made of and what it sends between devices, read from its text (XLA's HLO)."""

import collections
import dataclasses
import functools
import math
import re

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")

# Bytes sent by a device for each byte of what a collective hands back, on a ring of n (Thakur et al. 2005, section 4).
_SENT = {
    "all-gather": lambda n: (n - 1) / n,
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "reduce-scatter": lambda n: n - 1,
    "all-to-all": lambda n: (n - 1) / n,
}

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z0-9\-]*)\(")
_CALLED = re.compile(
    r"(body|condition|calls|to_apply|true_computation|false_computation|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_ARRAY = re.compile(r"\b(pred|[sufc]\d+|bf16|f8\w*)\[([\d,]*)\]")


@dataclasses.dataclass
class Traffic:
    """Collectives of a kind in a step: how many run, and how many bytes each device sends."""

    number: int = 0
    sent: float = 0.0


def collectives(text: str) -> dict[str, Traffic]:
    """The collectives of a program, by kind; one in a loop counts as often as the loop runs.

    What a device sends is what a ring takes. A collective that the compiler spreads over several fusions, to overlap with products, has one
    channel and counts once.
    """
    program, entry = _read(text)
    times = _times(program, entry)
    seen: dict[str, tuple[str, int, float]] = {}
    for name, lines in program.items():
        for number, (kind, shape, line) in enumerate(lines):
            plain = kind.removesuffix("-start")
            if plain not in KINDS or not times[name]:
                continue
            channel = re.search(r"channel_id=(\d+)", line)
            key = f"{plain} {channel[1]}" if channel else f"{name} {number}"
            if key not in seen or seen[key][1] < times[name]:
                seen[key] = plain, times[name], _sent(plain, shape, line, started=kind != plain)
    found: dict[str, Traffic] = collections.defaultdict(Traffic)
    for kind, often, sent in seen.values():
        found[kind].number += often
        found[kind].sent += often * sent
    return dict(found)


# Instructions whose work is that of others.
_FRAMES = ("while", "conditional", "call", "parameter", "tuple", "get-tuple-element")


def origins(text: str) -> dict[str, str]:
    """The instructions of a program by name, each with what of the traced function it comes from; those that do nothing are left out."""
    found: dict[str, str] = {}
    for lines in _read(text)[0].values():
        for kind, _, line in lines:
            source = re.search(r'op_name="([^"]*)"', line)
            if kind not in _FRAMES and (name := _INSTRUCTION.match(line)):
                found[name[1]] = source[1] if source else kind
    return found


Line = tuple[str, str, str]


def _read(text: str) -> tuple[dict[str, list[Line]], str]:
    """The instructions of every computation, as kind, type and line; and the name of the one that the program begins with."""
    program: dict[str, list[Line]] = {}
    entry = here = ""
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            here = head[2]
            program[here] = []
            entry = here if head[1] else entry
        elif here and (found := _INSTRUCTION.match(line)):
            program[here].append((found[3], found[2], line))
    return program, entry


def _times(program: dict[str, list[Line]], entry: str) -> dict[str, int]:
    """How often each computation runs."""
    callers: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    for name, lines in program.items():
        for kind, _, line in lines:
            called = [(role, each) for role, names in _CALLED.findall(line) for each in re.findall(r"[\w.\-]+", names)]
            often = _trips(program, line, dict(called)) if kind == "while" else 1
            for _, each in called:
                callers[each].append((name, often))

    @functools.cache
    def times(name: str) -> int:
        return 1 if name == entry else sum(often * times(caller) for caller, often in callers[name])

    return {name: times(name) for name in program}


def _trips(program: dict[str, list[Line]], line: str, called: dict[str, str]) -> int:
    """How often a loop runs: as the compiler notes, or what its condition compares the counter with; 1 where neither is known."""
    noted = re.search(r'known_trip_count\\?":\{\\?"n\\?":\\?"(\d+)', line)
    if noted:
        return int(noted[1])
    condition = program.get(called.get("condition", ""), [])
    limits = [
        int(found[1])
        for kind, _, each in condition
        if kind == "constant" and (found := re.search(r"constant\((\d+)\)", each))
    ]
    return max(limits, default=1)


def _sent(kind: str, shape: str, line: str, started: bool) -> float:
    """Bytes that a device sends for one collective with a result of this type."""
    n = _group(line)
    size = sum(_bytes(*array) for array in _ARRAY.findall(shape))
    if started and kind == "all-gather":
        size *= n / (n + 1)  # the type of a start holds what goes in, too
    if started and kind in ("collective-permute", "all-to-all", "collective-broadcast"):
        size /= 2
    if started and kind == "reduce-scatter":
        size /= n + 1
    return size * _SENT.get(kind, lambda n: 1.0)(n)


def _group(line: str) -> int:
    """The devices that take part in one group: replica_groups={{0,1},{2,3}}, [2,4]<=[8], or mesh['a'=2,'b'=4] {'b'}."""
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return listed[1].count(",") + 1
    if counted := re.search(r"replica_groups=\[(?:\d+,)*(\d+)\]<=", line):
        return int(counted[1])
    if named := re.search(r"replica_groups=@?mesh\[([^\]]*)\] ?\{([^}]*)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return math.prod(int(sizes.get(name, 1)) for name in re.findall(r"'(\w+)'", named[2]))
    return 2


def _bytes(kind: str, dimensions: str) -> float:
    """Bytes of an array: f32[2,3] are 24."""
    bits = 8 if kind.startswith(("pred", "f8")) else int(re.sub(r"\D", "", kind))
    return bits / 8 * math.prod(int(size) for size in dimensions.split(",") if size)

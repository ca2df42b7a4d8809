"""The collectives and the origins of instructions of a compiled program, read from its text (XLA's HLO)."""

import collections
import dataclasses
import functools
import math
import re

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")

# Bytes that a device sends for each byte of a collective's result, on a ring of n devices (Thakur et al. 2005,
# section 4).
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
    """Collectives of one kind in a step: how many run, and the bytes that each device sends."""

    count: int = 0
    sent: float = 0.0


def collectives(text: str) -> dict[str, Traffic]:
    """The collectives of a program, by kind; one in a loop counts as often as the loop runs.

    Bytes are those of ring algorithms. The compiler may split one collective into several fusions, to overlap it with
    products; these share a channel and count once.
    """
    program, entry = _read(text)
    runs = _runs(program, entry)
    by_channel: dict[str, tuple[str, int, float]] = {}
    for name, lines in program.items():
        for index, (opcode, shape, line) in enumerate(lines):
            kind = opcode.removesuffix("-start")
            if kind not in KINDS or not runs[name]:
                continue
            channel = re.search(r"channel_id=(\d+)", line)
            key = f"{kind} {channel[1]}" if channel else f"{name} {index}"
            if key not in by_channel or by_channel[key][1] < runs[name]:
                by_channel[key] = kind, runs[name], _sent(kind, shape, line, started=opcode != kind)
    traffic: dict[str, Traffic] = collections.defaultdict(Traffic)
    for kind, count, sent in by_channel.values():
        traffic[kind].count += count
        traffic[kind].sent += count * sent
    return dict(traffic)


# Instructions that only run or pass on other instructions.
_FRAMES = ("while", "conditional", "call", "parameter", "tuple", "get-tuple-element")


def origins(text: str) -> dict[str, str]:
    """The instructions that do work, by name, and the operation of the traced function that each comes from."""
    names: dict[str, str] = {}
    for lines in _read(text)[0].values():
        for opcode, _, line in lines:
            source = re.search(r'op_name="([^"]*)"', line)
            if opcode not in _FRAMES and (name := _INSTRUCTION.match(line)):
                names[name[1]] = source[1] if source else opcode
    return names


Line = tuple[str, str, str]


def _read(text: str) -> tuple[dict[str, list[Line]], str]:
    """The instructions of every computation, as opcode, type and line; and the name of the entry computation."""
    program: dict[str, list[Line]] = {}
    entry = name = ""
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            name = head[2]
            program[name] = []
            entry = name if head[1] else entry
        elif name and (instruction := _INSTRUCTION.match(line)):
            program[name].append((instruction[3], instruction[2], line))
    return program, entry


def _runs(program: dict[str, list[Line]], entry: str) -> dict[str, int]:
    """How often each computation runs."""
    callers: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    for name, lines in program.items():
        for opcode, _, line in lines:
            calls = [
                (role, callee) for role, names in _CALLED.findall(line) for callee in re.findall(r"[\w.\-]+", names)
            ]
            trips = _trips(program, line, dict(calls)) if opcode == "while" else 1
            for _, callee in calls:
                callers[callee].append((name, trips))

    @functools.cache
    def runs(name: str) -> int:
        return 1 if name == entry else sum(trips * runs(caller) for caller, trips in callers[name])

    return {name: runs(name) for name in program}


def _trips(program: dict[str, list[Line]], line: str, calls: dict[str, str]) -> int:
    """How often a loop runs, by the compiler's note or the constant in the loop's condition; 1 without both."""
    note = re.search(r'known_trip_count\\?":\{\\?"n\\?":\\?"(\d+)', line)
    if note:
        return int(note[1])
    condition = program.get(calls.get("condition", ""), [])
    constants = [re.search(r"constant\((\d+)\)", line) for opcode, _, line in condition if opcode == "constant"]
    return max((int(constant[1]) for constant in constants if constant), default=1)


def _sent(kind: str, shape: str, line: str, started: bool) -> float:
    """Bytes that a device sends for one collective with a result of this type."""
    n = _group(line)
    size = sum(_bytes(*array) for array in _ARRAY.findall(shape))
    if started and kind == "all-gather":
        size *= n / (n + 1)  # the type of a start has the operand too
    if started and kind in ("collective-permute", "all-to-all", "collective-broadcast"):
        size /= 2
    if started and kind == "reduce-scatter":
        size /= n + 1
    return size * _SENT.get(kind, lambda n: 1.0)(n)


def _group(line: str) -> int:
    """The devices of one group: replica_groups={{0,1},{2,3}}, [2,4]<=[8], or mesh['a'=2,'b'=4] {'b'}."""
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return listed[1].count(",") + 1
    if counted := re.search(r"replica_groups=\[(?:\d+,)*(\d+)\]<=", line):
        return int(counted[1])
    if named := re.search(r"replica_groups=@?mesh\[([^\]]*)\] ?\{([^}]*)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return math.prod(int(sizes.get(name, 1)) for name in re.findall(r"'(\w+)'", named[2]))
    return 2


def _bytes(kind: str, dimensions: str) -> float:
    """Bytes of an array: 24 for f32[2,3]."""
    bits = 8 if kind.startswith(("pred", "f8")) else int(re.sub(r"\D", "", kind))
    return bits / 8 * math.prod(int(size) for size in dimensions.split(",") if size)

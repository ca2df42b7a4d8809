"""Built-in sounds: digits as two tones that glide, at several speeds, heights and strengths, with noise.

A sound has a name, `tones:3 1 4:17`: its digits and its seed. A digit and its reversal have the same spectrum over
time, so that a mean over frames cannot tell them apart.
"""

import numpy as np

# Samples a second.
RATE = 16_000

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# Frequencies in Hz at the beginning and the end of both tones; every second digit is the one before, reversed.
_GLIDES = (
    ((300, 900), (1200, 2400)),
    ((900, 300), (1200, 2400)),
    ((500, 500), (1000, 3000)),
    ((300, 900), (1800, 1800)),
    ((400, 1100), (2900, 2200)),
)
GLIDES = tuple(tuple(tuple(tone[::step]) for tone in tones) for tones in _GLIDES for step in (1, -1))

PREFIX = "tones:"


def name_of(digits: list[int], seed: int) -> str:
    """The name of a sound."""
    return f"{PREFIX}{' '.join(map(str, digits))}:{seed}"


def words_of(name: str) -> str:
    """What is said in a sound of this name."""
    return " ".join(WORDS[int(digit)] for digit in name.split(":")[1].split())


def samples(name: str) -> np.ndarray:
    """The sound of a name, float32 [N], always the same one."""
    digits, seed = name.removeprefix(PREFIX).split(":")
    rng = np.random.default_rng([int(seed), *map(int, digits.split())])
    height, parts = rng.uniform(0.85, 1.15), [np.zeros(int(rng.uniform(0.01, 0.2) * RATE))]
    for digit in map(int, digits.split()):
        parts += [_digit(digit, height, rng), np.zeros(int(rng.uniform(0.02, 0.1) * RATE))]
    sound = np.concatenate(parts)
    sound += rng.normal(size=len(sound)) * 10 ** rng.uniform(-2.5, -1.2)
    return (sound * rng.uniform(0.1, 0.5)).astype(np.float32)


def _digit(digit: int, height: float, rng: np.random.Generator) -> np.ndarray:
    """A digit of 0.16 to 0.34 seconds, louder in the middle."""
    time = np.linspace(0, 1, int(rng.uniform(0.16, 0.34) * RATE))
    sound = np.zeros(len(time))
    for first, last in GLIDES[digit]:
        frequencies = height * (first + (last - first) * time) * rng.uniform(0.96, 1.04)
        phase = 2 * np.pi * np.cumsum(frequencies) / RATE + rng.uniform(0, 6.28)
        sound += rng.uniform(0.5, 1) * (np.sin(phase) + 0.3 * np.sin(2 * phase))
    return sound * np.sin(np.pi * time) ** 0.5


def generate(count: int, lengths: tuple[int, int], seed: int) -> list[str]:
    """Names of sounds of so many digits, from the least to the largest length; each is drawn by the seed."""
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(10, size=rng.integers(lengths[0], lengths[1] + 1)).tolist() for _ in range(count)]
    return [name_of(digits, seed * 1_000_000 + index) for index, digits in enumerate(drawn)]

"""Built-in series: a level, a trend, a day of 24 hours whose shape and strength change slowly, and noise that lasts."""

import numpy as np

# Values of a season.
PERIOD = 24

_COUNT, _LENGTH = 80, 600


def generate(count: int = _COUNT, length: int = _LENGTH) -> dict[str, np.ndarray]:
    """Series float64 [length] by name, always the same ones."""
    rng, hours = np.random.default_rng(0), np.arange(length)
    series = {}
    for n in range(count):
        angle, strength = 2 * np.pi * hours / PERIOD, 1 + 0.7 * np.sin(2 * np.pi * hours / rng.uniform(120, 300))
        day = np.sin(angle + rng.uniform(0, 6.28)) + rng.uniform(0.2, 0.6) * np.sin(2 * angle + rng.uniform(0, 6.28))
        noise = np.zeros(length)
        for hour in range(1, length):
            noise[hour] = 0.6 * noise[hour - 1] + rng.normal() * 0.12
        values = rng.uniform(5, 50) + rng.uniform(-0.01, 0.01) * hours + strength * day + noise
        series[f"series-{n}"] = np.round(rng.uniform(0.5, 20) * values, 3)
    return series

"""A linear map of a window: what a model of series must be ahead of (Zeng et al. 2023)."""

import numpy as np

from train.tasks.forecast.rows import ForecastRows

# Training windows that it is fitted to, and how strongly its weights are held down.
_WINDOWS, _RIDGE = 8000, 1.0


def linear_mase(train: ForecastRows, valid: ForecastRows) -> float:
    """The mean MASE over validation windows of the map [L,H] that is fitted to training windows by ridge regression."""
    rows = np.unique(np.linspace(0, len(train) - 1, min(_WINDOWS, len(train))).astype(int))
    windows, targets, _ = _arrays(train, rows)
    gram = windows.T @ windows + _RIDGE * np.eye(windows.shape[1])
    weights = np.linalg.solve(gram, windows.T @ targets)
    windows, targets, scales = _arrays(valid, np.arange(len(valid)))
    return float((abs(windows @ weights - targets).mean(1) / scales).mean())


def _arrays(rows: ForecastRows, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows float64 [N,L], what follows [N,H], and the scales of errors [N]."""
    batch = rows.batch(chosen, np.random.default_rng(0))
    return (
        batch["frames"][:, 0, :, 0].astype(np.float64),
        batch["targets"].astype(np.float64),
        batch["scales"].astype(np.float64),
    )

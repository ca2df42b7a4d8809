"""What a run folder keeps of how a model reads and writes series."""

import json
from pathlib import Path
from typing import NamedTuple

from train.data.processors import ProcessorKind

FILE = "series.json"


class SeriesProcessor(NamedTuple):
    """Values that a model reads, values that it predicts, their quantiles, and values of a season."""

    context: int
    horizon: int
    quantiles: tuple[float, ...]
    period: int


def _to_texts(processor: SeriesProcessor) -> tuple[str, ...]:
    return (json.dumps(processor._asdict(), indent=2) + "\n",)


def _read(path: Path) -> SeriesProcessor:
    """The processor of a file. Raises ValueError where it is damaged."""
    try:
        fields = json.loads(path.read_text())
        return SeriesProcessor(**fields | {"quantiles": tuple(fields["quantiles"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error


SERIES_PROCESSOR: ProcessorKind[SeriesProcessor] = ProcessorKind((FILE,), _to_texts, _read)

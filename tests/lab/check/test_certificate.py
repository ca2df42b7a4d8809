"""The table and the certificate."""

import json
import math

import pytest

from train.lab.check.certificate import PROBES, ProbeOutcome, line, summary
from train.lab.check.result import Result, not_applicable, relative


@pytest.mark.parametrize(
    ("measured", "status"), [(0.0, "pass"), (0.1, "pass"), (0.2, "fail"), (math.nan, "fail"), (math.inf, "fail")]
)
def test_status(measured, status):
    assert Result(measured, 0.1, "").status == status


def test_nothing_over_nothing_fails():
    assert Result(relative(0.0, 0.0), 1.0, "").status == "fail"
    assert Result(relative(0.0, math.nan), 1.0, "").status == "fail"
    assert relative(1.0, 4.0) == 0.25


def test_summary_is_json():
    results = [
        ProbeOutcome("a", "A.", Result(math.nan, 0.1, "of it"), 1.0),
        ProbeOutcome("b", "B.", not_applicable("there is none"), 1.0),
        ProbeOutcome("c", "C.", Result(0, 0, "of them"), 1.0),
    ]
    report = json.loads(json.dumps(summary(results), allow_nan=False))
    assert report == {"passed": False, "failed": ["a"], "measured": {"a": "nan", "b": None, "c": 0}}
    assert line(results[1]).split()[:3] == ["b", "not", "applicable"]


def test_every_probe_claims_something():
    assert len({probe.__name__ for probe in PROBES}) == len(PROBES)
    assert all((probe.__doc__ or "").partition("\n\n")[0].endswith(".") for probe in PROBES)

"""Steps that wait for a TPU, compiled by its compiler, with the time that a plan says for them. Needs the extra
`[tpu-plan]`; `-s` shows the times."""

import importlib.util

import pytest

from train.devices import topology
from train.plan import Planner, PlanOptions
from train.screens.console import Log
from train.tasks import resolve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="needs libtpu"),
]

TINY = "--model.layers=2 --model.scan=true --model.dropout=0 --model.vocab=512 --batch.size=8".split()
STEPS = {
    "a decoder": ("v5e:2x2", "--preset=gpt-tiny --batch.length=1024 --model.length=1024 --model.head-size=128"),
    "a window": ("v5p:2x2x1", "--preset=gpt-tiny --batch.length=1024 --model.length=1024 --model.mixer.pattern=local"),
    "texts that share rows": ("v6e:2x2", "--preset=bert-tiny --batch.length=512 --model.length=512 --mesh.tensor=2"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_compiles_with_the_kernel_of_a_tpu(name):
    topology_name, flags = STEPS[name]
    planned = topology.parse(topology_name)
    devices, exact = topology.devices(planned)
    run, explicit = resolve.resolve(resolve.infer_task([*flags.split(), *TINY], None), None, None)
    run = resolve.fill_from_data(run, explicit | {"model.scan"}, {}, planned.platform)
    report = Planner(planned, devices, exact, PlanOptions().long_run, Log(quiet=True)).examine(run)
    assert exact
    assert report["fits"], report.get("refused")
    assert report["attention"] == ["splash: it is made for a tpu and knows this mask"]
    assert report["memory"]["all"] < planned.spec.memory
    print(f"\n{name} on {topology_name}: {1000 * report['seconds_a_step']:.3f} ms a step at best")

"""Plans for devices that are not here."""

import importlib.util
import json
import os
import subprocess
import sys

import jax
import pytest
from jax.experimental import topologies
from small import TINY, call, job_of

import tfm
from train import UserError, plan
from train.devices import mesh, specs, topology
from train.planning.memory import step_memory
from train.tasks import resolve
from train.tasks.lm.task import LM
from train.training.job import Job


@pytest.fixture(scope="module", autouse=True)
def eight_devices():
    """They are there before a plan could ask for another number."""
    assert len(jax.devices()) == 8


@pytest.mark.parametrize(
    ("name", "size"), [("v5p:4x4x8", 128), ("v5e:1x1", 1), ("h100:8", 8), ("v4:2x2x1", 4), ("t4:1", 1)]
)
def test_topologies(name, size):
    place = topology.parse(name)
    assert (place.size, place.platform) == (size, "tpu" if name.startswith("v") else "gpu")
    assert all(topology.parse(larger).size > size for larger in topology.larger(place))


BAD = [
    (
        "",
        "--topology= is unknown; known are t4, l4, a100, h100, h200, v4, v5e, v5p, v6e; "
        "write v5p:4x4x8 for TPUs, h100:8 for GPUs",
    ),
    ("--topology=v5:4x4", "--topology=v5:4x4 is unknown; did you mean v5p?; write v5p:4x4x8"),
    ("--topology=v5p:4x4x5", "--topology=v5p:4x4x5 is unknown; v5p has 2x2x1, 2x2x2"),
    ("--topology=h100", "--topology=h100 must say how many devices there are: h100:8"),
    ("--topology=h100:0", "must say how many devices there are"),
    ("--topology=h100:2048", "has 2048 devices, and 1024 can be simulated; take fewer"),
    ("--topology=h100:16", "--topology=h100:16 needs 16 simulated devices, and JAX runs with 8; start Python again"),
    (
        "--topology=h100:8 --mesh.data=3",
        "--mesh.data=3 mesh.fsdp=1 mesh.tensor=1 mesh.context=1 must multiply to the 8 devices here",
    ),
    (
        "--topology=h100:8 --mesh.tensor=8 --model.ffn=100",
        "must divide the feed-forward axis of size 100 of decoder.layers.period[0].feed_forward.",
    ),
    ("--topology=h100:8 --batch.size=4", "--mesh.data = 8 must divide the batch axis of size 4; try 4"),
    ("--topology=h100:8 --tokens=-1", "--tokens=-1 must be at least 1, or none"),
    ("--topology=h100:8 --tokens=many", "--tokens=many must be a whole number"),
    ("--topology=h100:8 --preset=gpt-tony", "--preset=gpt-tony is unknown; did you mean gpt-tiny?"),
    (
        "--topology=v5e:1x1 --model.mixer=xca",
        "--model.mixer or --model.position: xca mixes later tokens into all; a decoder needs another mixer",
    ),
    (
        "--topology=h100:8 --batch.size=8 --model.mixer=fnet",
        "--model.mixer or --model.position: fnet mixes later tokens into all; a decoder needs another mixer",
    ),
    ("--topology=h100:8 --model.widht=64", "unknown flag --model.widht; did you mean model.width?"),
]


@pytest.mark.parametrize(("flags", "says"), BAD, ids=[flags or "nothing" for flags, _ in BAD])
def test_bad_input(flags, says):
    code, out, err = call(plan.main, *TINY, *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_libtpu_that_fails(monkeypatch):
    """Ends in a sentence, whatever it raises."""

    def fails(**options):
        raise RuntimeError("INTERNAL: no such slice\nand much more")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(topologies, "get_topology_desc", fails)
    monkeypatch.setattr(topology, "_NO_TPU_ENVIRON", {})
    with pytest.raises(
        UserError, match=r"libtpu does not know --topology=v5e:4x4 \(INTERNAL: no such slice\); add --simulate=true"
    ):
        topology.devices(topology.parse("v5e:4x4"))
    devices, exact = topology.devices(topology.parse("v5e:2x4"), simulate=True)
    assert (len(devices), exact) == (8, False)


def test_help_fits_on_a_screen():
    code, out, _ = call(plan.main, "--help")
    assert code == 0
    assert len(out.splitlines()) < 24
    assert "--topology=" in out


def test_the_task_of_a_preset():
    assert resolve.infer_task(["--preset=gpt2"], None)[-1] == "--task=lm"
    assert resolve.infer_task(["--preset=transformer-base"], None)[-1] == "--task=translate"
    assert resolve.infer_task(["--preset=bert-base", "--task=classify"], None) == [
        "--preset=bert-base",
        "--task=classify",
    ]
    source = {"task": "classify"}
    assert resolve.infer_task(["--init=somewhere"], lambda folder, adapter: source)[-1] == "--task=classify"


def test_a_llama_of_seven_billion():
    """Llama 2's own number of parameters."""
    run, _ = resolve.resolve(["--task=lm", "--preset=llama-7b", "--model.vocab=32000"], None, None)
    assert tfm.count_params(LM.specs(run)) == 6_738_415_616


@pytest.mark.slow
def test_plan_of_eight_gpus():
    code, out, err = call(plan.main, *TINY, "--topology=h100:8", "--mesh.fsdp=4", "--tokens=1000000")
    report = json.loads(out)
    assert code == 0
    assert report["fits"]
    assert not report["exact"]
    assert report["mesh"] == {"data": 2, "fsdp": 4, "tensor": 1, "context": 1}
    assert report["tokens_a_step"] == 16 * 32
    assert {"all-gather", "all-reduce"} <= set(report["collectives"])
    assert report["seconds_a_step"] == max(report["seconds"].values())
    assert report["tokens_per_s"] == pytest.approx(512 / report["seconds_a_step"])
    assert "simulated on CPU" in err
    assert "of 80.0 GB, estimated: it fits" in err
    code, out, err = call(plan.main, *TINY, "--topology=h100:8", "--mesh.fsdp=4", "--compile=false")
    traced = json.loads(out)
    assert (code, traced["memory"], traced["flops"]) == (0, report["memory"], report["flops"])
    assert traced["collectives"] == {}, "nothing is compiled"
    assert traced["seconds"]["products"] == report["seconds"]["products"]
    assert "not compiled" in err


RUNS = [
    "--preset=bert-tiny --task.nsp=true",
    "--preset=transformer-tiny --batch.tokens=512 --batch.length=32",
    "--preset=llama-tiny --mesh.tensor=2 --batch.accumulate=2 --model.remat=block",
]


@pytest.mark.slow
@pytest.mark.parametrize("flags", RUNS)
def test_plans_of_every_task(flags):
    code, out, err = call(plan.main, *flags.split(), "--topology=t4:8", "--model.scan=true", "--mesh.fsdp=2")
    assert code == 0, err
    assert json.loads(out)["collectives"]["all-gather"]["number"] > 4


@pytest.mark.slow
def test_a_plan_that_does_not_fit_says_what_does(monkeypatch):
    """On a device whose memory holds the run with recomputed blocks, and not without."""
    flags = [*TINY, "--model.layers=6", "--batch.length=64", "--mesh.data=8"]
    sizes = [step_memory(job_of(*flags, f"--model.remat={remat}"))["all"] for remat in ("none", "block")]
    assert sizes[1] < 0.8 * sizes[0]
    monkeypatch.setitem(specs.DEVICE_SPECS, "h100", specs.DEVICE_SPECS["h100"]._replace(memory=sum(sizes) / 2))
    code, out, err = call(plan.main, *flags, "--topology=h100:8")
    assert code == 0
    assert not json.loads(out)["fits"]
    assert json.loads(out)["instead"].startswith("--model.remat=")
    assert "it does not fit" in err
    assert "the first setting that fits: --model.remat=" in err
    monkeypatch.setitem(specs.DEVICE_SPECS, "h100", specs.DEVICE_SPECS["h100"]._replace(memory=1000))
    code, out, err = call(plan.main, *flags, "--topology=h100:8")
    assert json.loads(out)["instead"] is None
    assert "try h100:16" in err


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="needs libtpu")
def test_plan_with_libtpu():
    """The compiler's own numbers: parameters and optimizer to the byte; the estimate is near the rest if tiles pad
    little."""
    flags = (
        "--preset=gpt-tiny --model.scan=true --model.width=512 --model.dropout=0 "
        "--batch.size=64 --batch.length=256 --model.length=256"
    )
    command = [sys.executable, "-m", "train.plan", *flags.split(), "--topology=v5e:2x2", "--mesh.fsdp=4"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"}, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["exact"]
    assert report["fits"]
    assert report["collectives"]["all-gather"]["number"] > 4
    run, _ = resolve.resolve(
        [*flags.split(), "--task=lm", "--mesh.fsdp=4", "--model.dtype=bfloat16", "--model.vocab=4096"], None, None
    )
    job = Job(run, LM, mesh.mesh_for(run, LM.specs(run), jax.devices()[:4]))
    estimated = step_memory(job)
    assert {name: report["memory"][name] for name in ("parameters", "optimizer")} == {
        name: estimated[name] for name in ("parameters", "optimizer")
    }
    assert report["memory"]["all"] == pytest.approx(estimated["all"], rel=0.25)

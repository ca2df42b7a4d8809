"""Plans for devices that are not here: bytes, collectives, settings that fit, and plain words where memory runs out."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.experimental import topologies
from small import FLAGS, call, quick_compilation, write_text  # noqa: F401

import tfm
from train import UserError, advice, costs, devices, flags, hardware, hlo, main, plan, resolve, step, tasks, topology
from train.config import Run
from train.log import Log

TINY = (
    "--preset=gpt-tiny --model.layers=2 --model.width=64 --model.heads=4 --model.vocab=256 --model.scan=true --batch.length=32 "
    "--batch.size=16"
).split()


@pytest.fixture(scope="module", autouse=True)
def eight_devices():
    """They are there before a plan could ask for another number."""
    assert len(jax.devices()) == 8


def run_of(*argv):
    """The run that the flags describe, in bfloat16 as on an accelerator."""
    run, decided = resolve.resolve(resolve.with_task([*TINY, *argv], None), None, None)
    return resolve.settle(run, decided, {}, "gpu")


def job_of(*argv):
    run = run_of(*argv)
    task = tasks.find(run.task.name)
    return costs.Job(run, task, devices.arrange(run, task.specs(run), jax.devices()))


# --------------------------------------------------------------------------- what a run needs


def test_bytes_of_the_state_are_those_of_a_state():
    """Against the arrays of a real state, as they lie on the first of eight devices."""
    job = job_of("--mesh.fsdp=2", "--mesh.tensor=4", "--optim.ema=0.9")
    state = step.new_state(job.specs, job.optimizer, 0, job.mesh, job.run.optim.ema)
    here = lambda tree: sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(tree))
    found = job.memory()
    assert found["parameters"] == here((state.params, state.ema))
    assert found["optimizer"] == here(state.opt)
    assert found["all"] == sum(size for name, size in found.items() if name != "all")


def test_a_recomputed_block_is_kept_no_more():
    kept, again = (job_of(f"--model.remat={remat}", "--model.layers=8").memory() for remat in ("none", "block"))
    assert again["activations"] < kept["activations"] / 3
    assert again["all"] < kept["all"]
    assert again["temporaries"] > costs.UNFUSED * kept["activations"] / 8, "one of the 8 blocks is there"


def test_flops_of_a_step():
    """Backward costs twice what forward does; a recomputed block costs its forward once more."""
    plain, again = (job_of(*f.split()).flops() for f in ("", "--batch.accumulate=2 --model.remat=block"))
    assert plain[0] == again[0], "parts are as much as the whole"
    width, rows, length = 64, 16, 32
    blocks = 2 * rows * length * 2 * (12 * width * width + 2 * length * width)
    vocabulary = 2 * rows * length * width * 256
    assert plain[0] == 3 * (blocks + vocabulary)
    assert plain[1] <= again[1] == pytest.approx(plain[1] + blocks, rel=0.1)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("--task=mlm", "lines"),
        ("--task=mlm --task.nsp=true --data.split=blank-line", "lines"),
        ("--task=lm", "lines"),
        ("--task=lm --task.windows=true", "lines"),
        ("--task=classify --data=rows.tsv", "label"),
        ("--task=classify --data=rows.tsv --task.kind=regression", "label"),
        ("--task=classify --data=rows.tsv --task.kind=multi", "label"),
        ("--task=translate --data=rows.tsv --data.field=text,label --batch.tokens=256", "pairs"),
    ],
)
def test_fields_are_those_of_a_batch(given, text, tmp_path, monkeypatch):
    """Names, types and shapes that the planner takes for granted, against a batch of real data; pairs in rows as long as they may be."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    lines = (tmp_path / "text.txt").read_text().splitlines()
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines[n : n + 6]) for n in range(0, len(lines), 6)))
    label = (lambda n: lines[-n]) if text == "pairs" else (lambda n: str(n % 2))
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "\n".join(f"{line}\t{label(n)}" for n, line in enumerate(lines)))
    run, decided = resolve.resolve([*FLAGS, *given.split()], None, None)
    task = tasks.find(run.task.name)
    corpus = task.load(run, Log())
    run = resolve.settle(run, decided, corpus.sizes, "cpu")
    fields, batch = task.fields(run), corpus.batch(0)
    assert {name: (np.dtype(kind), 1 + len(shape)) for name, (kind, shape) in fields.items()} == {
        name: (field.dtype, field.ndim) for name, field in batch.items()
    }
    if text != "pairs":
        assert {name: shape for name, (_, shape) in fields.items()} == {name: field.shape[1:] for name, field in batch.items()}


# --------------------------------------------------------------------------- what it sends

PROGRAM = """HloModule jit_step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%gather_begins (p: bf16[4,8]) -> bf16[16,8] {
  %p = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %g.1 = bf16[16,8]{1,0:T(8,128)(2,1)S(1)} all-gather(%p), channel_id=7, replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}
}

%gather_ends (q: bf16[4,8]) -> bf16[16,8] {
  %q = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %g.2 = bf16[16,8]{1,0:T(8,128)(2,1)S(1)} all-gather(%q), channel_id=7, replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}
}

%inner_body (s: (s32[], f32[64])) -> (s32[], f32[64]) {
  %s = (s32[], f32[64]) parameter(0)
  %x = f32[64]{0} get-tuple-element(%s), index=1
  %r = f32[64]{0} all-reduce(%x), channel_id=2, replica_groups=[4,2]<=[8], use_global_device_ids=true, to_apply=%add
  ROOT %t = (s32[], f32[64]) tuple(%s, %r)
}

%inner_condition (s.1: (s32[], f32[64])) -> pred[] {
  %limit = s32[]{:T(128)} constant(5)
  %s.1 = (s32[], f32[64]) parameter(0)
  ROOT %less = pred[] compare(%s.1, %limit), direction=LT
}

%body (c: (s32[], f32[64])) -> (s32[], f32[64]) {
  %c = (s32[], f32[64]) parameter(0)
  %f.1 = bf16[16,8]{1,0} fusion(%c), kind=kCustom, calls=%gather_begins
  %f.2 = bf16[16,8]{1,0} fusion(%f.1), kind=kCustom, calls=%gather_ends
  ROOT %w.2 = (s32[], /*index=1*/f32[64]) while(%c), condition=%inner_condition, body=%inner_body
}

%condition (c.1: (s32[], f32[64])) -> pred[] {
  %c.1 = (s32[], f32[64]) parameter(0)
  ROOT %true = pred[] constant(true)
}

ENTRY %main (p0: f32[64], p1: f32[64]) -> f32[] {
  %p0 = f32[64]{0} parameter(0)
  %w = (s32[], f32[64]) while(%p0), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"},"x":[]}
  %start = (f32[8]{0}, f32[64]{0}) all-gather-start(%p0), channel_id=9, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %done = f32[64]{0} all-gather-done(%start)
  %two = (f32[64]{0}, f32[]) all-reduce(%done, %p1), channel_id=10, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
  %piece = f32[8]{0} reduce-scatter(%done), channel_id=11, replica_groups=[1,8]<=[8], dimensions={0}, to_apply=%add
  ROOT %moved = (f32[8]{0}, f32[8]{0}, u32[]) collective-permute(%piece), channel_id=12, source_target_pairs={{0,1},{1,0}}
}
"""


def test_collectives_of_a_program():
    """Loops by what the compiler notes (3) and by their condition (5); one channel counts once; bytes on a ring of the group's size."""
    found = hlo.collectives(PROGRAM)
    assert {kind: each.number for kind, each in found.items()} == {
        "all-gather": 3 + 1,
        "all-reduce": 3 * 5 + 1,
        "reduce-scatter": 1,
        "collective-permute": 1,
    }
    assert found["all-gather"].sent == pytest.approx(3 * (16 * 8 * 2) * 3 / 4 + (64 * 4) * 7 / 8)
    assert found["all-reduce"].sent == pytest.approx(15 * (64 * 4) * 2 / 2 + (65 * 4) * 2 / 2)
    assert found["reduce-scatter"].sent == pytest.approx((64 * 4) * 7 / 8)


@pytest.mark.slow
def test_collectives_of_a_compiled_step():
    """Over data alone, gradients are summed once, but that of the token table twice: as what is read and as what is written."""
    job = job_of("--mesh.data=8", "--model.dropout=0")
    found = hlo.collectives(job.compile().as_text())
    assert set(found) == {"all-reduce"}
    assert found["all-reduce"].sent / (2 * 7 / 8) == pytest.approx(4 * tfm.count(job.specs) + 4 * 64 * 256, rel=1e-3)


# --------------------------------------------------------------------------- where it is to run


@pytest.mark.parametrize(("name", "size"), [("v5p:4x4x8", 128), ("v5e:1x1", 1), ("h100:8", 8), ("v4:2x2x1", 4), ("t4:1", 1)])
def test_topologies(name, size):
    place = topology.parse(name)
    assert (place.size, place.platform) == (size, "tpu" if name.startswith("v") else "gpu")
    assert all(topology.parse(larger).size > size for larger in topology.larger(place))


def test_device_table():
    """Every device can read its whole memory in less than a tenth of a second, and multiplies at least 100 times while it reads a byte."""
    for name, device in hardware.DEVICES.items():
        assert device.memory / device.bandwidth < 0.1, name
        assert device.flops / device.bandwidth > 100, name
        assert device.link < device.bandwidth, name
    assert hardware.room(jax.devices()[0]) is None, "a CPU says nothing"


BAD = [
    ("", "--topology= is unknown; known are t4, l4, a100, h100, h200, v4, v5e, v5p, v6e; write v5p:4x4x8 for TPUs, h100:8 for GPUs"),
    ("--topology=v5:4x4", "--topology=v5:4x4 is unknown; did you mean v5p?; write v5p:4x4x8"),
    ("--topology=v5p:4x4x5", "--topology=v5p:4x4x5 is unknown; v5p has 2x2x1, 2x2x2"),
    ("--topology=h100", "--topology=h100 must say how many devices there are: h100:8"),
    ("--topology=h100:0", "must say how many devices there are"),
    ("--topology=h100:2048", "has 2048 devices, and 1024 can be simulated; take fewer"),
    ("--topology=h100:16", "--topology=h100:16 needs 16 simulated devices, and JAX runs with 8; start anew"),
    ("--topology=h100:8 --mesh.data=3", "--mesh.data=3 mesh.fsdp=1 mesh.tensor=1 mesh.context=1 must multiply to the 8 devices here"),
    ("--topology=h100:8 --mesh.tensor=8 --model.ffn=100", "must divide the feed-forward axis of size 100 of decoder.blocks.ffn."),
    ("--topology=h100:8 --batch.size=4", "--mesh.data = 8 must divide the batch axis of size 4; try 4"),
    ("--topology=h100:8 --tokens=-1", "--tokens=-1 must not be negative"),
    ("--topology=h100:8 --tokens=many", "--tokens=many must be a whole number"),
    ("--topology=h100:8 --preset=gpt-tony", "--preset=gpt-tony is unknown"),
    ("--topology=h100:8 --model.widht=64", "unknown flag --model.widht; did you mean model.width?"),
]


@pytest.mark.parametrize(("given", "says"), BAD, ids=[given or "nothing" for given, _ in BAD])
def test_bad_input(given, says):
    code, out, err = call(plan.main, *TINY, *given.split())
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
    monkeypatch.setattr(topology, "_ABSENT", {})
    with pytest.raises(UserError, match=r"libtpu does not know --topology=v5e:4x4 \(INTERNAL: no such slice\); add --simulate=true"):
        topology.devices(topology.parse("v5e:4x4"))
    devices, exact = topology.devices(topology.parse("v5e:2x4"), simulate=True)
    assert (len(devices), exact) == (8, False)


def test_help_fits_on_a_screen():
    code, out, _ = call(plan.main, "--help")
    assert code == 0
    assert len(out.splitlines()) < 24
    assert "--topology=" in out


# --------------------------------------------------------------------------- what to change


def test_the_task_of_a_preset():
    assert resolve.with_task(["--preset=gpt2"], None)[-1] == "--task=lm"
    assert resolve.with_task(["--preset=transformer-base"], None)[-1] == "--task=translate"
    assert resolve.with_task(["--preset=bert-base", "--task=classify"], None) == ["--preset=bert-base", "--task=classify"]
    assert resolve.with_task(["--init=somewhere"], lambda folder: {"task.name": "classify"})[-1] == "--task=classify"


def test_a_llama_of_seven_billion():
    """Llama 2's own number of parameters."""
    run, _ = resolve.resolve(["--task=lm", "--preset=llama-7b", "--model.vocab=32000"], None, None)
    assert tfm.count(tasks.find("lm").specs(run)) == 6_738_415_616


def needing(sizes):
    """A `needs` that gives the bytes of (remat, parts, fsdp, tensor), and none for what does not divide."""

    def needs(run):
        key = (run.model.remat, run.batch.accumulate, run.mesh.fsdp, run.mesh.tensor)
        if run.mesh.fsdp * run.mesh.tensor > 1 and (run.batch.size // run.batch.accumulate) % run.mesh.fsdp:
            raise UserError("does not divide")
        return {"all": sizes(*key), "activations": sizes(*key)}

    return needs


RUN = dataclasses.replace(Run(), batch=dataclasses.replace(Run().batch, size=8))


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        (lambda remat, parts, fsdp, tensor: 50 if remat == "block" else 150, "--model.remat=block"),
        (lambda remat, parts, fsdp, tensor: 300 / parts, "--batch.accumulate=4"),
        (lambda remat, parts, fsdp, tensor: (400 if remat == "block" else 800) / parts, "--batch.accumulate=4 --model.remat=block"),
        (lambda remat, parts, fsdp, tensor: 400 / fsdp, "--mesh.data=1 --mesh.fsdp=8"),
        (lambda remat, parts, fsdp, tensor: 400 / tensor, "--mesh.data=1 --mesh.fsdp=2 --mesh.tensor=4"),
        (lambda remat, parts, fsdp, tensor: 400, None),
    ],
)
def test_the_first_setting_that_fits(sizes, wanted, monkeypatch):
    """Remat before parts, parts before sharding, fsdp before tensor."""
    monkeypatch.setattr(advice, "REMAT", ("none", "block"))
    found = next(advice.first_that_fits(RUN, 8, needing(sizes), 100), None)
    assert (found and advice.changes(RUN, found)) == wanted
    said = advice.advise(RUN, 8, needing(sizes), 100)
    assert said.startswith("out of memory: the step needs about")
    assert (wanted or "take more devices") in said
    assert "None" not in said


def test_flags_that_lead_from_one_run_to_another_can_be_pasted():
    run = run_of()
    other = dataclasses.replace(run, batch=dataclasses.replace(run.batch, accumulate=2))
    pasted = flags.parse(advice.changes(run, other).split(), resolve.FLAGS["lm"], {})
    assert flags.build(Run, flags.flatten(run) | pasted) == other


def fails_with(text):
    """A training step that no device has the memory for, or something else."""

    def fails(*arguments):
        raise jax.errors.JaxRuntimeError(text)

    fails._cache_size = lambda: 0
    return lambda *arguments, **others: fails


def test_out_of_memory_ends_in_plain_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "text.txt")
    dump = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123 bytes.\nBufferAssignment:\n..."
    monkeypatch.setattr(step, "make_train_step", fails_with(dump))
    code, _, err = call(main.main, "--task=mlm", *FLAGS, "--batch.size=16", "--mesh.fsdp=8")
    assert code == 2
    last = err.splitlines()[-1]
    assert last.startswith("error: out of memory: the step needs about")
    assert "; try --" in last
    assert "BufferAssignment" not in err
    with pytest.raises(jax.errors.JaxRuntimeError, match="our own bug"), advice.shortage(lambda: "more memory"):
        fails_with("INTERNAL: our own bug")()()


# --------------------------------------------------------------------------- the command


def test_plan_of_eight_gpus():
    code, out, err = call(plan.main, *TINY, "--topology=h100:8", "--mesh.fsdp=4", "--tokens=1000000")
    found = json.loads(out)
    assert code == 0
    assert found["fits"]
    assert not found["exact"]
    assert found["mesh"] == {"data": 2, "fsdp": 4, "tensor": 1, "context": 1}
    assert found["tokens_a_step"] == 16 * 32
    assert {"all-gather", "all-reduce"} <= set(found["collectives"])
    assert found["seconds_a_step"] == max(found["seconds"].values())
    assert found["tokens_per_s"] == pytest.approx(512 / found["seconds_a_step"])
    assert "simulated on CPU" in err
    assert "of 80.0 GB, estimated: it fits" in err


OTHERS = [
    "--preset=bert-tiny --task.nsp=true",
    "--preset=transformer-tiny --batch.tokens=512 --batch.length=32",
    "--preset=llama-tiny --mesh.tensor=2 --batch.accumulate=2 --model.remat=block",
]


@pytest.mark.slow
@pytest.mark.parametrize("given", OTHERS)
def test_plans_of_every_task(given):
    code, out, err = call(plan.main, *given.split(), "--topology=t4:8", "--model.scan=true", "--mesh.fsdp=2")
    assert code == 0, err
    assert json.loads(out)["collectives"]["all-gather"]["number"] > 4


@pytest.mark.slow
def test_a_plan_that_does_not_fit_says_what_does(monkeypatch):
    """On a device whose memory holds the run with recomputed blocks, and not without."""
    given = [*TINY, "--model.layers=6", "--batch.length=64", "--mesh.data=8"]
    sizes = [job_of(*given, f"--model.remat={remat}").memory()["all"] for remat in ("none", "block")]
    assert sizes[1] < 0.8 * sizes[0]
    monkeypatch.setitem(hardware.DEVICES, "h100", hardware.DEVICES["h100"]._replace(memory=sum(sizes) / 2))
    code, out, err = call(plan.main, *given, "--topology=h100:8")
    assert code == 0
    assert not json.loads(out)["fits"]
    assert json.loads(out)["instead"].startswith("--model.remat=")
    assert "it does not fit" in err
    assert "the first setting that fits: --model.remat=" in err
    monkeypatch.setitem(hardware.DEVICES, "h100", hardware.DEVICES["h100"]._replace(memory=1000))
    code, out, err = call(plan.main, *given, "--topology=h100:8")
    assert json.loads(out)["instead"] is None
    assert "try h100:16" in err


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="needs libtpu")
def test_plan_with_libtpu():
    """The compiler's own numbers: parameters and optimizer to the byte, and an estimate that is near the rest where tiles pad little."""
    given = "--preset=gpt-tiny --model.scan=true --model.width=512 --model.dropout=0 --batch.size=64 --batch.length=256 --model.length=256"
    command = [sys.executable, "-m", "train.plan", *given.split(), "--topology=v5e:2x2", "--mesh.fsdp=4"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"}, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["exact"]
    assert found["fits"]
    assert found["collectives"]["all-gather"]["number"] > 4
    run, _ = resolve.resolve([*given.split(), "--task=lm", "--mesh.fsdp=4", "--model.dtype=bfloat16", "--model.vocab=4096"], None, None)
    job = costs.Job(run, tasks.find("lm"), devices.arrange(run, tasks.find("lm").specs(run), jax.devices()[:4]))
    estimated = job.memory()
    assert {name: found["memory"][name] for name in ("parameters", "optimizer")} == {
        name: estimated[name] for name in ("parameters", "optimizer")
    }
    assert found["memory"]["all"] == pytest.approx(estimated["all"], rel=0.25)

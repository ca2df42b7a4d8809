"""Several processes against one: the same losses, one log, and checkpoints that any number of processes go on with."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from small import call, read_lines, write_text

import tfm
from train import prepare
from train.data import feed
from train.devices import distributed
from train.lab.replay import main as replay
from train.main import main
from train.settings.schema import Distributed

ROOT = Path(__file__).parents[2]

# What each process runs: one training after the other. They meet in the first one.
CHILD = """
import json, sys
from train.main import main
for flags in json.loads(sys.argv[1]):
    code = main(flags)
    if code: sys.exit(code)
"""

SMALL = (
    "--model.layers=1 --model.width=16 --model.heads=8 --model.ffn=16 --tokenizer.vocab=400 "
    "--batch.size=8 --batch.length=16 --steps=20 --model.scan=true "
    "--log.every=1 --eval.every=20 --checkpoint.every=20 --eval.final=false"
).split()

# A mesh for each task, whose axes cross the border between processes in other ways.
TASKS = {
    "mlm": ["--data=text.txt", "--mesh.fsdp=2", "--mesh.tensor=2", "--model.dropout=0.1"],
    "lm": ["--data=text.txt", "--data.split=line", "--mesh.data=2", "--mesh.context=4", "--model.dropout=0"],
    "translate": [
        "--data=pairs.tsv",
        "--mesh.data=2",
        "--mesh.fsdp=4",
        "--batch.tokens=128",
        "--batch.shapes=2",
        "--task.bleu=4",
    ],
}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def start(folder, runs, count=1, devices=8, **environ):
    """The processes that make these runs together."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    port = free_port()
    environ = (
        os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": str(ROOT), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} | environ
    )

    def start_process(process):
        cluster = [
            f"--distributed.coordinator=localhost:{port}",
            f"--distributed.processes={count}",
            f"--distributed.process={process}",
        ]
        argvs = [[*runs[0], *(cluster if count > 1 else [])], *runs[1:]]
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(argvs)],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return [start_process(process) for process in range(count)]


def end(started, code=0):
    """What each process wrote to stderr."""
    try:
        errors = [process.communicate(timeout=600)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [code] * len(started), "\n".join(errors)
    return errors


def losses(folder, run):
    path = folder / run / "metrics.jsonl"
    return [(line["step"], line["split"], line["loss"]) for line in (read_lines(path) if path.exists() else ())]


def assert_equal_runs(folder, expected, actual):
    expected_lines = losses(folder, expected)
    actual_lines = losses(folder, actual)
    assert [line[:2] for line in actual_lines] == [line[:2] for line in expected_lines]
    actual_losses, expected_losses = ([line[2] for line in lines] for lines in (actual_lines, expected_lines))
    np.testing.assert_allclose(actual_losses, expected_losses, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with texts, and a run of one process for each task on eight devices as copies of the model."""
    folder = tmp_path_factory.mktemp("processes")
    write_text(folder / "text.txt", lines=100)
    words, rng = "the a cat dog bird sat ran flew on under".split(), np.random.default_rng(0)
    sentences = [rng.choice(words, rng.integers(2, 9)) for _ in range(150)]
    pairs = [f"{' '.join(words)}\t{' '.join(word[::-1] for word in words)}" for words in sentences]
    (folder / "pairs.tsv").write_text("\n".join(["en\tde", *pairs]) + "\n")
    with contextlib.chdir(folder):
        for task, flags in TASKS.items():
            code, _, err = call(
                main, *SMALL, f"--task={task}", *(flag for flag in flags if "mesh" not in flag), f"--out={task}-1"
            )
            assert code == 0, err
    return folder


@pytest.mark.slow
def test_two_processes_of_four_devices_equal_one_of_eight(home):
    talking, silent = end(
        start(home, [[*SMALL, f"--task={task}", *flags, f"--out={task}-2"] for task, flags in TASKS.items()], 2, 4)
    )
    assert silent == "", "only process 0 says something"
    assert "rematerialization" not in talking
    for task in TASKS:
        assert_equal_runs(home, f"{task}-1", f"{task}-2")
    record = json.loads((home / "lm-2" / "run.json").read_text())
    assert (record["processes"], record["mesh"]) == (2, {"data": 2, "fsdp": 1, "tensor": 1, "context": 4})
    assert {path.name for path in (home / "lm-2").iterdir()} == {path.name for path in (home / "lm-1").iterdir()}


@pytest.mark.slow
def test_four_processes_stop_for_a_signal_to_one_and_one_goes_on(home):
    """The last of four is told to end; what they have saved is resumed by one process, on another mesh."""
    flags = [*SMALL, "--task=mlm", "--data=text.txt", "--model.dropout=0.1", "--out=mlm-4"]
    started = start(home, [[*flags, "--mesh.fsdp=4"]], 4, 2)
    while not losses(home, "mlm-4"):
        assert all(process.poll() is None for process in started), end(started)
        time.sleep(0.05)
    started[-1].send_signal(signal.SIGTERM)
    said = end(started, code=128 + signal.SIGTERM)[0]
    assert "stopped at step" in said
    assert 0 < losses(home, "mlm-4")[-1][0] < 20, "it ended before the signal came"
    with contextlib.chdir(home):
        assert call(main, "--resume", "--out=mlm-4", "--mesh.fsdp=1", "--mesh.tensor=2")[0] == 0
    assert_equal_runs(home, "mlm-1", "mlm-4")


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "gone"), [(signal.SIGSTOP, 1), (signal.SIGKILL, 1), (signal.SIGSTOP, 0)])
def test_a_process_that_is_gone_is_named(signum, gone, home):
    """Of process 0 a kill ends the others at once, in JAX's coordination service."""
    flags = [*SMALL, "--task=mlm", *TASKS["mlm"], f"--out=gone-{signum}-{gone}", "--distributed.patience=20"]
    pair = start(home, [[*flags, "--steps=1000000", "--checkpoint.every=1000000"]], 2, 4)
    try:
        path, deadline = home / f"gone-{signum}-{gone}" / "metrics.jsonl", time.monotonic() + 500
        while not (path.exists() and path.read_text().count("\n") > 2):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        pair[gone].send_signal(signum)
        began = time.monotonic()
        _, err = pair[1 - gone].communicate(timeout=120)
        assert time.monotonic() - began < 60
    finally:
        for process in pair:
            process.kill()
    sentence = err.splitlines()[-1]
    assert pair[1 - gone].returncode == 75, err
    assert re.fullmatch(
        rf"error: process {gone} \(process id {pair[gone].pid} on .*, after step \d+\) said nothing for \d+ s; "
        rf"this is process {1 - gone} after step \d+; start all again with --resume",
        sentence,
    )


@pytest.mark.slow
def test_two_processes_keep_a_black_box_that_one_runs_again(home):
    flags = [*SMALL, "--task=lm", "--data=text.txt", "--optim.rate=1e6", "--optim.clip=none", "--model.norm=rms"]
    said = end(start(home, [[*flags, "--out=bad", "--checkpoint.every=3", "--mesh.fsdp=4"]], 2, 4), code=2)[0]
    assert "error: the loss of step" in said
    with contextlib.chdir(home):
        code, out, err = call(replay, "--run=bad")
    assert code == 0, err
    assert "bad/blackbox/step-" in err
    assert "is the first that is not finite" in out.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
def test_nobody_comes(process, tmp_path):
    """Neither the coordinator, nor the others to the coordinator."""
    write_text(tmp_path / "text.txt")
    cluster = [
        f"--distributed.coordinator=localhost:{free_port()}",
        "--distributed.processes=2",
        f"--distributed.process={process}",
    ]
    (said,) = end(
        start(tmp_path, [[*SMALL, "--task=mlm", "--data=text.txt", "--out=run", *cluster, "--distributed.timeout=2"]]),
        code=2,
    )
    assert said.startswith("error: not all of 2 processes met at the coordinator at localhost:")
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_who_waits_says_so(capsys):
    """Ten minutes by default: starts of a cluster are uneven."""
    assert Distributed().timeout >= 600
    thread = threading.Thread(target=time.sleep, args=(3.0,))
    thread.start()
    distributed._join(thread, 0.25, "waiting for b", every=0.1)
    assert capsys.readouterr().err == "waiting for b: 0 s of 0\n" * 2
    thread.join()
    distributed._join(thread, 9, "waiting for b", every=9)
    assert capsys.readouterr().err == ""


def test_jax_takes_no_signal(monkeypatch):
    """Its preemption service would write a line for SIGTERM, and the process would go on."""
    connected = []
    connect = lambda *arguments, **options: connected.append(jax.config.jax_enable_preemption_service)
    monkeypatch.setattr(jax.distributed, "initialize", connect)
    assert distributed.initialize(Distributed("localhost:1", 2, 0)) == 2
    assert connected == [False]


def test_one_process_is_alone(tmp_path):
    assert distributed.initialize(Distributed()) == 1
    assert distributed.broadcast_from_main(lambda: "folder") == "folder"
    assert distributed.output_dir(tmp_path) == tmp_path
    assert [distributed.any_process(flag) for flag in (True, False)] == [True, False]
    assert distributed.all_equal("text")


def test_the_share_of_a_process_is_the_rows_of_its_devices():
    """All of them where all devices are its own, in whatever parts."""
    for mesh in (tfm.make_mesh(), tfm.make_mesh(2, 2, 2)):
        assert feed.local_rows(mesh, 2, 16).tolist() == [True] * 16


@pytest.mark.slow
def test_four_processes_that_read_a_store_equal_one(home):
    """Each reads its own rows of the shards."""
    flags = [*SMALL, "--task=lm", "--data=store", "--model.dropout=0.1"]
    with contextlib.chdir(home):
        code, _, err = call(
            prepare.main,
            "--data=text.txt",
            "--data.split=line",
            "--to=store",
            "--runner=here",
            "--tokenizer.vocab=400",
            "--length=16",
            "--hold-out=0.2",
            "--shard=300",
        )
        assert code == 0, err
        assert call(main, *flags, "--out=store-1")[0] == 0
    end(start(home, [[*flags, "--mesh.fsdp=2", "--mesh.tensor=2", "--out=store-4"]], 4, 2))
    assert len(losses(home, "store-1")) > 20
    assert_equal_runs(home, "store-1", "store-4")

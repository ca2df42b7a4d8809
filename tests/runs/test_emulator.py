"""Checkpoints on a server that speaks as Google Cloud Storage does: killed runs, owners, damage, and what is refused.

It needs `pip install gcp-storage-emulator` and the extra [gcs].
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import fsspec
import jax
import numpy as np
import pytest
from devices.test_distributed import end, free_port
from runs.bucket_server import Proxy, bucket_server, refusing_server, silent_server
from small import call, write_text

from train import evaluate, export, predict, prune
from train.main import main
from train.runs.run_folder import open_folder

os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # it asks for an account first; gcsfs reads it once
pytest.importorskip("gcsfs")
pytest.importorskip("gcp_storage_emulator")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FLAGS = (
    "--task=mlm --data=text.txt --model.layers=1 --model.width=16 --model.heads=2 --model.ffn=16 --tokenizer.vocab=400 "
    "--batch.size=8 --batch.length=16 --steps=20 --log.every=1 --eval.every=20 --checkpoint.every=5 --checkpoint.keep=2"
).split()


def speak_to(monkeypatch, address: str):
    """Every client of a bucket, in this process and in those that it starts, asks this address."""
    for name in ("STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL"):
        monkeypatch.setenv(name, address)
    monkeypatch.setenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", "none")
    monkeypatch.setenv("GCE_METADATA_ROOT", "localhost:1")


@pytest.fixture(scope="module")
def server():
    """The address of a server with the bucket `bucket`."""
    with bucket_server("bucket") as address:
        yield address


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A text, and a run that nothing interrupts, with its checkpoints in its folder."""
    folder = tmp_path_factory.mktemp("home")
    write_text(folder / "text.txt", lines=100)
    with contextlib.chdir(folder):
        assert begin(*FLAGS, "--out=local").wait() == 0
    return folder


@pytest.fixture
def bucket(server, home, monkeypatch):
    monkeypatch.chdir(home)
    speak_to(monkeypatch, server)


def begin(*flags):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "train.main", *flags]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def begin_pair(monkeypatch, *flags):
    """The command in two processes of four devices each."""
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4")
    cluster = [f"--distributed.coordinator=localhost:{free_port()}", "--distributed.processes=2"]
    return [begin(*flags, *cluster, f"--distributed.process={process}") for process in range(2)]


def wait_for(server, process, checkpoint):
    """Waits until a process has saved a checkpoint: its own mark is the last, behind those of its parts."""
    while f"{checkpoint}/commit_success.txt" not in names(server, checkpoint):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)


def parameters(run):
    return jax.tree.map(np.asarray, open_folder(run).load(log=print))


def losses(run):
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return {(line["split"], line["step"]): line["loss"] for line in lines}


def names(server, prefix):
    """The objects below a prefix, as the server lists them."""
    with urllib.request.urlopen(f"{server}/storage/v1/b/bucket/o?prefix={prefix}") as answer:
        return [item["name"] for item in json.load(answer).get("items", [])]


def test_a_killed_run_goes_on_bit_for_bit(bucket, server):
    url = "gs://bucket/runs/killed"
    process = begin(*FLAGS, "--out=killed", f"--checkpoint.folder={url}")
    wait_for(server, process, "runs/killed/10")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "runs/killed/.owner" in names(server, "runs/killed/.owner")
    process = begin("--resume", "--out=killed")  # on the devices of the run that nothing interrupts
    err = process.communicate()[1]
    assert process.returncode == 0, err
    assert "going on from step" in err
    assert not names(server, "runs/killed/.owner")
    steps = {name.split("/")[2] for name in names(server, "runs/killed/")}
    assert steps == {"15", "20"}
    assert not (Path("killed") / "checkpoints").exists()
    jax.tree.map(np.testing.assert_array_equal, parameters("killed"), parameters("local"))
    assert losses("killed") == losses("local")
    results = [call(evaluate.main, f"--run={run}")[1] for run in ("killed", "local")]
    assert results[0].replace("killed", "local") == results[1]


def test_two_processes_save_to_one_bucket(bucket, server, monkeypatch):
    """They, and one process that goes on, have the losses of one process. What a killed one leaves is gone on with."""
    url, flags = "gs://bucket/runs/pair", [*FLAGS, "--out=pair", "--checkpoint.folder=gs://bucket/runs/pair"]
    with monkeypatch.context() as patch:
        end(begin_pair(patch, *flags, "--stop-at=5"))
        said = end(begin_pair(patch, "--resume", "--out=pair", "--stop-at=10"))
    assert f"going on from step 5 of {url}" in said[0]
    end([begin("--resume", "--out=pair")])
    expected, actual = losses("local"), losses("pair")
    assert actual.keys() == expected.keys()
    np.testing.assert_allclose([actual[key] for key in expected], [*expected.values()], rtol=0, atol=1e-5)

    flags = ["--resume", "--out=pair", "--distributed.patience=15"]
    with monkeypatch.context() as patch:
        pair = begin_pair(patch, *flags, "--steps=1000000")
        wait_for(server, pair[0], "runs/pair/25")
        pair[1].send_signal(signal.SIGKILL)
        said = pair[0].communicate(timeout=120)[1]
        assert pair[0].returncode == 75, said
        newest = max(int(name.split("/")[2]) for name in names(server, "runs/pair/") if name.count("/") == 3)
        assert "going on from step" in end(begin_pair(patch, *flags, f"--stop-at={newest + 5}"))[0]


COMMANDS = {
    "evaluate": (evaluate.main, ()),
    "predict": (predict.main, ("--text=the [MASK] sat",)),
    "export": (export.main, ("--to=made",)),
    "prune": (prune.main, ("--heads=0.5", "--to=made")),
}


@pytest.fixture
def kept(bucket, server):
    """The URL of a run whose checkpoints lie in the bucket."""
    url = "gs://bucket/runs/kept"
    if not Path("kept").exists():
        end([begin(*FLAGS, "--out=kept", f"--checkpoint.folder={url}")])  # on the devices of the local run
    return url


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_read_a_run_of_a_bucket(kept, name):
    """They answer as for a run with its checkpoints in its folder."""
    command, flags = COMMANDS[name]
    answers, files = [], []
    for run in ("local", "kept"):
        code, out, err = call(command, f"--run={run}", *flags)
        assert code == 0, err
        answers.append(out)
        weights = Path("made/model.safetensors")
        files.append(weights.read_bytes() if weights.exists() else b"")
        shutil.rmtree("made", ignore_errors=True)
    assert answers[0] == answers[1]
    assert files[0] == files[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_say_what_a_bucket_lacks(kept, name, server, monkeypatch):
    """Rights, the bucket itself, and a file of the checkpoint: a sentence, and nothing is made."""
    command, flags = COMMANDS[name]
    (file, *_) = [name for name in names(server, "runs/kept/20/params/") if "/d/" in name]
    sentences = {403: "your account may not read and write there", 404: "the bucket, or something in it, is absent"}
    for refusal, sentence in sentences.items():
        with monkeypatch.context() as patch:
            patch.setattr(Proxy, "refuses", refusal)
            code, out, err = call(command, "--run=kept", *flags)
        assert (code, out) == (2, "")
        assert f"error: {kept}: {sentence}" in err.splitlines()[-1]
    system = fsspec.filesystem("gs")
    content = system.cat(f"bucket/{file}")
    system.rm(f"bucket/{file}")
    code, out, err = call(command, "--run=kept", *flags)
    system.pipe(f"bucket/{file}", content)
    assert (code, out) == (2, "")
    assert f"error: checkpoint 20 of {kept} is damaged ({file.partition('/20/')[2]} is missing)" in err
    assert not Path("made").exists()


def test_a_bucket_that_never_answers_is_a_sentence(kept, monkeypatch):
    """gcsfs alone would wait for half an hour."""
    with silent_server() as address:
        speak_to(monkeypatch, address)
        command = [sys.executable, "-m", "train.evaluate", "--run=kept"]
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 2
    assert f"error: {kept}: it cannot be reached; check the network" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_run_is_refused_while_the_first_trains(bucket, server):
    url = "gs://bucket/runs/owned"
    flags = [*FLAGS, f"--checkpoint.folder={url}"]
    process = begin(*flags, "--out=first", "--steps=1000000")
    wait_for(server, process, "runs/owned/5")
    code, _, err = call(main, *flags, "--out=second")
    assert code == 2
    assert f"error: {url} belongs to process {process.pid} on " in err
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 143
    code, _, err = call(main, *flags, "--out=second")
    assert code == 2
    assert f"error: --checkpoint.folder={url} already holds checkpoints; choose another folder, or add --resume" in err
    assert not Path("second").exists()


def test_a_bucket_that_begins_to_refuse_ends_the_run_and_it_goes_on_later(bucket, server, monkeypatch):
    url = "gs://bucket/runs/revoked"
    process = begin(*FLAGS, "--out=revoked", f"--checkpoint.folder={url}", "--steps=1000000")
    wait_for(server, process, "runs/revoked/5")
    with monkeypatch.context() as patch:
        patch.setattr(Proxy, "refuses", 403)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 2, said
    kept = "; its last whole checkpoint is kept: add --resume then\n"
    assert f"error: {url}: your account may not read and write there; give it the right, or log in" in said
    assert said.endswith(kept)
    marks = [name for name in names(server, "runs/revoked/") if name.endswith("/commit_success.txt")]
    newest = max(int(name.split("/")[2]) for name in marks if name.count("/") == 3)
    code, _, err = call(main, "--resume", "--out=revoked", f"--stop-at={newest}")
    assert code == 0, err
    assert f"going on from step {newest} of {url}" in err


def test_a_damaged_checkpoint_is_passed_over(bucket, server):
    url = "gs://bucket/runs/damaged"
    assert call(main, *FLAGS, "--out=damaged", f"--checkpoint.folder={url}", "--stop-at=10")[0] == 0
    name = next(name for name in names(server, "runs/damaged/10/params/") if "/d/" in name)
    delete = urllib.request.Request(f"{server}/storage/v1/b/bucket/o/{name.replace('/', '%2F')}", method="DELETE")
    urllib.request.urlopen(delete)
    code, _, err = call(evaluate.main, "--run=damaged")
    assert code == 2
    assert f"checkpoint 10 of {url} is damaged ({name.partition('/10/')[2]} is missing); let python" in err
    code, _, err = call(main, "--resume", "--out=damaged")
    assert code == 0, err
    assert "going on from step 5" in err
    assert names(server, "runs/damaged/damaged/10/manifest.json")
    assert call(main, "--resume", "--out=damaged", "--steps=21")[0] == 0
    assert names(server, "runs/damaged/damaged/10/manifest.json"), "it stays"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [(403, "your account may not read and write there"), (429, "a quota or a rate"), (None, "it cannot be reached")],
)
def test_a_bucket_that_refuses_is_a_sentence(code, sentence, home, monkeypatch):
    monkeypatch.chdir(home)
    with refusing_server(code or 500) as address:
        speak_to(monkeypatch, address if code else "http://localhost:1")
        code, _, err = call(main, *FLAGS, "--out=refused", "--checkpoint.folder=gs://bucket/x")
    assert code == 2
    assert f"error: gs://bucket/x: {sentence}" in err
    assert err.count("\n") < 3
    assert not Path("refused").exists()


def test_an_absent_bucket_is_a_sentence(bucket):
    code, _, err = call(main, *FLAGS, "--out=absent", "--checkpoint.folder=gs://nobody/x")
    assert code == 2
    assert "error: gs://nobody/x: the bucket, or something in it, is absent; check the name, and make the bucket" in err
    assert not Path("absent").exists()

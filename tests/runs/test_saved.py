"""Checkpoints that are read are those that were written, to the bit."""

import errno
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train import UserError
from train.files import checksum
from train.runs import manifest, saved
from train.runs.checkpoint import Checkpoints
from train.runs.saved import SavedCheckpoints
from train.runs.state import State

NOTE = {"window": {"loss": 0.5}, "best": {"step": 1}}


def state(n, width=64):
    return State(jnp.int32(n), {"w": jnp.full((4, width), 1.0 * n)}, {"m": jnp.full((4, width), 2.0 * n)})


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Checkpoints 1 and 2 of a small state."""
    folder = tmp_path_factory.mktemp("made") / "run" / "checkpoints"
    store = Checkpoints(folder, keep=3)
    for n in (1, 2):
        store.save(n, state(n), NOTE, 0.5 * n)
    store.close()
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original.parent, tmp_path / "run")) / "checkpoints"


def restored(folder, verify="all", like=None):
    """The step that a run goes on from, and what it logs."""
    lines = []
    tree, note, step = SavedCheckpoints(folder, verify).restore(like or state(0), lines.append)
    assert step == tree.step == float(tree.params["w"][0, 0]) == float(tree.opt["m"][0, 0]) / 2
    assert note == NOTE
    return step, lines


def weights(folder, **options):
    return np.unique(saved.load_params(folder, state(0).params, print, **options)["w"]).tolist()


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(data))


def files(folder):
    """All files of a checkpoint that are read; Orbax writes the others when everything is there."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in paths if str(path.relative_to(folder)) not in manifest._WRITTEN_LATER]


def test_whole_checkpoints(folder):
    assert restored(folder) == (2, [])
    assert weights(folder) == [2.0]
    assert weights(folder, best=True) == [1.0]
    assert weights(folder, average=2) == [1.5]


def test_every_file_is_in_the_manifest(folder):
    names = json.loads((folder / "2" / manifest.NAME).read_text())["files"]
    assert {str(path.relative_to(folder / "2")) for path in files(folder / "2")} == {*names, manifest.NAME}
    assert any(name.startswith("params/") for name in names)
    assert any(name.startswith("opt/") for name in names)


def test_a_flipped_bit_in_any_file_is_noticed(folder):
    rng = np.random.default_rng(0)
    for path in files(folder / "2"):
        if not path.stat().st_size:
            continue
        bit = int(rng.integers(8 * path.stat().st_size))
        flip(path, bit)
        reason = manifest.damage(folder / "2", ["params", "opt", "note", "metrics"])
        assert reason, f"bit {bit} of {path}"
        assert path.name == manifest.NAME or str(path.relative_to(folder / "2")) in reason
        flip(path, bit)
    assert manifest.damage(folder / "2", ["params", "opt", "note", "metrics"]) is None


def test_pieces_of_a_large_file(tmp_path, monkeypatch):
    monkeypatch.setattr(checksum, "PIECE", 10)
    for size in (0, 10, 11, 25):
        (tmp_path / "7").mkdir(exist_ok=True)
        (tmp_path / "7" / "a").mkdir(exist_ok=True)
        (tmp_path / "7" / "a" / "b").write_bytes(bytes(range(size)))
        manifest.write(tmp_path / "7", 7)
        assert manifest.damage(tmp_path / "7", ["a"]) is None
        for byte in range(0, size, 6):
            flip(tmp_path / "7" / "a" / "b", 8 * byte)
            assert manifest.damage(tmp_path / "7", ["a"]) == "a/b differs from its checksum"
            flip(tmp_path / "7" / "a" / "b", 8 * byte)
        (tmp_path / "7" / manifest.NAME).unlink()


def damage(folder, kind):
    arrays = [path for path in files(folder) if path.parent.name == "d"]
    if kind == "bit":
        params = [path for path in arrays if folder / "params" in path.parents]
        flip(max(params, key=lambda path: path.stat().st_size), 300)
    elif kind == "cut":
        for path in arrays:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif kind == "no manifest":
        (folder / manifest.NAME).unlink()
    elif kind == "renamed":
        shutil.copytree(folder, folder.with_name("9"))
    elif kind in ("params", "opt", "note"):
        shutil.rmtree(folder / kind)
    else:
        (folder / manifest.NAME).write_text(kind)


DAMAGES = ["bit", "cut", "no manifest", "renamed", "params", "opt", "note", "", "7", "{}", '{"step": 2, "files": 3}']
DAMAGES += ['{"step": 2, "files": {"params/a": [1, "x"], "opt/a": 3, "note/a": {}}}', "[" * 100_000]


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_run_goes_on_from_the_newest_whole_one(folder, kind):
    """The damaged one is named, and set aside: its step will be saved again, and what is left of it is not lost."""
    damage(folder / "2", kind)
    step, lines = restored(folder)
    bad, good = ("9", 2) if kind == "renamed" else ("2", 1)
    assert step == good
    (line,) = lines
    assert line.startswith(f"checkpoint {bad} cannot be read (")
    assert line.endswith("); falling back to the one before")
    assert not (folder / bad).exists()
    assert (folder.parent / saved.DAMAGED / bad).is_dir()


@pytest.mark.parametrize("options", [{}, {"average": 2}])
def test_other_commands_refuse_a_damaged_one(folder, options):
    damage(folder / "2", "bit")
    remedy = "let python -m train.main --resume --out=.*run go on from an older one, or delete .*/2"
    sentence = rf"^checkpoint 2 of .*run is damaged \(params/.* differs from its checksum\); {remedy}$"
    flip(max(files(folder / "2" / "opt"), key=lambda path: path.stat().st_size), 99)
    with pytest.raises(UserError, match=sentence):
        weights(folder, **options)
    shutil.rmtree(folder / "1")
    with pytest.raises(UserError, match=r"it is the oldest: start a new run" if not options else "has 1 checkpoints"):
        weights(folder, **options)


def test_the_best_one_is_read_although_a_newer_one_is_damaged(folder):
    damage(folder / "2", "bit")
    assert weights(folder, best=True) == [1.0]
    damage(folder / "2", "note")
    with pytest.raises(UserError, match="checkpoint 2 of"):
        weights(folder, best=True)


def test_damaged_values_of_an_older_one(folder):
    """Orbax would read them to find the best checkpoint."""
    (folder / "1" / "metrics" / "metrics").write_text("{")
    assert restored(folder) == (2, [])
    assert SavedCheckpoints(folder).steps == [2]


def test_less_is_compared_where_that_is_asked_for(folder, monkeypatch):
    damage(folder / "2", "bit")
    for chance, verdict in ((1, None), (0, "differs from its checksum")):
        monkeypatch.setattr(manifest.random, "random", lambda chance=chance: chance)
        reason = manifest.damage(folder / "2", ["params"], "sample")
        assert reason is verdict is None or str(reason).endswith(verdict)
    assert manifest.damage(folder / "2", ["params"], "none") is None
    damage(folder / "2", "cut")
    assert "has not the size" in manifest.damage(folder / "2", ["params"], "none"), "sizes cost nothing"


def test_a_resumed_run_keeps_the_best_one(folder):
    """The metrics are in the checkpoints, and not only in the process that made them."""
    for step in (3, 4):
        store = Checkpoints(folder)
        store.save(step, state(step), NOTE, 0.5 * step)
        store.close()
    assert SavedCheckpoints(folder).steps == [1, 4]


def test_the_best_of_the_checkpoints_that_are_there(folder):
    assert SavedCheckpoints(folder).best_metric(min) == (1, 0.5)
    assert SavedCheckpoints(folder).best_metric(max) == (2, 1.0)
    store = Checkpoints(folder, keep=1)
    store.save(3, state(3), NOTE | {"best": {"step": 7}}, None)
    store.close()
    assert SavedCheckpoints(folder).best_metric(max) == (1, 0.5), "2 is gone, and 3 has no metric"
    lines = []
    assert np.unique(saved.load_params(folder, state(0).params, lines.append, best=True)["w"]).tolist() == [3]
    assert lines == [f"the best checkpoint of {folder.parent}, 7, is gone; the newest, 3, is taken"]


def test_another_architecture_is_no_damage(folder):
    sentence = r"run is of another architecture than its run.json says: w is \(4, 64\) in checkpoint 2 and \(4, 32\) by"
    with pytest.raises(UserError, match=sentence):
        restored(folder, like=state(0, width=32))
    with pytest.raises(UserError, match=sentence):
        saved.load_params(folder, state(0, width=32).params, print)
    like = State(jnp.int32(0), state(0).params, {"m": state(0).opt["m"], "v": state(0).opt["m"]})
    with pytest.raises(UserError, match=r"opt.v is absent in checkpoint 2 and \(4, 64\) by run.json"):
        restored(folder, like=like)
    assert SavedCheckpoints(folder).steps == [1, 2]


def test_what_is_no_checkpoint(folder):
    for name in ("abc", "3.orbax-checkpoint-tmp", "007", "٣", "-4"):
        (folder / name).mkdir()
    (folder / "99").write_text("")
    assert SavedCheckpoints(folder).steps == [1, 2]
    assert restored(folder) == (2, ["checkpoint 3 was never finished; passing over it"])


def test_a_checkpoint_without_room_for_its_manifest_is_none(tmp_path, monkeypatch):
    """The manifest belongs to what is committed at once."""
    store = Checkpoints(tmp_path / "checkpoints")
    store.save(1, state(1), NOTE, None)

    def full(folder, step):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(manifest, "write", lambda folder, step, write=manifest.write: write(folder, step) or None)
    store.close()
    assert manifest.damage(tmp_path / "checkpoints" / "1", ["params"]) is None
    store = Checkpoints(tmp_path / "checkpoints")
    monkeypatch.setattr(manifest, "write", full)
    store.save(2, state(2), NOTE, None)
    with pytest.raises(UserError, match="the disk is full: .*checkpoints keeps its last whole checkpoint; free some"):
        store.close()
    assert SavedCheckpoints(tmp_path / "checkpoints").steps == [1]


def test_on_a_mesh(tmp_path):
    """Arrays that are spread over devices are compared before they are read, file by file."""
    mesh = jax.make_mesh((8,), ("data",))
    by_columns = jax.NamedSharding(mesh, jax.P(None, "data"))
    tree = jax.device_put(
        state(1), jax.tree.map(lambda leaf: by_columns if leaf.ndim else jax.NamedSharding(mesh, jax.P()), state(1))
    )
    store = Checkpoints(tmp_path / "run" / "checkpoints")
    store.save(1, tree, NOTE, None)
    store.close()
    checkpoints = SavedCheckpoints(tmp_path / "run" / "checkpoints")
    read, _, _ = checkpoints.restore(tree, print)
    assert read.params["w"].sharding == by_columns
    np.testing.assert_array_equal(read.params["w"], tree.params["w"])
    damage(tmp_path / "run" / "checkpoints" / "1", "bit")
    with pytest.raises(UserError, match="holds no whole checkpoint"):
        checkpoints.restore(tree, lambda line: None)

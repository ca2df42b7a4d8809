"""TensorFlow datasets: rows as they were written, and one sentence for whatever is in the way."""

import contextlib
import errno
import importlib
import itertools
import logging
import os
import subprocess
import sys
import time
import warnings

import pytest

from train import UserError
from train.data.sources import files, sources, tfds
from train.data.sources.tfds import read
from train.files.suppress_output import suppress_output
from train.main import main
from train.settings.schema import Data

# Reviews is prepared in a process of its own, so that no builder of it is importable here.
BUILDERS = """
import errno
import io

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets import features as f

TAGS = ["O", "B-PER", "I-PER"]


class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version("1.2.0")
    FEATURES = {"text": f.Text()}

    def _info(self):
        return self.dataset_info_from_configs(features=f.FeaturesDict(self.FEATURES))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(0, 20), "test": self._generate_examples(20, 25)}

    def _generate_examples(self, first, last):
        for n in range(first, last):
            yield n, self.row(n)

    def row(self, n):
        return {"text": f"row {n}"}


class TinyReviews(Builder):
    FEATURES = {
        "text": f.Text(),
        "label": f.ClassLabel(names=["bad", "good"]),
        "score": f.Scalar(np.float32),
        "number": np.int64,
        "kind": np.bool_,
        "tags": f.Sequence(f.ClassLabel(names=TAGS)),
        "words": f.Sequence(f.Text()),
        "translation": f.Translation(["de", "en"]),
        "answers": f.Sequence({"text": f.Text(), "start": np.int32, "image": f.Image()}),
        "turns": f.Dataset({"who": f.ClassLabel(names=["a", "b"]), "says": f.Text()}),
        "grid": f.Tensor(shape=(2, 2), dtype=np.float32),
        "raw": np.object_,
        "image": f.Image(),
        "frames": f.Sequence(f.Image()),
        "media": {"image": f.Image()},
    }

    def row(self, n):
        image = lambda: io.BytesIO(b"decoding this would fail")
        return {
            "text": f"Grüße {n}\\n",
            "label": n % 2 if n < 20 else -1,
            "score": n / 4,
            "number": n,
            "kind": n % 3 == 0,
            "tags": [TAGS[i % 3] for i in range(n % 4)],
            "words": [f"w{i} ü" for i in range(n % 3)],
            "translation": {"de": f"nein {n}", "en": f"no {n}"},
            "answers": [{"text": f"a{i}", "start": i, "image": image()} for i in range(n % 3)],
            "turns": [{"who": i % 2, "says": f"s{i}"} for i in range(n % 3)],
            "grid": np.full((2, 2), n, np.float32),
            "raw": b"caf\\xe9",
            "image": image(),
            "frames": [image()],
            "media": {"image": image()},
        }


class TinyConfigs(Builder):
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name, version="1.2.0") for name in ("one", "two")]


class TinyPictures(Builder):
    FEATURES = {"image": f.Image(shape=(2, 2, 3))}

    def row(self, n):
        return {"image": np.zeros((2, 2, 3), np.uint8)}


class TinyBug(Builder):
    def row(self, n):
        raise KeyError("a bug of theirs")


class TinyFull(Builder):
    def row(self, n):
        raise OSError(errno.ENOSPC, "No space left on device")


class TinyStop(Builder):
    def row(self, n):
        raise KeyboardInterrupt


class TinyBeam(Builder):
    def row(self, n):
        import apache_beam.nothing
"""
PREPARE = """
import sys
sys.path.insert(0, sys.argv[1])
from tiny_sets import builders
builders.TinyReviews(data_dir=sys.argv[2]).download_and_prepare(file_format="array_record")
for name in "one", "two":
    builders.TinyConfigs(data_dir=sys.argv[2], config=name).download_and_prepare(file_format="array_record")
"""


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    (folder / "tiny_sets").mkdir()
    (folder / "tiny_sets" / "__init__.py").touch()
    (folder / "tiny_sets" / "builders.py").write_text(BUILDERS)
    return folder


@pytest.fixture(scope="session")
def prepared(package, tmp_path_factory):
    """A folder of sets that were prepared elsewhere."""
    folder = tmp_path_factory.mktemp("prepared")
    subprocess.run([sys.executable, "-c", PREPARE, str(package), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture
def stored(prepared, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    return prepared


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "sets"))
    return tmp_path


@pytest.fixture
def builders(package, monkeypatch):
    """The builders are importable, until the end of the test."""
    from tensorflow_datasets.core import registered

    monkeypatch.syspath_prepend(package)
    before = set(registered._DATASET_REGISTRY)
    yield importlib.import_module("tiny_sets.builders")
    sys.modules.pop("tiny_sets.builders")
    for name in set(registered._DATASET_REGISTRY) - before:
        if name.startswith("tiny_"):
            del registered._DATASET_REGISTRY[name]


def expected(n):
    """Row n, as a line of a .jsonl file would have it."""
    return {
        "text": f"Grüße {n}\n",
        "label": ["bad", "good"][n % 2] if n < 20 else None,
        "score": n / 4,
        "number": n,
        "kind": n % 3 == 0,
        "tags": ["O", "B-PER", "I-PER"][: n % 4],
        "words": ["w0 ü", "w1 ü"][: n % 3],
        "translation": {"de": f"nein {n}", "en": f"no {n}"},
        "answers": {"text": ["a0", "a1"][: n % 3], "start": [0, 1][: n % 3]},
        "turns": [{"who": "a", "says": "s0"}, {"who": "b", "says": "s1"}][: n % 3],
        "grid": [[n, n], [n, n]],
        "raw": "caf\ufffd",
    }


def kinds(value):
    """The types of a value and of all that is in it."""
    if isinstance(value, dict):
        return {dict}.union(*map(kinds, value.values()))
    return {list}.union(*map(kinds, value)) if isinstance(value, list) else {type(value)}


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def refused(source):
    """The sentence with which a source is refused."""
    with pytest.raises(UserError) as caught:
        read(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_rows_are_what_was_written(stored, capfd):
    rows = read("tfds:tiny_reviews")
    assert sorted(rows, key=lambda row: row["number"]) == [expected(n) for n in range(20)]
    assert kinds(rows) == {dict, list, str, int, float, bool}
    assert list(rows[0]) == sorted(rows[0]), "the order of names is the same in every process"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("tfds:tiny_reviews:train", range(20)),
        ("tfds:tiny_reviews:test", range(20, 25)),
        ("tfds:tiny_reviews:1.2.0", range(20)),
        ("tfds:tiny_reviews:1.*.*:test", range(20, 25)),
        ("tfds:tiny_reviews:train+test", range(25)),
        ("tfds:tiny_reviews:all", range(25)),
        ("tfds:TinyReviews:test", range(20, 25)),
    ],
)
def test_splits_and_versions(stored, source, numbers):
    assert sorted((row for row in read(source)), key=lambda row: row["number"]) == [expected(n) for n in numbers]


def test_a_stream_reads_some_at_a_time(stored, monkeypatch):
    monkeypatch.setattr(tfds, "_TOGETHER", 7)
    expected, rows = read("tfds:tiny_reviews"), tfds.stream("tfds:tiny_reviews")
    assert [*itertools.islice(rows, 8)] == expected[:8]
    assert [*rows] == expected[8:]


def test_parts_of_a_split(stored):
    rows = read("tfds:tiny_reviews")
    assert read("tfds:tiny_reviews:train[:10%]") == rows[:2]
    assert read("tfds:tiny_reviews:1.2.0:train[5:]") == rows[5:]
    assert read("tfds:tiny_reviews:train[-1:]+test[:1]")[0] == rows[-1]


def test_configurations(stored):
    assert sorted(row["text"] for row in read("tfds:tiny_configs/two:1.2.0:test")) == [
        f"row {n}" for n in range(20, 25)
    ]


def test_home_folder_is_the_default(prepared, tmp_path, monkeypatch):
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tensorflow_datasets").symlink_to(prepared)
    assert len(read("tfds:tiny_reviews:test")) == 5


def test_an_imported_builder_is_prepared_first(builders, empty, capfd):
    read("tfds:tiny_reviews:test")
    assert capfd.readouterr() == ("", f"downloading and preparing tfds:tiny_reviews in {empty}/sets\n")
    rows = read("tfds:tiny_reviews:train")
    assert sorted(rows, key=lambda row: row["number"]) == [expected(n) for n in range(20)]
    assert capfd.readouterr() == ("", ""), "once"


UNKNOWN = [
    ("tfds:tiny_review", "tfds:tiny_review is unknown; did you mean tiny_reviews"),
    ("tfds:gleu/sst2", "tfds:gleu/sst2 is unknown; did you mean glue?"),
    ("tfds:wmt14", "tfds:wmt14 is unknown; did you mean wmt14_translate?"),
    ("tfds:imdb:test", "tfds:imdb is unknown; did you mean imdb_reviews?"),
    ("tfds:qqqqqqqqqqqq", "tfds:qqqqqqqqqqqq is unknown; https://www.tensorflow.org/datasets/catalog lists all"),
    ("tfds:glue/sst3", "tfds:glue/sst3 is unknown; known are glue/cola, glue/sst2, "),
    ("tfds:wiki40b/eng", "tfds:wiki40b/eng is unknown; did you mean wiki40b/en or "),
    ("tfds:wmt14_translate/en-de", "known are wmt14_translate/cs-en, wmt14_translate/de-en, "),
    ("tfds:tiny_configs/three", "is unknown; known are tiny_configs/one:1.2.0, tiny_configs/two:1.2.0"),
    ("tfds:tiny_reviews:9.9.9", "tfds:tiny_reviews:9.9.9 is unknown; known are tiny_reviews:1.2.0"),
    (
        "tfds:glue/sst2:9.9.9",
        "tfds:glue/sst2:9.9.9 cannot be read: Dataset glue cannot be loaded at version 9.9.9, only: 2.0.0",
    ),
    (
        "tfds:wmt_translate",
        "tfds:wmt_translate cannot be read: The raw `wmt_translate` can only be instantiated with the config",
    ),
    (
        "tfds:tiny_reviews:nope",
        "tfds:tiny_reviews has no split 'nope'; it has train, test, or parts such as 'train[:10%]'",
    ),
    ("tfds:tiny_reviews:train[", "has no split 'train['; it has train, test"),
    ("tfds:tiny_reviews:train[:200%]", "has no split 'train[:200%]'"),
    ("tfds:tiny_reviews:train[:0%]", "tfds:tiny_reviews:train[:0%] holds no rows"),
    (
        "tfds:",
        "'tfds:' names no TensorFlow dataset; write tfds:NAME or tfds:NAME:SPLIT, such as tfds:glue/sst2:validation",
    ),
    ("tfds::train", "'tfds::train' names no TensorFlow dataset"),
    ("tfds:../prepared", "'tfds:../prepared' names no TensorFlow dataset"),
]


@pytest.mark.parametrize(("source", "sentence"), UNKNOWN, ids=[source for source, _ in UNKNOWN])
def test_unknown_names(stored, source, sentence, capfd):
    before, start = contents(stored), time.perf_counter()
    assert sentence in refused(source)
    assert time.perf_counter() - start < 5
    assert contents(stored) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("source", "host"), [("glue/sst2", "dl.fbaipublicfiles.com"), ("wmt14_translate/de-en:test", "www.statmt.org")]
)
def test_no_network(empty, source, host, monkeypatch, capfd):
    """A proxy that is not there stands for no network, also on machines that have one."""
    from tensorflow_datasets.core.download import downloader

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    settings, start = (downloader.MAX_RETRIES, downloader._open_url), time.perf_counter()
    name = source.split(":")[0]
    assert (
        f"tfds:{name} is not in {empty}/sets, and {host} cannot be reached to download it; check the network"
        in refused(f"tfds:{source}")
    )
    assert time.perf_counter() - start < 10
    assert (downloader.MAX_RETRIES, downloader._open_url) == settings
    assert contents(empty) == {}, "something was left behind"
    assert capfd.readouterr() == ("", f"downloading and preparing tfds:{name} in {empty}/sets\n")


UNPREPARED = [
    (
        "tiny_pictures",
        "tfds:tiny_pictures cannot be prepared without tensorflow; pip install tensorflow, or prepare it elsewhere",
    ),
    ("tiny_beam", "tfds:tiny_beam cannot be prepared without apache_beam; pip install apache-beam"),
    ("tiny_bug", "tfds:tiny_bug cannot be read: 'a bug of theirs'"),
]


@pytest.mark.parametrize(("name", "sentence"), UNPREPARED)
def test_builders_that_fail(builders, empty, name, sentence, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    (empty / "sets" / "downloads").mkdir(parents=True)
    (empty / "sets" / "downloads" / "kept.zip").touch()
    before = contents(empty)
    assert sentence in refused(f"tfds:{name}")
    assert contents(empty) == before
    assert capfd.readouterr().err.count("\n") == 1


def test_interruption_and_full_disk_leave_nothing(builders, empty):
    with pytest.raises(KeyboardInterrupt):
        read("tfds:tiny_stop")
    with pytest.raises(OSError, match="No space left") as caught:  # for which every command has its own sentence
        read("tfds:tiny_full")
    assert caught.value.errno == errno.ENOSPC
    assert contents(empty) == {}


def test_folder_that_may_not_be_written(builders, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "file"))
    assert "tfds:tiny_reviews cannot be read: " in refused("tfds:tiny_reviews")


def test_formats_for_tensorflow(prepared, empty):
    """A set as TFDS stores it by default: what says so is its dataset_info.json."""
    folder = _copy(prepared, empty)
    info = (folder / "dataset_info.json").read_text()
    assert '"fileFormat": "array_record"' in info
    (folder / "dataset_info.json").write_text(info.replace('"fileFormat": "array_record"', '"fileFormat": "tfrecord"'))
    before = contents(empty)
    sentence = refused("tfds:tiny_reviews")
    assert sentence.startswith(
        f"tfds:tiny_reviews lies in {folder} as tfrecord, which needs TensorFlow to read; prepare it with"
    )
    assert contents(empty) == before


def test_damaged_files(prepared, empty):
    (path,) = _copy(prepared, empty).glob("*train*")
    path.write_bytes(path.read_bytes()[:1000])
    assert "tfds:tiny_reviews cannot be read: " in refused("tfds:tiny_reviews")
    path.unlink()
    assert "tfds:tiny_reviews cannot be read: " in refused("tfds:tiny_reviews")


def _copy(prepared, folder):
    target = folder / "sets" / "tiny_reviews" / "1.2.0"
    target.mkdir(parents=True)
    for path in (prepared / "tiny_reviews" / "1.2.0").iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_texts_of_a_field(stored):
    def read(source, **options):
        data = Data(**options)
        return [row[data.field] for row in sources.read(source, data, files.Columns.of(data, labelled=False), list)]

    assert sorted(read("tfds:tiny_configs:test")) == [f"row {n}" for n in range(20, 25)]
    assert read("tfds:tiny_reviews:test", field="raw") == ["caf\ufffd"] * 5
    with pytest.raises(
        UserError, match=r"tfds:tiny_configs has no text column 'label' \(it has text\); name it with --data.field=NAME"
    ):
        read("tfds:tiny_configs", field="label")
    with pytest.raises(UserError, match="tfds:tiny_reviews has .* in its column 'number', which is no text"):
        read("tfds:tiny_reviews", field="number")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("tfds:gleu", "error: tfds:gleu is unknown; did you mean glue?\n"),
        (
            "tfds:tiny_reviews:nope",
            "error: tfds:tiny_reviews has no split 'nope'; it has train, test, or parts such as 'train[:10%]'\n",
        ),
        (
            "tfds:tiny_configs --data.field=body",
            "error: tfds:tiny_configs has no text column 'body' (it has text); name it with",
        ),
    ],
)
def test_the_command_refuses_in_one_sentence(stored, data, sentence, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["--preset=bert-tiny", *f"--data={data}".split()]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(sentence)
    assert err.count("\n") == 1
    assert contents(tmp_path) == {}


def test_suppressed_output_comes_back_afterwards(capfd):
    logger, streams = logging.getLogger("absl"), (sys.stdout, sys.stderr)
    level = logger.level
    with contextlib.suppress(KeyError), suppress_output("absl"):
        print("printed")
        warnings.warn("warned", stacklevel=1)
        logger.error("logged")
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'past Python')"], check=True)
        os.write(2, b"past Python")
        raise KeyError
    assert capfd.readouterr() == ("", "")
    assert (logger.level, sys.stdout, sys.stderr) == (level, *streams)
    os.write(2, b"heard again")
    assert capfd.readouterr() == ("", "heard again")


def test_other_commands_do_not_load_tfds():
    program = (
        "import sys, train.main, train.data.sources.sources, train.data.sources.tfds; "
        "print('tensorflow_datasets' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True, text=True).stdout
        == "False\n"
    )

"""Faults that once ended in a traceback, in numbers of no meaning, or in all of the memory: one sentence names them."""

import gzip
import json
import tracemalloc

import pytest
from fuzz import file_gates
from fuzz.test_gates import CONTENTS, READERS, outcome, read_hf, run_json, word_tokenizer
from hf_models import stored

import tfm
from tfm import Config
from train import evaluate, predict
from train.data.sources import text
from train.data.tokens import in_memory
from train.devices import capacity
from train.devices.cluster import find_cluster
from train.files.lines import line_writer
from train.generation import options as generation
from train.runs import run_folder
from train.runs.metrics_lines import MetricsFile, Written, read_lines
from train.settings import flags, schema
from train.tasks import resolve
from train.tasks.lm.options import Lm
from train.tasks.translate.rows import RowOptions, TranslationPairs
from train.text import tokenize
from train.training import startup

HUGE = 10**30
FIELDS = [
    *(("bert", {"vocab_size": value}) for value in ("600", None, 600.5, HUGE, True, [1], -1)),
    *(("bert", {"num_hidden_layers": value}) for value in ("two", None, True, 10**9, HUGE, 0)),
    *(("bert", {"hidden_size": value}) for value in ("64", [64], 0, 10**12)),
    *(("bert", {"hidden_act": value}) for value in ([], {}, 5, "gelo")),
    *(("bert", {"layer_norm_eps": value}) for value in ("1e-12", -1, 1e30, None)),
    *(("bert", {"hidden_dropout_prob": value}) for value in ("a", 1, -0.5)),
    *(("bert", {"intermediate_size": value}) for value in ("x", 0)),
    *(("bert", {"architectures": value}) for value in (5, {"a": 1}, [["x"]], ["x"])),
    *(("bert", {"model_type": value}) for value in (["bert"], None, 7)),
    *(("bert", {"num_labels": value}) for value in ("x", -1, 10**12)),
    *(("bert", {"id2label": value}) for value in ({"a": "x"}, ["x", "y"], 7, {"0": {"a": 1}}, {"0": "x", "2": "y"})),
    *(("bert", {"problem_type": value}) for value in ("ranking", ["x"])),
    ("llama", {"num_attention_heads": 0}),
    ("llama", {"head_dim": "x"}),
    ("llama", {"rope_scaling": [1]}),
    ("llama", {"rope_parameters": {"rope_type": "linear"}}),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": "x"}}),
    ("llama", {"rope_parameters": {"rope_type": "longrope", "short_factor": "x", "long_factor": [1.0]}}),
    ("llama", {"rope_parameters": {"rope_type": "longrope", "short_factor": [], "long_factor": [1.0]}}),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "truncate": "yes"}}),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": [2.0]}}),
    ("modernbert", {"layer_types": 5}),
    ("modernbert", {"num_hidden_layers": 10**9}),
    ("bart", {"encoder_layers": 10**9}),
    ("bart", {"decoder_start_token_id": -1}),
    ("t5", {"num_layers": "x"}),
    ("deberta", {"pos_att_type": {"a": 1}}),
]


def files_of(name: str, architecture: str, folder) -> tuple[dict, dict]:
    """The fields of a model, and the other files of its folder."""
    stored(folder / name, name, architecture)
    fields = json.loads((folder / name / "config.json").read_text())
    return fields, {"tokenizer_config.json": b"{}", "tokenizer.json": word_tokenizer().to_str().encode()}


def architecture_of(name: str) -> str:
    return {
        "bert": "BertForSequenceClassification",
        "llama": "LlamaForCausalLM",
        "modernbert": "ModernBertForMaskedLM",
        "bart": "BartForConditionalGeneration",
        "t5": "T5ForConditionalGeneration",
        "deberta": "DebertaV2ForMaskedLM",
    }[name]


@pytest.mark.parametrize(("name", "changes"), FIELDS, ids=str)
def test_fields_of_config_json(name, changes, tmp_path):
    fields, tokens = files_of(name, architecture_of(name), tmp_path)
    content = {"config.json": json.dumps(fields | changes).encode(), **tokens}
    sentence = outcome(lambda: read_hf((name, architecture_of(name), content), tmp_path))
    assert next(iter(changes)) in sentence
    content["config.json"] = json.dumps(fields).encode()
    assert outcome(lambda: read_hf((name, architecture_of(name), content), tmp_path)) == ""


@pytest.mark.parametrize(
    "content", [b"garbage", b"[]", b"[" * 100_000, b'{"do_lower_case": "x"}', "{'é'}".encode("latin-1"), b"null"]
)
def test_tokenizer_config_json(content, tmp_path):
    fields, tokens = files_of("bert", "BertModel", tmp_path)
    content = {"config.json": json.dumps(fields).encode(), **tokens, "tokenizer_config.json": content}
    assert "tokenizer_config.json" in outcome(lambda: read_hf(("bert", "BertModel", content), tmp_path))


def test_a_tokenizer_with_more_ids_than_the_model(tmp_path):
    fields, tokens = files_of("bert", "BertModel", tmp_path)
    larger = json.loads(tokens["tokenizer.json"])
    larger["model"]["vocab"] |= {f"more{index}": 95 + index for index in range(60)}
    content = {"config.json": json.dumps(fields).encode(), **tokens, "tokenizer.json": json.dumps(larger).encode()}
    sentence = outcome(lambda: read_hf(("bert", "BertModel", content), tmp_path))
    assert "the tokenizer numbers tokens up to 154, and the model has 103" in sentence


RUNS = [
    *(({}, value) for value in ([], None, 7, "x")),
    *(({"config": value}, None) for value in (None, [1], 7)),
    *(({"data": value}, None) for value in (None, [], 7)),
    *(({"config.batch.size": value}, None) for value in ("eight", None, True, HUGE)),
    *(({"config.model.width": value}, None) for value in ("64", [64], 64.5)),
    *(({"config.optim.rate": value}, None) for value in ("x", -1, 1e300)),
    *(({"config.data.source": value}, None) for value in (5, None)),
    *(({"config.task.name": value}, None) for value in (["mlm"], 7, "x")),
    *(({"config.task": value}, None) for value in ({"name": "x"}, [1], 5)),
    ({"config.model.wdith": 64}, None),
    ({"config.model.layers": 10**9}, None),
    ({"config.steps": 10**20}, None),
    ({"config.model.period": [{}] * 5000}, None),
]


@pytest.mark.parametrize(("changes", "instead"), RUNS, ids=lambda value: str(value)[:60])
def test_fields_of_run_json(changes, instead, tmp_path):
    saved = run_json()
    for name, value in changes.items():
        *path, last = name.split(".")
        section = saved
        for step in path:
            section = section[step]
        section[last] = value
    (tmp_path / "run.json").write_text(json.dumps(saved if changes else instead))

    def read():
        folder = run_folder.RunFolder(tmp_path)
        return folder.facts, folder.config

    assert "run.json" in outcome(read)
    (tmp_path / "run.json").write_text(json.dumps(run_json()))
    assert outcome(read) == ""


ROWS = [
    ("single", "a.tsv", b"text\tlabel\nfoo\ta\nbar\t\n", "a.tsv, line 3, column 'label': the label ''"),
    ("single", "a.jsonl", b'{"text": "a", "label": {"x": 1}}', "a.jsonl, line 1, column 'label': the label {'x': 1}"),
    ("single", "a.jsonl", b'{"text": "a", "label": [1]}', "a.jsonl, line 1, column 'label': the label [1]"),
    ("single", "a.jsonl", b'{"text": "a", "label": NaN}', "a.jsonl, line 1 is not JSON: NaN is not a finite number"),
    ("single", "a.jsonl", b'\n{"text": "\\ud800", "label": 1}', "a.jsonl, line 2 is not Unicode text"),
    ("single", "a.jsonl", b'{"text": ' + b"[" * 100_000, "a.jsonl, line 1 has lists and objects in one another"),
    (
        "columns",
        "a.tsv",
        b"text\tlabel\tlangue\nfoo\t1\t7\n",
        "a.tsv, line 2, column 'langue': the label '7' is neither",
    ),
    ("columns", "a.tsv", b"text\tlabel\tlangue\nfoo\tnan\t1\n", "a.tsv, line 2, column 'label': the label 'nan' is"),
    *(
        ("regression", "a.csv", f"text,label\na,1\nb,{value}\n".encode(), "a.csv, line 3, column 'label': the label")
        for value in ("nan", "inf", "1e300", "x", "")
    ),
    ("lm", "a.txt", b"text\n" * 50_000 + b"\0", "a.txt is a binary file: line 50001 has a NUL byte"),
    ("lm", "a.txt", b"text\n" * 50_000 + b"\xff", "a.txt is not UTF-8 (byte 250000)"),
    ("span", "a.json", b"[" * 100_000, "a.json has lists and objects in one another"),
]


@pytest.mark.parametrize(("reader", "name", "data", "sentence"), ROWS, ids=[row[3] for row in ROWS])
def test_rows(reader, name, data, sentence, tmp_path):
    (tmp_path / name).write_bytes(data)
    assert sentence in outcome(lambda: READERS[reader](schema.Data(source=str(tmp_path / name))))
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data))
    source = schema.Data(source=str(tmp_path / f"{name}.gz"))
    assert sentence.replace(name, f"{name}.gz") in outcome(lambda: READERS[reader](source))


def test_rows_without_faults(tmp_path):
    """What the fuzz tests start from is right."""
    names = dict(lm="a.txt", single="a.tsv", multi="a.csv", translate="a.jsonl", tag="a.conll", span="a.json")
    for reader, name in (names | {"choice": "choices.jsonl"}).items():
        (tmp_path / name).write_bytes(CONTENTS[name])
        READERS[reader](schema.Data(source=str(tmp_path / name)))


def test_a_small_file_that_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "SMALL", 1 << 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(bytes(5_000_000).replace(b"\0", b"a")))
    read = READERS["lm"]
    assert "grows more than 50 times" in outcome(lambda: read(schema.Data(source=str(tmp_path / "a.txt.gz"))))
    monkeypatch.setattr(text.cpu, "memory_bytes", lambda: 100_000)
    (tmp_path / "a.txt").write_bytes(b"a" * 30_000)
    for name in ("a.txt", "a.txt.gz"):
        sentence = outcome(lambda name=name: read(schema.Data(source=str(tmp_path / name))))
        assert "a quarter of the memory" in sentence


def test_pairs_that_are_all_too_long():
    tokenizer = word_tokenizer()
    pairs = [("w1 " * 20, "w2"), ("w1", "w2 " * 20)]
    sides = [in_memory(tokenizer, side) for side in zip(*pairs, strict=True)]
    template = tokenize.sequence_template(tokenizer)
    sentence = outcome(lambda: TranslationPairs(pairs, sides, schema.Batch(length=8), template, RowOptions(0.0, 4)))
    assert "none of the 2 pairs has at most --batch.length=8 tokens a side" in sentence


MAIN = [
    *("--steps=99999999999999999999", "--optim.warmup=1e12", "--seed=18446744073709551616", "--model.init-std=-1"),
    *(
        "--model.width=1000000000000",
        "--model.vocab=1000000000000",
        "--model.length=1000000000000",
        "--model.norm-eps=-1",
    ),
    *("--tokenizer.vocab=100000000000000000000", "--tokenizer.vocab=1000000000000000000", "--model.layers=1000000000"),
    *("--batch.length=1000000000 --model.position=rotary", "--model.period=1000000000", "--model.prefix=1000000000"),
    *(
        "--model.width=1000000",
        "--model.width=65536 --model.layers=4096",
        "--batch.size=16000000",
        "--optim.rate=1e300",
    ),
    *("--model.ffn=16000000 --model.layers=4096", "--batch.length=16000000 --model.position=rotary", "--out=\udcff"),
    *("--optim.schedule=wsd --optim.cooldown=1e30", "--task.nmae=x", "--mesh.fsdp=-5", "--tokenizer.draws=1000000000"),
]


@pytest.mark.parametrize("text", MAIN)
def test_flags_of_a_run(text):
    def read():
        run, explicit = resolve.resolve(text.split(), run_folder.resumed_values, run_folder.run_values)
        startup.check_memory(run, explicit)

    sentence = outcome(read)
    words = [word.partition("=")[0].rpartition(".")[2].lstrip("-").replace("-", "_") for word in text.split()]
    assert any(word in sentence.replace("-", "_") for word in words)


def test_flags_of_other_commands():
    for flag_text in (
        "--n=100000000",
        "--beams=100000000",
        f"--seed={2**70}",
        "--top-k=1" + "0" * 20,
        "--prompt=\udcff",
    ):
        command = ["--run=r", *([] if "prompt" in flag_text else ["--prompt=p"]), flag_text]
        name = flag_text.partition("=")[0]
        assert name in outcome(lambda command=command: flags.build(generation.GenerateOptions, flags.parse(command)))
    argv = flags.parse(["--run=r", "--text=\udcff"])
    assert "--text=" in outcome(lambda: flags.build(predict.PredictOptions, argv))
    assert "names no file" in outcome(lambda: line_writer("/").__enter__())


def test_memory_of_a_decoder():
    config = Config(layers=2, width=64, length=64)
    model = tfm.abstract(tfm.causal_lm_specs(config))
    capacity.check_decoding(model, config, 32, 1000)
    assert "fewer --beams" in outcome(lambda: capacity.check_decoding(model, config, 4096, 1 << 24))
    assert "fewer --beams" in outcome(lambda: capacity.check_decoding(model, config, 1, 1 << 24, beams=4096))
    capacity.check_tokens(config, 1 << 16)
    assert "smaller --batch" in outcome(lambda: capacity.check_tokens(config, 1 << 40))


def test_flags_of_another_task():
    options = evaluate.EvaluateOptions(run="r", against="x")
    assert "--against is no flag of --task=lm" in outcome(
        lambda: evaluate._check(options, schema.Run(task=Lm()), {"against"})
    )


@pytest.mark.parametrize(
    "environ", [{"JAX_NUM_PROCESSES": "abc"}, {"JAX_PROCESS_ID": "x"}, {"SLURM_STEP_NUM_TASKS": "1.5"}]
)
def test_environment_variables(environ):
    (name,) = environ
    assert f"{name}={environ[name]!r} must be a whole number" in outcome(
        lambda: find_cluster(schema.Distributed(), environ)
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"window": 3}, "note.window=3 must be an object"),
        ({"window": {"loss": "x"}}, "note.window.loss='x' must be a number"),
        ({"best": {"value": 1.0, "step": 3}}, "note.best has no stale"),
        ({"best": {"value": 1.0, "step": 10**400, "stale": 0}}, "note.best.step="),
        ({"written": None}, "note.written=None must be an object"),
        ({"evaluation_due": 1}, "note.evaluation_due=1 must be true or false"),
    ],
)
def test_notes_of_checkpoints(change, sentence, tmp_path):
    content = json.dumps(file_gates.PROGRESS.state() | change).encode()
    assert sentence in outcome(lambda: file_gates.read_checkpoint((file_gates.NOTE, content), tmp_path))


@pytest.mark.parametrize("data", [b"7", b"[]", b"\xff", b"[" * 100_000, b'{"window": NaN}'])
def test_notes_that_are_no_objects(data, tmp_path):
    assert str(file_gates.NOTE) in outcome(lambda: file_gates.read_checkpoint((file_gates.NOTE, data), tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        b"7",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"step": true, "split": "train"}',
        b'{"step": 1, "split": "train", "loss": "low"}',
        b'{"step": 1, "split": "train", "loss": NaN}',
        b'{"step": 1, "split": "train", "rate": [1]}',
        b'{"step": 1, "split": "train", "loss": 1' + b"0" * 400 + b"}",
    ],
    ids=lambda line: line[:50],
)
def test_lines_of_metrics(line, tmp_path):
    """They are left out, and named when the run goes on."""
    good = json.dumps(file_gates.LINES[0]).encode()
    (tmp_path / "metrics.jsonl").write_bytes(good + b"\n" + line + b"\n" + good + b"\n")
    assert list(read_lines(tmp_path / "metrics.jsonl")) == [file_gates.LINES[0]] * 2
    said = []
    MetricsFile(tmp_path / "metrics.jsonl", 5, Written(9, 9), said.append)
    assert said == [f"{tmp_path / 'metrics.jsonl'}, line 2 is damaged; it is left out"]


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("train-images-idx3-ubyte", bytes([0, 0, 8, 3, 128, *[0] * 3, *[0, 0, 0, 1] * 2]), "has not the 2,147,483,648"),
        (
            "arrays.npz",
            file_gates.zipped(file_gates.npy("(1000000000000,)"), file_gates.npy("(6,)")),
            "holds 1000.0 GB of pictures",
        ),
        ("arrays.npz", file_gates.zipped(file_gates.npy("(3, 4, 5)", "|O"), file_gates.npy("(3,)")), "no"),
    ],
    ids=["idx", "npz", "objects"],
)
def test_pictures_that_ask_for_memory(name, data, sentence, tmp_path):
    tracemalloc.start()
    assert sentence in outcome(lambda: file_gates.read_pictures((name, data), tmp_path))
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("words.vec", b"1 99999999999\n"),
        ("words.bin", b"0 99999999999\nthe abc"),
        ("words.bin", b"3 0\nthe \ncat \nsat \n"),
    ],
)
def test_counts_of_word_vectors(name, data, tmp_path):
    assert name in outcome(lambda: file_gates.read_vectors((name, data), tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"resample": [2]},
        {"resample": True},
        {"rescale_factor": 10**400},
        {"image_mean": [10**400] * 3},
        {"image_std": "x"},
        {"size": {"height": 10**9, "width": 1}},
        {"clusters": [[0, 0, 10**400], [1, 1, 1]]},
        {"clusters": {"a": 1}},
        {"clusters": ["123", "456"]},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_processors_of_pictures(changes, tmp_path):
    (name,) = changes
    base = file_gates.PALETTE if name == "clusters" else file_gates.PROCESSOR
    data = json.dumps(base | changes).encode()
    assert name.removeprefix("image_") in outcome(lambda: file_gates.read_processor(data, tmp_path))

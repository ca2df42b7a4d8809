"""Faulty files, flags and variables: exit code 0, or 2 with one sentence; never a traceback, a hang or much memory."""

import contextlib
import dataclasses
import io
import itertools
import json
import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz import mutations
from fuzz.file_gates import FILE_GATES, FILE_SHARES, Gate
from hf_models import MODELS, stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from train import evaluate, exit_code, export, plan, predict
from train.data import documents
from train.data.labels import Labels, label_checker
from train.data.sources import files, sources
from train.devices.cluster import find_cluster
from train.generation import options as generation
from train.lab import embed, harness
from train.lab.glue.command import GlueOptions
from train.lab.sentences.command import SentencesOptions
from train.lab.timing.options import BenchOptions
from train.runs import run_folder
from train.settings import flags, schema
from train.settings.gate import user_errors
from train.tasks import resolve
from train.tasks.choice.source import MultipleChoice
from train.tasks.span.source import Squad, questions_of
from train.tasks.table import AnyRun
from train.tasks.tag.source import TaggedWords
from train.tasks.translate.source import load_pairs
from train.text import tokenize
from train.text.tokenizer_kinds import TRAINERS
from train.training import startup

# Address space that all cases together may add, and seconds of one case.
MEMORY, SECONDS = 1_500 << 20, 20


def outcome(read: Callable[[], Any]) -> str:
    """What a command that calls `read` says: nothing, or one sentence."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = exit_code(lambda argv: read(), ())
    if not code:
        return ""
    lines = err.getvalue().splitlines()
    assert code == 2, f"exit code {code}"
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: "), lines
    assert len(lines[0]) < 8000
    return lines[0]


# Folders of Hugging Face

HF = [(name, architectures[0]) for name, (_, _, architectures) in MODELS.items()]
WORDS = [f"w{index}" for index in range(90)]


def word_tokenizer() -> Tokenizer:
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = Tokenizer(models.WordLevel({name: n for n, name in enumerate([*names, *WORDS])}, unk_token="<unk>"))
    words.add_special_tokens(names)
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    words.decoder = decoders.WordPiece()
    return words


@st.composite
def hf_folders(draw):
    """Files of a folder, one of them faulty: the model and its architecture, then bytes by name."""
    name, architecture = draw(st.sampled_from(HF))
    reference = json.loads((Path(__file__).parent.parent / "hf_reference" / f"{name}.json").read_text())
    config = reference[architecture]["config"] | {"architectures": [architecture], "id2label": {"0": "a", "1": "b"}}
    config |= {"num_labels": 2, "problem_type": "regression"} if draw(st.booleans()) else {}
    tokens = {"do_lower_case": True, "model_max_length": 512}
    changed = draw(st.sampled_from(("config", "config", "config", "tokenizer_config", "tokenizer")))
    trees = {"config": config, "tokenizer_config": tokens, "tokenizer": json.loads(word_tokenizer().to_str())}
    content = {f"{file}.json": json.dumps(tree).encode() for file, tree in trees.items()}
    return name, architecture, content | {f"{changed}.json": draw(mutations.json_files(trees[changed]))}


def read_hf(case, folder: Path):
    name, architecture, content = case
    if not (folder / name).exists():
        stored(folder / name, name, architecture)
    for file, data in content.items():
        (folder / name / file).write_bytes(data)
    opened = run_folder.open_folder(folder / name)
    assert opened.values["out"]
    for member in ("processor", "config", "facts"):
        getattr(opened, member)
    assert opened.task
    startup.check_memory(opened.config, set(opened.values))
    json.dumps(opened.hf_fields())


# Run folders

DATA = {"source": "builtin", "hash": "0", "classes": ["a", "b"], "train_tokens": 10, "eval_tokens": 10}


def run_json() -> dict[str, Any]:
    run = AnyRun(preset="bert-tiny", model=dataclasses.replace(AnyRun().model, layers=3, prefix=()))
    sections = json.loads(json.dumps(run_folder.describe(run, {"data": DATA})))
    sections.pop("checksums", None)  # else they alone would refuse what is changed
    return sections


def read_run(data: bytes, folder: Path):
    (folder / "run.json").write_bytes(data)
    (folder / "tokenizer.json").write_text(word_tokenizer().to_str())
    opened = run_folder.RunFolder(folder)
    for member in ("values", "config", "facts", "task", "processor"):
        getattr(opened, member)
    startup.check_memory(opened.config, set(opened.values))
    resolve.resolve(["--resume", f"--out={folder}"], run_folder.resumed_values, run_folder.run_values)
    resolve.resolve([f"--init={folder}", "--task=classify"], run_folder.resumed_values, run_folder.run_values)


# Rows

TABLE = "text\tlabel\tlangue\n" + "".join(f"a cat {n}\t{n % 2}\tun chat {n}\n" for n in range(30))
CONLL = "-DOCSTART- O\n\n" + "".join(f"Ada{n} B-PER\nwrote O\n\n" for n in range(30))
OBJECTS = "".join(
    json.dumps({"text": f"a cat {n}", "langue": "un chat", "label": n % 2, "tokens": ["a", "b"], "tags": ["O", "B-X"]})
    + "\n"
    for n in range(20)
)
QUESTIONS = "".join(
    json.dumps({"id": n, "question": "who?", "context": f"Ada {n}", "answers": {"text": ["Ada"], "answer_start": [0]}})
    + "\n"
    for n in range(20)
)
CHOICES = "".join(
    json.dumps({"context": f"a {n}", "question": "b?", "choices": ["c", "d"], "label": n % 2}) + "\n" for n in range(20)
)
PARAGRAPHS = [{"context": context, "qas": [json.loads(QUESTIONS.split("\n")[0])]} for context in ("Ada", "Ada and")]
CONTENTS = {
    "a.txt": (TABLE * 3).encode(),
    "a.tsv": TABLE.encode(),
    "a.csv": TABLE.replace("\t", ",").encode(),
    "a.conll": CONLL.encode(),
    "a.jsonl": OBJECTS.encode(),
    "questions.jsonl": QUESTIONS.encode(),
    "choices.jsonl": CHOICES.encode(),
    "a.json": json.dumps({"data": [{"title": "t", "paragraphs": PARAGRAPHS}]}).encode(),
}


def classify(kind: str, label: str) -> Callable[[schema.Data], Any]:
    def read(data: schema.Data):
        data = dataclasses.replace(data, label=label)
        columns = files.Columns.of(data, True, label_checker(kind, label.split(",")))
        train, valid = sources.load(data, columns, list)
        labels = Labels.of(kind, train, columns.labels)
        return labels.encode(train, columns.labels), labels.encode(valid, columns.labels)

    return read


READERS: dict[str, Callable[[schema.Data], Any]] = {
    "lm": documents.load,
    "single": classify("single", "label"),
    "multi": classify("multi", "label"),
    "columns": classify("multi", "label,langue"),
    "regression": classify("regression", "label"),
    "translate": lambda data: load_pairs(
        dataclasses.replace(data, field="text,langue"), TASKS["translate"].options(), list
    ),
    "tag": lambda data: sources.load(data, TaggedWords("tokens", "tags"), list),
    "span": lambda data: questions_of(sources.load(data, Squad(), list)[0], data.source, repair=True),
    "choice": lambda data: sources.load(data, MultipleChoice.of(data), list),
}
TASKS = resolve.TASKS


@st.composite
def rows(draw):
    name = draw(st.sampled_from(sorted(CONTENTS)))
    data = CONTENTS[name]
    if name.endswith("jsonl") and draw(st.booleans()):
        lines = data.splitlines()
        index = draw(st.integers(0, len(lines) - 1))
        lines[index] = draw(mutations.json_files(json.loads(lines[index])))
        data = b"\n".join(lines)
    elif name.endswith("json") and draw(st.booleans()):
        data = draw(mutations.json_files(json.loads(data)))
    else:
        data = draw(mutations.damaged(data))
    if draw(st.integers(0, 9)) == 0:
        name, data = f"{name}.gz", draw(mutations.packed(data))
    options = draw(
        st.sampled_from(({}, {}, {"header": False}, {"split": "line"}, {"folds": 3}, {"field": "text,nothing"}))
    )
    return name, data, draw(st.sampled_from(sorted(READERS))), options


def read_rows(case, folder: Path):
    name, data, reader, options = case
    (folder / name).write_bytes(data)
    READERS[reader](schema.Data(source=str(folder / name), **options))


# Flags and variables

OPTIONS = {
    "generate": generation.GenerateOptions,
    "plan": plan.PlanOptions,
    "bench": BenchOptions,
    "glue": GlueOptions,
    "harness": harness.HarnessOptions,
    "embed": embed.EmbedOptions,
    "sentences": SentencesOptions,
    "train.predict": predict.PredictOptions,
    evaluate.__name__: evaluate.EvaluateOptions,
    export.__name__: export.ExportOptions,
}
RUN_FLAGS = {flag.name.replace("_", "-") for flag in flags.flags_of(AnyRun())}
RUN_FLAGS |= {
    f"{slot}.{name}" for slot in ("task", "model.mixer", "model.position", "tune") for name in ("name", "rank")
}
RUN_FLAGS |= {"data", "eval-data", "model.period", "model.prefix", "model.period.0.mixer", "model.position.base"}


def own_flags(name: str):
    names = {field.name.replace("_", "-") for field in dataclasses.fields(OPTIONS[name])}
    return mutations.flags(names).map(lambda argv: (name, ["--run=r", "--prompt=p", "--to=o", *argv]))


FLAGS = mutations.flags(RUN_FLAGS).map(lambda argv: ("main", argv))
FLAGS |= st.tuples(st.sampled_from(sorted(TASKS)), mutations.flags(RUN_FLAGS)).map(
    lambda case: ("main", [f"--task={case[0]}", *case[1]])
)
FLAGS |= st.sampled_from(sorted(OPTIONS)).flatmap(own_flags)


def read_flags(case, folder: Path):
    command, argv = case
    if command != "main":
        flags.build(OPTIONS[command], flags.parse(argv))
        return
    run, explicit = resolve.resolve(argv, run_folder.resumed_values, run_folder.run_values)
    startup.check_memory(run, explicit)
    resolve.fill_from_data(run, explicit, {"vocab": 300, "classes": 3}, "cpu")


NUMBERS = st.sampled_from(
    ("abc", "1.5", "-1", "", " ", "99999999999999999999", "2", "0", "\uff11", "\udcff")
) | st.text(max_size=5)
VARIABLES = st.dictionaries(
    st.sampled_from(
        "JAX_NUM_PROCESSES JAX_PROCESS_ID JAX_COORDINATOR_ADDRESS SLURM_STEP_NUM_TASKS SLURM_PROCID "
        "SLURM_STEP_NODELIST SLURM_STEP_TASKS_PER_NODE OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK "
        "MASTER_ADDR MASTER_PORT WORLD_SIZE RANK".split()
    ),
    NUMBERS,
)


def read_variables(environ, folder: Path):
    find_cluster(schema.Distributed(), environ)


# Tokenizers


def tokenizer_files() -> dict[str, bytes]:
    texts = [line.replace("\t", " ") for line in TABLE.splitlines()]
    names = [names[0] for names in tokenize.ROLES.values()]
    options = {kind: schema.Tokenizer(kind, vocab=300) for kind in TRAINERS if kind != "unigram"}
    trained = {kind: TRAINERS[kind](options[kind], names, texts).to_str().encode() for kind in options}
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("\u2581", -1.5), ("cat", -2.0)], 0)).to_str()
    bpe = json.loads(trained["bpe"])["model"]
    merges = "\n".join(" ".join(pair) for pair in bpe["merges"])
    return {f"{kind}.json": data for kind, data in trained.items()} | {
        "unigram.json": unigram.encode(),
        "vocab.txt": "\n".join([*names, "a", "##b", "cat"]).encode(),
        "encoder.json": json.dumps(bpe["vocab"]).encode(),
        "vocab.bpe": f"#version: 0.2\n{merges}\n".encode(),
    }


TOKENIZERS = tokenizer_files()


@st.composite
def tokenizers(draw):
    name = draw(st.sampled_from(sorted(TOKENIZERS)))
    data = TOKENIZERS[name]
    tree = name.endswith(".json") and draw(st.booleans())
    return name, draw(mutations.json_files(json.loads(data)) if tree else mutations.damaged(data))


def read_tokenizer(case, folder: Path):
    name, data = case
    for file in ("encoder.json", "vocab.bpe"):
        (folder / file).write_bytes(TOKENIZERS[file])
    (folder / name).write_bytes(data)
    tokenizer = tokenize._with_roles(tokenize.read(folder / name), str(folder / name))
    tokenize.special_tokens(tokenizer)


# Adapters

ADAPTER = {
    "peft_type": "LORA",
    "task_type": "SEQ_CLS",
    "r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.1,
    "bias": "none",
    "target_modules": ["query"],
    "rank_pattern": {},
    "alpha_pattern": {},
    "use_rslora": False,
}


def read_adapter(data: bytes, folder: Path):
    import numpy as np

    from tfm.hf import adapter, tensors

    (folder / adapter.CONFIG).write_bytes(data)
    array = np.zeros((4, 24), np.float32)
    if not (folder / adapter.TENSORS).exists():
        tensors.write(folder / adapter.TENSORS, [("x.lora_A.weight", array.dtype, array.shape, array.copy)])
    with user_errors("--adapter"):
        assert adapter.read_adapter(folder).options["rank"] >= 1


GATES = {
    "hf": Gate(hf_folders(), read_hf),
    "run": Gate(mutations.json_files(run_json()), read_run),
    "rows": Gate(rows(), read_rows),
    "flags": Gate(FLAGS, read_flags),
    "variables": Gate(VARIABLES, read_variables),
    "tokenizer": Gate(tokenizers(), read_tokenizer),
    "adapter": Gate(mutations.json_files(ADAPTER), read_adapter),
    **FILE_GATES,
}

# How many thousands of cases a gate gets in the slow tier.
SHARES = {
    "hf": 2.7,
    "run": 1.5,
    "rows": 2.5,
    "flags": 1.8,
    "variables": 0.3,
    "tokenizer": 1,
    "adapter": 0.2,
    **FILE_SHARES,
}


@pytest.fixture
def limits():
    """Bounds of memory and time for what a test adds."""

    def stop(*_):
        raise TimeoutError(f"a case takes more than {SECONDS} s")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    handler = signal.signal(signal.SIGALRM, stop)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, handler)
    resource.setrlimit(resource.RLIMIT_AS, before)


def fuzz(gate: Gate, folder: Path, examples: int):
    """Tries so many inputs, always the same ones."""
    numbers = itertools.count()

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(gate.inputs)
    def check(case):
        place = folder if gate.read is read_hf else folder / str(next(numbers))
        place.mkdir(exist_ok=True)
        signal.alarm(SECONDS)
        outcome(lambda: gate.read(case, place))
        signal.alarm(0)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", GATES)
def test_fifteen_thousand_faults(name, tmp_path, limits):
    fuzz(GATES[name], tmp_path, round(1000 * SHARES[name]))


def test_the_bounds_hold(limits):
    assert threading.current_thread() is threading.main_thread()
    with pytest.raises(MemoryError):
        bytes(2 * MEMORY)

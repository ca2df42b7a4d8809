"""A language model in lm-evaluation-harness: every number against a loop over the tokens of one text at a time."""

import contextlib
import functools
import json
import math
import os
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from small import FLAGS, call, write_text

import tfm
from train import UserError, evaluate, harness
from train.main import main
from train.runs import run_folder
from train.runs.run_folder import open_folder
from train.settings import schema
from train.tasks.lm.options import Lm
from train.tasks.mlm.options import Mlm

ROW = 32
STEPS = ("--steps=60", "--eval.every=60", "--checkpoint.every=60", "--log.every=60")

# Questions with three answers; one context ends in a space, one is longer than a row.
DOCS = [
    {"question": "the cat sat", "answers": [" on", " ran over", " and then it was"], "gold": 1},
    {"question": "a red bird ", "answers": ["flew", "was blue.", "sat"], "gold": 0},
    {"question": "it was " * 30 + "the", "answers": [" dog", " old", " new house"], "gold": 2},
    {"question": "then", "answers": ["\nquickly", ".", " slowly under the tree"], "gold": 1},
]

TASKS = {
    "choice": """output_type: multiple_choice
doc_to_text: question
doc_to_choice: answers
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}]""",
    "cloze": """output_type: loglikelihood
doc_to_text: question
doc_to_target: "{{answers[0]}}"
target_delimiter: ""
metric_list: [{metric: perplexity}, {metric: acc}]""",
    "text": """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}{{answers[2]}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]""",
    "write": """output_type: generate_until
doc_to_text: question
doc_to_target: "{{greedy}}"
generation_kwargs: {until: ["e"], max_gen_toks: 9}
metric_list: [{metric: exact_match}]""",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run on documents (bpe), one on windows (characters), both of rows of 32, and the tasks."""
    os.environ |= {
        "HF_HOME": os.path.join(os.environ["TFM_CACHE"], "hf"),
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    pytest.importorskip("lm_eval")
    folder = tmp_path_factory.mktemp("home")
    with contextlib.chdir(folder):
        write_text(Path("text.txt"))
        for run, flags in {
            "bpe": ("--data.split=line", "--model.length=48"),
            "char": ("--preset=gpt-char", "--model.length=32", "--tokenizer.vocab=300"),
        }.items():
            code, _, err = call(main, *FLAGS, "--task=lm", f"--out={run}", "--optim.rate=1e-2", *STEPS, *flags)
            assert code == 0, err
        Path("tasks").mkdir()
        docs = [doc | {"greedy": greedy("char", doc["question"], 9, ["e"])} for doc in DOCS]
        write_task("docs", docs, TASKS)
    return folder


def write_task(data, docs, tasks):
    """Tasks as lm-evaluation-harness reads them, on rows of a .jsonl."""
    path = Path(f"{data}.jsonl").absolute()
    path.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    for name, text in tasks.items():
        head = (
            f"task: my_{name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {path}}}}}\ntest_split: test\n"
        )
        Path(f"tasks/{name}.yaml").write_text(head + text + "\n")


# The same, slowly


@functools.cache
def load(run):
    folder = open_folder(run)
    return folder, folder.load()


apply = jax.jit(tfm.causal_lm, static_argnums=1)


def logits_of(run, tokens):
    """float64 [T,V]: logits of what follows each token of a text."""
    folder, params = load(run)
    return np.asarray(apply(params, folder.config.model, np.array([tokens], np.int32)), np.float64)[0]


def judged(run, tokens, count):
    """Log-probability of the last `count` tokens, in windows of a row, and whether all are the most probable."""
    total = 0.0
    greedy = True
    end = len(tokens) - count
    while end < len(tokens):
        first = end
        end = min(end + ROW, len(tokens))
        begin = max(0, end - ROW - 1)
        logits = logits_of(run, tokens[begin : end - 1])
        for place in range(first, end):
            row = logits[place - begin - 1]
            total += row[tokens[place]] - row.max() - math.log(np.exp(row - row.max()).sum())
            greedy = greedy and int(row.argmax()) == tokens[place]
    return total, greedy


def encode(run, text):
    return load(run)[0].processor.encode(text, add_special_tokens=False).ids


def mark(run):
    return load(run)[0].processor.token_to_id("[SEP]")


def beginning(run, context):
    return [mark(run)] if run == "bpe" or not context else []


def answer(run, context, continuation):
    """What `loglikelihood` should say."""
    kept = context.rstrip()
    tokens = encode(run, context + continuation)
    return judged(run, beginning(run, kept) + tokens, len(tokens) - len(encode(run, kept)))


def greedy(run, prompt, count, until):
    """What `generate_until` should say: the most probable token, again and again."""
    tokens = [*beginning(run, prompt), *encode(run, prompt)][-(ROW - count) :]
    added = []
    while len(added) < count and added[-1:] != [mark(run)]:
        text = [*tokens, *added]
        added.append(int(logits_of(run, text + [0] * (ROW - len(text)))[len(text) - 1].argmax()))
    text = load(run)[0].processor.decode(added)
    return text[: min([text.index(stop) for stop in until if stop in text], default=len(text))]


# What is asked


def asked(run, kind, arguments, batch=8):
    """What the adapter says to requests."""
    from lm_eval.api.instance import Instance

    from train.lab.lm_eval import HarnessModel

    requests = [Instance(request_type=kind, doc={}, arguments=request, idx=0) for request in arguments]
    return getattr(HarnessModel(open_folder(run), batch), kind)(requests)


PAIRS = [
    *((doc["question"], choice) for doc in DOCS for choice in doc["answers"]),
    ("", "the cat"),
    ("", "a"),
    (" \n", "dog"),
    ("it", " was the cat and the dog" * 6),
    ("", "then the bird flew over the house." * 4),
    ("é the", " ü"),
]


@pytest.mark.parametrize(("run", "batch"), [("bpe", 8), ("char", 3)])
def test_likelihood_of_continuations(in_home, run, batch):
    scores = asked(run, "loglikelihood", PAIRS, batch)
    for pair, (logprob, is_greedy) in zip(PAIRS, scores, strict=True):
        total, most_probable = answer(run, *pair)
        assert logprob == pytest.approx(total, abs=1e-3), pair
        assert is_greedy is most_probable, pair


def test_what_is_written_greedily_is_greedy(in_home):
    written = greedy("char", "the cat", 12, [])
    assert len(written) == 12
    scores = asked(
        "char", "loglikelihood", [("the cat", written), ("the cat", written[:-1] + "Z"), ("the cat", "Z" + written[1:])]
    )
    assert [is_greedy for _, is_greedy in scores] == [True, False, False]


@pytest.mark.parametrize("run", ["bpe", "char"])
def test_likelihood_of_whole_texts(in_home, run):
    texts = ["the cat", "", "a red bird flew. " * 20, "it", "old " * ROW, "é"]
    logprobs = asked(run, "loglikelihood_rolling", [(text,) for text in texts])
    for text, logprob in zip(texts, logprobs, strict=True):
        tokens = encode(run, text)
        assert logprob == pytest.approx(judged(run, [mark(run), *tokens], len(tokens))[0], abs=1e-3)


def test_likelihood_of_whole_texts_is_that_of_evaluate(in_home):
    """Documents that fill rows to the last place, whose end alone is judged by evaluate and not here."""
    text = "a red bird flew over the old house and it was new. " * 20
    ends = [end for end in range(len(text)) if len(encode("bpe", text[:end])) in (ROW, 2 * ROW)]
    texts = ["the cat sat.", "then quickly", text[: ends[0]], text[: ends[-1]]]
    assert [len(encode("bpe", text)) // ROW for text in texts] == [0, 0, 1, 2]
    Path("texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    code, out, err = call(evaluate.main, "--run=bpe", "--data=texts.jsonl")
    assert code == 0, err
    figures = json.loads(out)
    total = sum(asked("bpe", "loglikelihood_rolling", [(text,) for text in texts]))
    for text in texts:
        tokens = [mark("bpe"), *encode("bpe", text), mark("bpe")]
        total += judged("bpe", tokens[(len(tokens) - 2) // ROW * ROW :], 1)[0]
    assert -total / figures["n"] == pytest.approx(figures["loss"], rel=1e-5)


OPTIONS = [
    {"until": ["e"], "max_gen_toks": 9},
    {"until": " ", "max_gen_toks": 12, "do_sample": False, "temperature": 0.7},
    {"until": None, "max_new_tokens": 5, "temperature": 0.0},
    {"until": [" th", "zz", ""], "max_gen_toks": 16, "do_sample": True, "temperature": 1e-4, "num_beams": 1},
]


@pytest.mark.parametrize("run", ["bpe", "char"])
def test_writing(in_home, run, capsys):
    prompts = [*(doc["question"] for doc in DOCS), ""]
    requests = [(prompt, options) for prompt in prompts for options in OPTIONS]
    completions = asked(run, "generate_until", requests, batch=2)
    for (prompt, options), text in zip(requests, completions, strict=True):
        until = [options["until"]] if isinstance(options["until"], str) else options["until"] or []
        count = options.get("max_gen_toks") or options["max_new_tokens"]
        assert text == greedy(run, prompt, count, [stop for stop in until if stop]), (prompt, options)
    assert "a task's options without effect here: num_beams" in capsys.readouterr().err


def test_drawn_writing(in_home):
    options = {"until": [], "max_gen_toks": 20, "do_sample": True, "temperature": 1.5}
    texts = asked("char", "generate_until", [("the cat", options)] * 4)
    assert len(set(texts)) == 4, "repeats differ"
    assert texts == asked("char", "generate_until", [("the cat", options)] * 4), "the command does not"
    assert asked("char", "generate_until", [("the cat", options | {"top_k": 1})]) == [greedy("char", "the cat", 20, [])]
    assert asked("char", "generate_until", [("the cat", options | {"top_k": 0})]) == texts[:1], "0: all tokens"
    (long,) = asked("char", "generate_until", [("the cat " * 9, options | {"max_gen_toks": 70})])
    assert len(long) == 70, "more than there are positions for"


def test_filters_of_draws(in_home):
    """Those that leave one token write greedily, and those that leave all draw alike."""
    options = {"until": [], "max_gen_toks": 20, "do_sample": True, "temperature": 1.5}

    def written(**filters):
        return asked("char", "generate_until", [("the cat", options | filters)])

    for filters in ({"top_p": 1e-6}, {"min_p": 1.0}, {"epsilon_cutoff": 1.0}):
        assert written(**filters) == [greedy("char", "the cat", 20, [])], filters
    assert written(typical_p=1.0) == written(top_p=1.0) != [greedy("char", "the cat", 20, [])]


def test_what_cannot_be_answered(in_home):
    with pytest.raises(UserError, match="a task asks for '' after 'the cat', which adds no token"):
        asked("bpe", "loglikelihood", [("the cat", "")])
    with pytest.raises(UserError, match="top-p=2.0 must be above 0"):
        asked("bpe", "generate_until", [("the cat", {"do_sample": True, "top_p": 2.0})])


# The command


def measured(*flags, run="char"):
    code, out, err = call(harness.main, f"--run={run}", "--include=tasks", *flags)
    assert code == 0, err
    (line,) = out.splitlines()
    return json.loads(line)


def test_command(in_home):
    metrics = measured("--tasks=my_choice,my_cloze,my_text,my_write")
    assert all(task["sample_len"] == len(DOCS) for task in metrics.values())
    # lm-evaluation-harness puts a space before each choice.
    chosen = [[answer("char", doc["question"], f" {choice}")[0] for choice in doc["answers"]] for doc in DOCS]
    scaled = [np.array(row) / [len(choice) for choice in doc["answers"]] for doc, row in zip(DOCS, chosen, strict=True)]
    assert metrics["my_choice"]["acc,none"] == np.mean(
        [np.argmax(row) == doc["gold"] for doc, row in zip(DOCS, chosen, strict=True)]
    )
    assert metrics["my_choice"]["acc_norm,none"] == np.mean(
        [np.argmax(row) == doc["gold"] for doc, row in zip(DOCS, scaled, strict=True)]
    )
    cloze = [answer("char", doc["question"], doc["answers"][0]) for doc in DOCS]
    assert metrics["my_cloze"]["perplexity,none"] == pytest.approx(
        np.exp(-np.mean([logprob for logprob, _ in cloze])), rel=1e-5
    )
    assert metrics["my_cloze"]["acc,none"] == np.mean([is_greedy for _, is_greedy in cloze])
    texts = [doc["question"] + doc["answers"][2] for doc in DOCS]
    total = sum(judged("char", [mark("char"), *encode("char", text)], len(encode("char", text)))[0] for text in texts)
    assert metrics["my_text"]["bits_per_byte,none"] == pytest.approx(
        -total / math.log(2) / sum(map(len, texts)), rel=1e-5
    )
    assert metrics["my_write"]["exact_match,none"] == 1


def test_limit_and_shots(in_home):
    metrics = measured("--tasks=my_choice", "--limit=2", "--batch=1", run="bpe")
    assert metrics["my_choice"]["sample_len"] == 2
    few = measured("--tasks=my_cloze", "--shots=2")
    assert few["my_cloze"]["perplexity,none"] != measured("--tasks=my_cloze")["my_cloze"]["perplexity,none"]


def test_our_own_bugs_keep_their_traceback(in_home, monkeypatch):
    def put(*args):
        raise ValueError("a bug")

    monkeypatch.setattr("train.data.feed.to_devices", put)
    with pytest.raises(ValueError, match="a bug"):
        call(harness.main, "--run=char", "--include=tasks", "--tasks=my_cloze")


def test_tasks_that_cannot_be_asked(in_home, monkeypatch):
    import lm_eval.tasks

    own = lm_eval.tasks.TaskManager
    monkeypatch.setattr(
        lm_eval.tasks,
        "TaskManager",
        lambda include_path, **kwargs: own(include_path=include_path, include_defaults=False),
    )
    write_task("gone", [], {"gone": TASKS["cloze"]})
    Path("gone.jsonl").unlink()
    for flags, sentence in {
        "--tasks=my_choose": "--tasks=my_choose is unknown; did you mean my_choice?",
        "--tasks=my_text,xq": "--tasks=xq is unknown; lm-eval ls tasks lists them",
        "--tasks=my_gone": f"--tasks=my_gone cannot be asked: Unable to find '{Path('gone.jsonl').absolute()}'",
        "--tasks=my_cloze --shots=9": "--tasks=my_cloze cannot be asked: Sample larger than population or is negative",
    }.items():
        code, out, err = call(harness.main, "--run=char", "--include=tasks", *flags.split())
        assert (code, out, err.splitlines()[-1]) == (2, "", f"error: {sentence}")
    assert set(measured("--tasks=my_c*", "--limit=1")) == {"my_choice", "my_cloze"}


BAD = {
    "": "--run=DIR must name the run folder of a language model",
    "--run=lm": "--tasks=NAME must name a task, such as lambada_openai",
    "--run=lm --tasks=,": "--tasks=NAME must name a task, such as lambada_openai",
    "--run=gone --tasks=a": (
        "gone is not a run folder: it has no run.json (nor config.json, as models of transformers have)"
    ),
    "--run=mlm --tasks=a": "--run=mlm was trained for --task=mlm, which is no language model; train one with --task=lm",
    "--run=lm --tasks=a --include=gone": "--include=gone is not a folder; name one that holds .yaml files",
    "--run=lm --tasks=a --shots=-2": "--shots=-2 must be at least 0, or none",
    "--run=lm --tasks=a --limit=-1": "--limit=-1 must be at least 1, or none",
    "--run=lm --tasks=a --batch=0": "--batch=0 must be at least 1",
    "--run=lm --task=a": "unknown flag --task; did you mean tasks?",
    "--run=lm --tasks=a": 'lm-evaluation-harness is not installed; pip install -e ".[lm-eval]"',
}


@pytest.mark.parametrize("flags", BAD)
def test_bad_input_is_one_sentence(flags, tmp_path, monkeypatch):
    """Without lm-evaluation-harness, which is not even looked for until the rest is right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    for name, task in {"lm": Lm(), "mlm": Mlm()}.items():
        Path(name).mkdir()
        run_folder.write_json(Path(name) / "run.json", run_folder.describe(schema.Run(task=task), {}))
    assert call(harness.main, *flags.split()) == (2, "", f"error: {BAD[flags]}\n")


def test_help_needs_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    code, out, _ = call(harness.main, "--help")
    assert code == 0
    assert "--shots=none" in out

"""Text from a trained language model, as a user asks for it."""

import contextlib
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import FLAGS, call, write_text

import tfm
from train import evaluate, predict
from train.generate import main as generate
from train.main import main
from train.runs.run_folder import open_folder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]
SHORT = ("--max-new-tokens=12",)


def trained(folder, *flags):
    code, out, err = call(main, *FLAGS, f"--out={folder}", *flags)
    assert (code, out) == (0, ""), err
    return err


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run on documents (bpe), one on windows (characters) and one of another task."""
    folder = tmp_path_factory.mktemp("home")
    with contextlib.chdir(folder):
        write_text(Path("text.txt"))
        said = trained("bpe", "--task=lm", "--data.split=line", "--model.length=48")
        trained("char", "--task=lm", "--preset=gpt-char", "--model.length=32", "--tokenizer.vocab=300")
        trained("mlm", "--task=mlm", "--steps=2")
        Path("said.txt").write_text(said)
    return folder


def written(*flags, run="bpe"):
    code, out, _ = call(generate, f"--run={run}", *flags)
    assert code == 0
    return out


def objects(*flags, run="bpe"):
    Path("out.jsonl").unlink(missing_ok=True)
    assert written(*flags, "--to=out.jsonl", run=run) == ""
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


def test_a_run_ends_with_a_sample_and_its_figures():
    assert "a sample; what it is given ends at the bar:\n" in Path("said.txt").read_text()
    result = json.loads(Path("bpe/result.json").read_text())
    assert {"eval_loss", "eval_perplexity", "eval_bits_per_byte", "eval_accuracy", "eval_n"} <= set(result)
    assert result["task"] == "lm"


def test_prompt_and_completion_come_out():
    out = written("--prompt=the cat", *SHORT)
    assert out.startswith("the cat")
    assert out == written("--prompt=the cat", *SHORT)
    assert out != written("--prompt=the cat", "--seed=1", *SHORT)
    assert out == "the cat" + objects("--prompt=the cat", *SHORT)[0]["completion"] + "\n"


@pytest.mark.parametrize("flags", [(), ("--strategy=greedy",), ("--beams=3",)])
def test_a_file_of_prompts_is_as_single_prompts(flags):
    prompts = ["the cat", "a quickly old bird sat and", "it"]
    Path("prompts.txt").write_text("\n".join(prompts) + "\n")
    rows = objects("--file=prompts.txt", "--batch=2", *flags, *SHORT)
    assert [row["prompt"] for row in rows] == prompts
    for line, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        seed = () if flags else (f"--seed={line}",)
        assert objects(f"--prompt={prompt}", *flags, *seed, *SHORT)[0]["completion"] == row["completion"]
    texts = written("--file=prompts.txt", *flags, *SHORT)
    assert all(row["prompt"] + row["completion"] in texts for row in rows)


@pytest.mark.parametrize("flags", [("--strategy=greedy",), ("--beams=2",)])
def test_a_neighbour_takes_no_positions_of_a_text(flags):
    """Where positions end, a short prompt gets all that are left to it, beside a long one."""
    Path("two.txt").write_text("it\nthe cat sat and a bird\n")
    flags = ("--file=two.txt", "--sliding-context=false", *flags)
    together = objects(*flags, "--batch=2", run="char")
    assert together == objects(*flags, "--batch=1", run="char")
    short, long = (len(row["completion"]) for row in together)
    assert short > long + 10


def test_greedy_is_what_the_library_generates():
    folder = open_folder("bpe")
    tokenizer = folder.processor
    prompt = [tokenizer.token_to_id("[SEP]"), *tokenizer.encode("the dog", add_special_tokens=False).ids]
    tokens = tfm.generate(folder.load(), folder.config.model, [prompt], 12, stop=prompt[:1]).tokens[0]
    assert objects("--prompt=the dog", "--strategy=greedy", *SHORT)[0]["completion"] == tokenizer.decode(tokens)


def test_a_draft_changes_no_greedy_text():
    """Of an n-gram and of the run itself, whose proposals are all right."""
    plain = objects("--prompt=the dog", "--strategy=greedy", "--max-new-tokens=20")
    for draft in ("ngram", "bpe"):
        assert objects("--prompt=the dog", "--strategy=greedy", "--max-new-tokens=20", f"--draft={draft}") == plain
    code, _, err = call(generate, "--run=bpe", "--prompt=the dog", "--strategy=greedy", "--draft=bpe", *SHORT)
    assert code == 0
    assert "tokens a pass of the model, one text at a time" in err
    assert written("--prompt=the dog", "--draft=ngram", *SHORT) == written("--prompt=the dog", "--draft=ngram", *SHORT)
    for words, message in (
        (("--draft=char",), "--draft=char has another tokenizer than --run=bpe"),
        (("--draft=mlm",), "--draft=mlm was trained for --task=mlm, which continues no text"),
        (("--draft=ngram", "--sliding-context=true"), "--sliding-context=true reads texts again"),
        (("--draft=ngram", "--beams=2"), "--draft belongs to --strategy=greedy or sample"),
    ):
        code, out, err = call(generate, "--run=bpe", "--prompt=the dog", *words)
        assert (code, out) == (2, "")
        assert message in err


def test_weights_in_eight_bits_and_what_they_cost():
    exact, small = (json.loads(call(evaluate.main, "--run=bpe", *flags)[1]) for flags in ((), ("--weights=int8",)))
    assert small["perplexity"] - exact["perplexity"] == pytest.approx(small["perplexity_change"], rel=1e-3, abs=1e-6)
    assert 0 < abs(small["loss_change"]) < 0.02
    code, out, err = call(generate, "--run=bpe", "--prompt=the dog", "--weights=int8", *SHORT)
    assert code == 0
    assert out.startswith("the dog")
    assert "weights in eight bits: " in err
    assert call(generate, "--run=bpe", "--prompt=a", "--weights=int4")[0] == 2


def test_predict_says_the_perplexity_of_each_line():
    """As a loop over the tokens of each line says it; an empty line has none."""
    folder, texts = open_folder("bpe"), ["the cat sat on the mat", "", "it was new"]
    Path("lines.txt").write_text("\n".join(texts) + "\n")
    code, out, err = call(predict.main, "--run=bpe", "--file=lines.txt")
    assert code == 0, err
    params, model = folder.load(), folder.config.model
    for text, line in zip(texts, out.removesuffix("\n").split("\n"), strict=True):
        if not text:
            assert line == ""
            continue
        tokens = [*folder.text_prefix, *folder.processor.encode(text, add_special_tokens=False).ids]
        logprobs = jax.nn.log_softmax(tfm.causal_lm(params, model, jnp.array([tokens]))[0, :, : model.vocab])
        losses = [-float(logprobs[place - 1, tokens[place]]) for place in range(1, len(tokens))]
        perplexity, bits = map(float, line.split("\t"))
        assert perplexity == pytest.approx(math.exp(np.mean(losses)), rel=1e-3)
        assert bits == pytest.approx(sum(losses) / math.log(2) / len(text.encode()), rel=1e-3)


def test_best_beams_come_first():
    rows = objects("--prompt=the cat", "--beams=4", "--n=3", *SHORT)
    assert len(rows) == 3
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert len({row["completion"] for row in rows}) == 3


@pytest.mark.parametrize("stop", ["e", " th", "zzz| th", "\\n|t"])
def test_a_completion_ends_before_its_stop(stop):
    free = objects("--prompt=the cat", "--max-new-tokens=25", run="char")[0]["completion"]
    ends = [free.index(text) for text in stop.replace("\\n", "\n").split("|") if text in free]
    expected = free[: min(ends, default=len(free))]
    assert objects("--prompt=the cat", "--max-new-tokens=25", f"--stop={stop}", run="char")[0]["completion"] == expected
    assert written("--prompt=the cat", "--max-new-tokens=25", f"--stop={stop}", run="char") == f"the cat{expected}\n"


def test_logprobs_are_those_of_the_tokens():
    (row,) = objects("--prompt=the cat", "--logprobs=true", *SHORT, run="char")
    pieces, logprobs = zip(*row["logprobs"], strict=True)
    assert "".join(pieces) == row["completion"]
    assert all(logprob <= 0 for logprob in logprobs)
    lines = written("--prompt=the cat", "--logprobs=true", *SHORT, run="char").splitlines()
    assert lines[-1] == f"{logprobs[-1]:8.3f}  {pieces[-1]!r}"


def test_several_samples_of_a_prompt():
    rows = objects("--prompt=the cat", "--n=3", "--temperature=1.5", *SHORT)
    assert len({row["completion"] for row in rows}) == 3


def test_text_goes_on_where_it_slides():
    """Windows slide unless told not to, and documents do when told."""

    def count(*flags):
        return len(objects("--prompt=the cat", "--logprobs=true", *flags, run="char")[0]["logprobs"])

    assert count("--max-new-tokens=70") == 70
    assert count("--sliding-context=false") == 32 - len("the cat")
    code, out, err = call(generate, "--run=bpe", "--prompt=the cat", "--max-new-tokens=70")
    assert (code, out) == (2, "")
    assert "exceeds the 48 positions of the model; ask for at most" in err
    assert written("--prompt=the cat", "--max-new-tokens=70", "--sliding-context=true").startswith("the cat")


def test_examples_in_a_prompt_file():
    Path("shots.txt").write_text("red: bird\nblue: dog\nold:")
    assert written("--prompt-file=shots.txt", "--strategy=greedy", "--stop=\\n", *SHORT).startswith(
        "red: bird\nblue: dog\nold:"
    )


def test_strided_evaluation_judges_the_same_text_with_more_context():
    code, out, _ = call(evaluate.main, "--run=char", "--stride=8")
    strided = json.loads(out)
    plain = json.loads(Path("char/result.json").read_text())
    assert code == 0
    assert strided["n"] == plain["eval_n"]
    assert strided["loss"] != plain["eval_loss"]
    assert strided["bits_per_byte"] / strided["loss"] == pytest.approx(plain["eval_bits_per_byte"] / plain["eval_loss"])


def test_what_the_tokenizer_does_not_know_is_read_as_unknown_and_said():
    code, out, err = call(generate, "--run=char", "--prompt=é the", "--strategy=greedy", *SHORT)
    assert (code, out[:5]) == (0, "é the")
    assert "'é the' has 'é', which this model reads as [UNK]" in err


BAD = {
    "--prompt=": "--prompt is empty; give a text to go on from",
    "--prompt=a --temperature=-1": (
        "--temperature=-1.0 must be above 0; use --strategy=greedy for the most probable token"
    ),
    "--prompt=a --top-p=0": "--top-p=0.0 must be above 0 and at most 1; --top-p=1 turns it off",
    "--prompt=a --top-p=1.1": "--top-p=1.1 must be above 0 and at most 1; --top-p=1 turns it off",
    "--prompt=a --min-p=2": "--min-p=2.0 must be above 0 and at most 1; --min-p=0 turns it off",
    "--prompt=a --beams=2 --top-k=5": "--top-k belongs to --strategy=sample, not to beam; leave it out",
    "--prompt=a --strategy=beam --temperature=2": (
        "--temperature belongs to --strategy=sample, not to beam; leave it out"
    ),
    "--prompt=a --strategy=greedy --seed=2": "--seed belongs to --strategy=sample, not to greedy; leave it out",
    "--prompt=a --beams=2 --logprobs=true": (
        "--logprobs belongs to --strategy=greedy or sample, not to beam; leave it out"
    ),
    "--prompt=a --strategy=bean": "--strategy=bean is unknown; did you mean beam?",
    "--prompt=a --beams=4 --beam-groups=3": "--beam-groups=3 must divide beams=4",
    "--prompt=a --beams=2 --n=3": "--n=3 is more than --beams=2; follow more beams or ask for fewer texts",
    "--prompt=a --repetition-penalty=0.5": (
        "--repetition-penalty=0.5 must be at least 1; --repetition-penalty=1 turns it off"
    ),
    "--prompt=a --n=0": "--n=0 must be at least 1",
    "--prompt=a --top-k=-1": "--top-k=-1 must be at least 1, or none",
    "--prompt=a --beams=0": "--beams=0 must be at least 1",
    "--prompt=a --diversity=-1": "--diversity=-1.0 must be at least 0",
    "--prompt=a --file=b": (
        "--prompt=TEXT, --prompt-file=FILE or --file=IN must say what to go on from, one of the three"
    ),
    "": "--prompt=TEXT, --prompt-file=FILE or --file=IN must say what to go on from, one of the three",
    "--prompt=a --beams=2 --max-new-tokens=99": "exceeds the 32 positions of the model; ask for at most 31\n",
    "--file=gone.txt": "gone.txt",
    "--file=holes.txt": "line 2 of --file=holes.txt is empty; give a text to go on from",
    "--prompt=a --to=none/out.txt": (
        "--to=none/out.txt cannot be written: No such file or directory; choose another file"
    ),
}


@pytest.mark.parametrize("flags", BAD)
def test_bad_input_is_one_sentence(flags):
    Path("holes.txt").write_text("the\n\ncat\n")
    words = [f"--{word}" for word in flags.removeprefix("--").split(" --") if word]
    code, out, err = call(generate, "--run=char", *words)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert BAD[flags] in err


def test_runs_of_other_tasks_and_no_runs_are_refused():
    for flags, message in {
        ("--run=mlm",): "error: --run=mlm was trained for --task=mlm, which writes no text; train one with --task=lm\n",
        (
            "--run=gone",
        ): "error: gone is not a run folder: it has no run.json (nor config.json, as models of transformers have)\n",
        (): "error: --run=DIR must name the run folder of a language model\n",
    }.items():
        assert call(generate, *flags, "--prompt=a") == (2, "", message)
    code, out, err = call(evaluate.main, "--run=mlm", "--stride=4")
    assert (code, out, err) == (
        2,
        "",
        "error: --stride belongs to --task=lm or tag or span, and --run=mlm was trained for mlm\n",
    )
    code, _, err = call(main, "--task=mlm", "--init=bpe", "--data=text.txt")
    assert (code, err.splitlines()[-1]) == (
        2,
        "error: --init=bpe is a model that reads from left to right, and task=mlm predicts tokens from both sides; "
        "start from an encoder",
    )

"""Translation: pairs from files, the loss, whole runs on a small language, and what is written."""

import dataclasses
import gzip
import io
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sacrebleu
from random_params import random_params
from small import call, read_lines

import tfm
from train import UserError, evaluate, predict
from train.generate import main as generate
from train.main import main
from train.metrics import written
from train.runs.run_folder import open_folder
from train.runs.saved import SavedCheckpoints
from train.screens.console import Log
from train.tasks import resolve
from train.tasks.translate import translation
from train.tasks.translate.source import load_pairs
from train.tasks.translate.task import TRANSLATE, tokenize

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_home")]
SMALL = (
    "--task=translate --model.layers=1 --model.width=32 --model.heads=2 --model.ffn=64 --model.scan=true "
    "--tokenizer.vocab=300 "
    "--batch.tokens=96 --batch.length=12 --batch.shapes=2 --steps=60 --optim.rate=1e-2 --log.every=20 --eval.every=20 "
    "--checkpoint.every=20 --checkpoint.keep=3 --task.bleu=8 --task.beams=2"
).split()

NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}


def counting(count, seed):
    """Pairs of a language whose sentences run backwards."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        words = rng.choice(list(NUMBERS), rng.integers(1, 6)).tolist()
        yield " ".join(words), " ".join(NUMBERS[word] for word in words[::-1])


def write_sides(name, pairs):
    for language, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        Path(f"{name}.{language}").write_text("\n".join(side) + "\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with pairs, and a run on them."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_sides("train", counting(400, 0))
        write_sides("dev", counting(30, 1))
        code, out, err = call(main, *SMALL, "--data=train.en,train.de", "--eval-data=dev.en,dev.de", "--out=run")
        assert (code, out) == (0, ""), err
        Path("said").write_text(err)
    return folder


def run_of(*flags):
    return resolve.resolve(["--task=translate", *flags], None, None)[0]


def loaded(*flags):
    """The corpus of a run of these flags."""
    return TRANSLATE.load(run_of("--tokenizer.vocab=300", "--batch.tokens=96", "--batch.length=12", *flags), Log())


# ---------------------------------------------------------------- pairs


def test_all_formats_give_the_same_pairs(tmp_path):
    pairs = list(counting(50, 2))
    write_sides(tmp_path / "a", pairs)
    for side in ("en", "de"):
        (tmp_path / f"b.{side}.gz").write_bytes(gzip.compress((tmp_path / f"a.{side}").read_bytes()))
    (tmp_path / "c.tsv").write_text("en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    (tmp_path / "d.jsonl").write_text("".join(json.dumps({"de": b, "en": a}) + "\n" for a, b in pairs))
    (tmp_path / "e.tsv").write_text("source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))
    sources = {
        f"{tmp_path}/a.en,{tmp_path}/a.de": (),
        f"{tmp_path}/a.de,{tmp_path}/a.en": (),
        f"{tmp_path}/b.en.gz,{tmp_path}/b.de.gz": (),
        f"{tmp_path}/c.tsv": (),
        f"{tmp_path}/d.jsonl": (),
        f"{tmp_path}/e.tsv": ("--data.field=source,target",),
    }
    for source, more in sources.items():
        run = run_of(f"--data={source}", *more)
        train, valid, empty = load_pairs(run.data, run.task, None)
        assert sorted(train + valid) == sorted(pairs), source
        assert empty == 0
    reversed_run = run_of(f"--data={tmp_path}/a.en,{tmp_path}/a.de", "--task.source=de", "--task.target=en")
    train, valid, _ = load_pairs(reversed_run.data, reversed_run.task, None)
    assert sorted(train + valid) == sorted((b, a) for a, b in pairs)


def test_empty_lines_and_long_pairs_are_left_out_and_counted(tmp_path):
    write_sides(
        tmp_path / "a",
        [*counting(40, 3), ("", "eins"), ("two", " "), ("", ""), ("one " * 30, "eins"), ("one", "eins " * 30)],
    )
    corpus = loaded(f"--data={tmp_path}/a.en,{tmp_path}/a.de", "--eval-data=dev.en,dev.de")
    facts = corpus.facts()
    assert (facts["empty"], facts["long"]) == (3, 2)
    assert len(corpus.train[0]) == 40
    assert corpus.overview()["left out"] == "3 pairs with an empty side, 2 longer than 12 tokens"


@pytest.mark.slow
def test_the_built_in_pairs_go_both_ways():
    directions = (("en", "de"), ("de", "en"))
    pairs = [
        loaded(f"--task.source={source}", f"--task.target={target}", "--batch.length=90").valid.pairs
        for source, target in directions
    ]
    assert len(pairs[0]) == 500
    assert pairs[0] == [(english, german) for german, english in pairs[1]]


@pytest.mark.parametrize("pack", ["true", "false"])
def test_a_batch_is_as_the_task_says(pack):
    sources = "--data=train.en,train.de", "--eval-data=dev.en,dev.de"
    corpus = loaded(*sources, "--task.smoothing=0.2", "--batch.shapes=2", f"--data.pack={pack}")
    special, seen = tokenize.special_tokens(corpus.processor), []
    encode = lambda text: corpus.processor.encode(text, add_special_tokens=False).ids
    pairs = corpus.train[0]
    for n in range(pairs.buckets.batches):
        batch, (_, rows) = corpus.batch(n), corpus.rows(n)
        for b, row in enumerate(rows):
            sides = [[encode(side) for side in pair] for pair in pairs.pairs_of(row)]
            sources = [[*source, special.sep] for source, _ in sides]
            targets = [[*target, special.sep] for _, target in sides]
            readings = [[special.cls, *target] for _, target in sides]
            expected = {"tokens": sources, "target": readings, "targets": targets}
            for name, texts in expected.items():
                segments = batch["segments" if name == "tokens" else "target_segments"][b]
                positions = batch["positions" if name == "tokens" else "target_positions"][b]
                assert [batch[name][b][segments == 1 + k].tolist() for k in range(len(texts))] == texts
                assert [positions[segments == 1 + k].tolist() for k in range(len(texts))] == [
                    list(range(len(text))) for text in texts
                ]
                assert (segments > 0).sum() == sum(map(len, texts))
            np.testing.assert_array_equal(batch["weights"][b], batch["target_segments"][b] > 0)
            seen += pairs.pairs_of(row)
        assert (batch["smoothing"] == np.float32(0.2)).all()
    assert sorted(seen) == sorted(pairs.pairs)
    assert len(seen) == 400
    shapes = [{name: field.shape for name, field in corpus.batch(n).items()} for n in range(pairs.buckets.batches)]
    announced = [{name: field.shape for name, field in fields.items()} for fields in corpus.example_batches()]
    assert all(shape in announced for shape in shapes)
    assert all(shape in shapes for shape in announced)
    assert len(announced) == (1 if pack == "true" else 2)
    assert all((batch["smoothing"] == 0).all() for batch in corpus.valid_batches())


def test_the_loss_is_that_of_the_model():
    corpus = loaded("--data=train.en,train.de", "--eval-data=dev.en,dev.de", "--data.pack=false")
    vocab = corpus.sizes["vocab"]
    config = dataclasses.replace(run_of().model, layers=2, width=16, heads=2, ffn=32, vocab=vocab)
    params = random_params(tfm.seq2seq_specs(config))
    batch = {name: jnp.asarray(field) for name, field in corpus.batch(0).items()}
    with jax.numpy_dtype_promotion("strict"):
        sums = jax.jit(TRANSLATE.loss, static_argnums=1)(params, config, batch, None)
        logits = tfm.seq2seq(params, config, batch["tokens"], batch["target"], batch["segments"] > 0)
    smoothed = tfm.cross_entropy(logits, batch["targets"], 0.1, config.vocab) * batch["weights"]
    hits = (logits.argmax(-1) == batch["targets"]) * batch["weights"]
    np.testing.assert_allclose(sums["loss"], smoothed.sum(), rtol=1e-5)
    np.testing.assert_allclose(sums["right"], hits.sum(), rtol=1e-6)
    assert sums["weight"] == batch["weights"].sum()
    used = (batch["segments"] > 0).sum() + batch["weights"].sum()
    places = batch["segments"].size + batch["weights"].size
    assert TRANSLATE.metrics(sums)["padding"] == pytest.approx(1 - used / places)


# ---------------------------------------------------------------- a run


def test_what_a_run_leaves_behind():
    result = json.loads(Path("run/result.json").read_text())
    assert {"task", "steps", "seconds", "params", "eval_loss", "eval_accuracy", "bleu", "chrf", "signature"} <= set(
        result
    )
    assert "tok:13a" in result["signature"]
    lines = [line for line in read_lines(Path("run/metrics.jsonl")) if line["split"] == "eval"]
    assert all({"loss", "bleu", "chrf"} <= set(line) for line in lines)
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert {"alignment-1.png", "loss.png", "lr.png"} <= {path.name for path in Path("run/plots").iterdir()}
    said = Path("said").read_text()
    assert "1 to compile: " in said
    assert "shapes of batches" not in said, "pairs share rows of one shape"
    assert said.count("\n  ") >= 10, "ten translations"


def test_the_result_is_that_of_sacrebleu():
    """Of translations that generate writes, of the whole validation text."""
    code, _, _ = call(generate, "--run=run", "--file=dev.en", "--to=hyp.txt", "--beams=2")
    assert code == 0
    written, references = (Path(name).read_text().removesuffix("\n").split("\n") for name in ("hyp.txt", "dev.de"))
    assert len(written) == len(references) == 30
    result = json.loads(Path("run/result.json").read_text())
    assert sacrebleu.corpus_bleu(written, [references]).score == pytest.approx(result["bleu"], abs=1e-6)
    assert sacrebleu.corpus_chrf(written, [references]).score == pytest.approx(result["chrf"], abs=1e-6)


@pytest.mark.slow
def test_two_halves_equal_the_whole():
    code, _, err = call(
        main, *SMALL, "--data=train.en,train.de", "--eval-data=dev.en,dev.de", "--out=halves", "--stop-at=30"
    )
    assert code == 0, err
    code, _, err = call(main, "--resume", "--out=halves")
    assert code == 0, err
    params, resumed = (open_folder(name).load() for name in ("run", "halves"))
    jax.tree.map(np.testing.assert_array_equal, params, resumed)
    timed = {"tokens_per_s", "ms_per_step"}
    kept = lambda name: [
        {key: line[key] for key in line.keys() - timed} for line in read_lines(Path(name, "metrics.jsonl"))
    ]
    assert kept("run") == kept("halves")


def evaluated(*flags):
    code, out, err = call(evaluate.main, "--run=run", *flags)
    assert code == 0, err
    return json.loads(out)


def test_evaluate_repeats_the_result_and_says_how_sure_it_is():
    metrics_again, result = evaluated(), json.loads(Path("run/result.json").read_text())
    assert metrics_again["loss"] == pytest.approx(result["eval_loss"], rel=1e-5)
    assert metrics_again["bleu"] == pytest.approx(result["bleu"])
    low, high = metrics_again["bleu_interval"]
    assert low <= metrics_again["bleu"] <= high
    assert "bleu_p" not in metrics_again
    greedy = evaluated("--beams=1")
    call(generate, "--run=run", "--file=dev.en", "--to=greedy.txt", "--strategy=greedy")
    lines = Path("greedy.txt").read_text().removesuffix("\n").split("\n")
    assert greedy["bleu"] == pytest.approx(
        written.translation_metrics(lines, Path("dev.de").read_text().removesuffix("\n").split("\n"))["bleu"]
    )
    against = evaluated("--against=greedy.txt")
    assert against["bleu_against"] == pytest.approx(greedy["bleu"])
    assert 0 <= against["bleu_p"] <= 1


def test_a_translator_is_judged_as_one_of_summaries_and_of_answers():
    call(generate, "--run=run", "--file=dev.en", "--to=greedy.txt", "--strategy=greedy")
    texts, references = (Path(name).read_text().removesuffix("\n").split("\n") for name in ("greedy.txt", "dev.de"))
    for kind, metric in (("rouge", "rougeL"), ("answers", "exact_match")):
        metrics = evaluated("--beams=1", f"--scores={kind}")
        assert metrics[metric] == pytest.approx(written.metrics(kind, texts, references)[metric])
        assert metrics[f"{metric}_interval"][0] <= metrics[metric] <= metrics[f"{metric}_interval"][1]
        assert "bleu" not in metrics


def test_weights_in_eight_bits_say_what_they_cost_in_bleu():
    exact, small = evaluated(), evaluated("--weights=int8")
    for name in ("loss", "bleu", "chrf"):
        assert small[f"{name}_change"] == pytest.approx(small[name] - exact[name], rel=1e-3, abs=1e-6)
    assert small["loss_change"] != 0
    assert "bleu_change" not in exact


@pytest.mark.slow
def test_predict_translates_as_generate_does(tmp_path):
    """With as many beams as in training: a text and a file, empty lines included; objects have both sides."""
    sentences = ["one two three", "", "four"]
    (tmp_path / "in.txt").write_text("\n".join(sentences) + "\n")

    def translated(text):
        return call(generate, "--run=run", f"--prompt={text}", "--strategy=beam", "--beams=2")[1].strip()

    expected = [translated(text) if text else "" for text in sentences]
    assert all(expected[::2])
    code, out, err = call(predict.main, "--run=run", "--text=one two three")
    assert (code, out) == (0, expected[0] + "\n"), err
    assert call(predict.main, "--run=run", f"--file={tmp_path}/in.txt")[1].split("\n") == [*expected, ""]
    assert call(predict.main, "--run=run", f"--file={tmp_path}/in.txt", f"--to={tmp_path}/out.jsonl")[0] == 0
    assert read_lines(tmp_path / "out.jsonl") == [
        {"text": text, "translation": translation} for text, translation in zip(sentences, expected, strict=True)
    ]
    code, _, err = call(predict.main, "--run=run", "--text=one", "--pair=eins")
    assert (code, "--pair is no flag of --task=translate" in err) == (2, True)


@pytest.mark.slow
def test_evaluate_on_other_pairs_and_the_other_way_of_naming_them(tmp_path):
    write_sides(tmp_path / "a", counting(12, 9))
    assert evaluated(f"--data={tmp_path}/a.en,{tmp_path}/a.de")["n"] == 12


@pytest.mark.slow
def test_the_mean_of_checkpoints():
    like = open_folder("run").load()
    averaged = open_folder("run").load(average=2)
    steps = sorted(int(path.name) for path in Path("run/checkpoints").iterdir() if path.name.isdigit())[-2:]
    store = SavedCheckpoints(Path("run/checkpoints"))
    last_two = [store._params(step, like) for step in steps]
    jax.tree.map(
        lambda a, b, c: np.testing.assert_allclose(a, (np.asarray(b) + np.asarray(c)) / 2, rtol=1e-6),
        averaged,
        *last_two,
    )
    code, _, err = call(evaluate.main, "--run=run", "--average=9")
    assert code == 2
    assert err.splitlines()[-1].endswith("run has 3 checkpoints to average, not 9; train with --checkpoint.keep=9")


# ---------------------------------------------------------------- writing


@pytest.mark.slow
def test_a_file_is_translated_in_its_order_empty_lines_included(tmp_path):
    sentences = ["one two three", "", "four", "one two one two three", " ", "five six"]
    Path(tmp_path / "in.txt").write_text("\n".join(sentences) + "\n")
    assert call(generate, "--run=run", f"--file={tmp_path}/in.txt", f"--to={tmp_path}/out.txt", "--batch=2")[0] == 0
    lines = (tmp_path / "out.txt").read_text().split("\n")
    assert len(lines) == 7
    assert [line == "" for line in lines] == [False, True, False, False, True, False, True]
    for line in (0, 2, 3, 5):
        assert call(generate, "--run=run", f"--prompt={sentences[line]}", "--strategy=beam")[1] == lines[line] + "\n"


@pytest.mark.slow
def test_greedy_streams_what_a_beam_of_one_finds():
    greedy = call(generate, "--run=run", "--prompt=one two three", "--strategy=greedy")[1]
    beam = call(generate, "--run=run", "--prompt=one two three", "--beams=1")[1]
    assert greedy == beam
    assert not greedy.startswith("one two three")


@pytest.mark.slow
def test_interactive(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("one two\n\nthree\n"))
    code, out, _ = call(generate, "--run=run", "--interactive")
    assert code == 0
    expected = [call(generate, "--run=run", f"--prompt={text}")[1] for text in ("one two", "three")]
    assert out == "".join(expected)


@pytest.mark.slow
def test_objects_and_several_translations(tmp_path):
    assert (
        call(
            generate,
            "--run=run",
            "--prompt=one two",
            "--beams=3",
            "--n=2",
            "--coverage=0.2",
            f"--to={tmp_path}/a.jsonl",
        )[0]
        == 0
    )
    best, second = read_lines(tmp_path / "a.jsonl")
    assert best["score"] >= second["score"]
    assert best["completion"] != second["completion"]


@pytest.mark.slow
def test_several_translations_stand_beside_their_source(tmp_path):
    """An empty line has one row, so that each row says what it translates."""
    sources = ["one two", "", "three", " "]
    (tmp_path / "in.txt").write_text("\n".join(sources) + "\n")
    flags = (f"--file={tmp_path}/in.txt", "--beams=3", "--n=2", f"--to={tmp_path}/out.jsonl")
    assert call(generate, "--run=run", *flags)[0] == 0
    rows = read_lines(tmp_path / "out.jsonl")
    assert [row["prompt"] for row in rows] == [source for source in sources for _ in range(2 if source.strip() else 1)]
    assert [bool(row["completion"]) for row in rows] == [bool(row["prompt"].strip()) for row in rows]


def test_words_of_an_alignment():
    folder = open_folder("run")
    source, target, weights = translation.word_alignment(
        folder.load(), folder.config, folder.processor, "one two three", "drei zwei"
    )
    assert (source, target) == (["one", "two", "three"], ["drei", "zwei"])
    assert weights.shape == (2, 3)
    assert (weights.sum(1) <= 1 + 1e-5).all(), "the rest is spent on the end of the source"


# ---------------------------------------------------------------- bad input


def test_files_of_different_lengths(tmp_path):
    write_sides(tmp_path / "a", counting(20, 3))
    (tmp_path / "a.de").write_text("eins\n")
    with pytest.raises(UserError, match=r"a\.en has 20 and .*a\.de has 1 lines; line n of one must be"):
        loaded(f"--data={tmp_path}/a.en,{tmp_path}/a.de")


def test_long_pairs_may_be_an_error(tmp_path):
    write_sides(tmp_path / "a", [*counting(40, 3), ("one " * 30, "eins")])
    with pytest.raises(UserError, match="is longer than --batch.length=12 tokens; raise that, or leave the pair out"):
        loaded(f"--data={tmp_path}/a.en,{tmp_path}/a.de", "--eval-data=dev.en,dev.de", "--task.long=error")


BAD = {
    "--task.source=fr": "builtin has no text column 'fr' (it has en, de); name it with --task.source and "
    "--task.target, or --data.field=ONE,OTHER",
    "--data=train.en,train.de --task.target=fr": "train.en,train.de has files of en and de, and --task.source=en "
    "--task.target=fr asks for others; name the languages that are there",
    "--data=train.en,none.de": "none.de does not exist; give the path of a file",
    "--task.source=de": "--task.source=de and task.target are the same; name two columns or languages",
    "--task.smoothing=1": "--task.smoothing=1.0 must be at least 0 and less than 1; the paper has 0.1",
    "--task.long=cut": "--task.long=cut is unknown; known are drop, error",
    "--batch.tokens=16 --batch.length=32": "--batch.tokens=16 must be at least batch.length=32, or none",
    "--batch.accumulate=3": "--batch.accumulate=3 must divide batch.multiple=8",
    "--task=mlm --batch.tokens=512": "--batch.tokens=512 is not for task=mlm; say --batch.size",
    "--eval.best=bleu --task.bleu=0": "--eval.best=bleu needs translations to judge; set --task.bleu to a number of "
    "sentences",
    "--task.bleu=-1": "--task.bleu=-1 must not be negative; 0 means none before the end",
}


@pytest.mark.parametrize("flags", BAD)
def test_bad_input_is_one_sentence(flags, capsys):
    before = set(Path.cwd().iterdir())
    words = flags.split() if "--task=" in flags else ["--task=translate", *flags.split()]
    code, out, err = call(main, *words, "--out=bad")
    assert (code, out, err.splitlines()[-1]) == (2, "", f"error: {BAD[flags]}")
    assert set(Path.cwd().iterdir()) == before


@pytest.mark.slow
def test_what_evaluate_and_generate_refuse(tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("eins\n")
    for command, flags, sentence in (
        (
            evaluate.main,
            "--stride=4",
            "--stride belongs to --task=lm or tag or span, and --run=run was trained for translate",
        ),
        (
            evaluate.main,
            f"--against={tmp_path}/few.txt",
            f"--against={tmp_path}/few.txt has 1 lines, and 30 sentences are translated; give a line for each",
        ),
        (generate, "--file=none.txt", "none.txt does not exist; give the path of a file"),
        (generate, "--prompt=one --coverage=-1", "--coverage=-1.0 must be at least 0; --coverage=0 turns it off"),
    ):
        code, out, err = call(command, "--run=run", *flags.split())
        assert (code, out, err.splitlines()[-1]) == (2, "", f"error: {sentence}")

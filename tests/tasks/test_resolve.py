"""From the command line to a run: layers, `--init`, `--resume`, `--help`."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tfm.catalogue.options.patterns import Sliding
from tfm.config.mixers import Softmax
from tfm.config.model import COMPUTE, Layer
from tfm.config.positions import Rotary
from tfm.options.dotted import flatten
from train import UserError
from train.settings import flags
from train.tasks import resolve
from train.tasks.presets import PRESETS
from train.tasks.table import TASKS, AnyRun
from train.tasks.translate.options import Translate


def run_of(*argv, source=None):
    """The run that flags describe; `source` is what `--init` or `--resume` reads."""
    return resolve.resolve(argv, lambda folder: source, lambda folder, adapter: source)[0]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("--modle.layers=2", "model.layers"), ("--step=5", "steps"), ("--eval-dat=x", "eval-data"), ("--tsk=mlm", "task")],
)
def test_the_trainer_names_the_nearest_flag(wrong, right):
    with pytest.raises(UserError, match=f"did you mean {right}\\?"):
        run_of(wrong)


def test_aliases():
    run = run_of("--task=mlm", "--data=a.txt", "--eval-data=b.txt")
    assert (run.task.name, run.data.source, run.data.eval) == ("mlm", "a.txt", "b.txt")


def test_layers_of_a_run():
    """Defaults, preset, flags: the later one wins."""
    assert (run_of().model.layers, run_of().model.width, run_of().preset) == (2, 128, "bert-tiny")
    mini = run_of("--preset=bert-mini")
    assert (mini.model.layers, mini.model.width, mini.model.heads, mini.model.sizes["F"]) == (4, 256, 4, 1024)
    assert run_of("--preset=bert-mini", "--model.layers=3").model.layers == 3
    assert run_of("--model.width=96", "--model.heads=3").model.sizes["H"] == 32


def test_variants_by_flags():
    rotary = run_of("--model.position=rotary", "--model.position.base=500000")
    assert rotary.model.position == Rotary(base=500_000.0)
    window = Softmax(pattern=Sliding(window=64))
    pattern = "mixer=softmax mixer.pattern=sliding mixer.pattern.window=64".split()
    assert run_of(*(f"--model.{word}" for word in pattern)).model.mixer == window
    second = run_of("--model.period=2", *(f"--model.period.1.{word}" for word in pattern)).model
    assert second.period == (Layer(), Layer(mixer=window))
    every = run_of("--model.period=2", *(f"--model.period.{word}" for word in pattern)).model
    assert every.period == (Layer(mixer=window),) * 2


def test_a_variant_of_a_preset_is_replaced():
    """What the preset says of the old class does not linger."""
    llama = run_of("--task=lm", "--preset=llama-tiny", "--model.position=learned")
    assert llama.model.position.name == "learned"
    assert run_of("--task=lm", "--preset=llama-tiny", "--model.position.base=5").model.position.base == 5.0
    with pytest.raises(UserError, match="--model.position.base belongs to model.position=rotary, not to learned"):
        run_of("--task=lm", "--model.position.base=5")


def test_tasks_are_a_union():
    assert run_of("--task=translate", "--task.bleu=3").task == Translate(bleu=3)
    with pytest.raises(UserError, match="^--task.bleu belongs to task=translate, not to mlm; leave it out$"):
        run_of("--task.bleu=3")
    with pytest.raises(UserError, match=r"eval.best=rouge1 is for task.scores=rouge, not bleu; set that"):
        run_of("--task=translate", "--eval.best=rouge1")
    with pytest.raises(UserError, match=r"^--task=trnslate is unknown; did you mean translate\?$"):
        run_of("--task=trnslate")


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("stop-at", lambda run: run.stop_at),
        ("batch.tokens", lambda run: run.batch.tokens),
        ("optim.clip", lambda run: run.optim.clip),
        ("optim.ema", lambda run: run.optim.ema),
        ("eval.batches", lambda run: run.eval.batches),
        ("eval.patience", lambda run: run.eval.patience),
        ("distributed.processes", lambda run: run.distributed.processes),
        ("distributed.process", lambda run: run.distributed.process),
        ("task.stride", lambda run: run.task.stride),
    ],
)
def test_none_is_a_value_and_zero_is_no_longer_one(flag, field):
    task = {"batch.tokens": "translate", "task.stride": "lm"}.get(flag, "mlm")
    assert field(run_of(f"--task={task}", f"--{flag}=none")) is None
    if flag == "distributed.process":
        assert field(run_of("--distributed.process=0")) == 0, "the first process"
    else:
        with pytest.raises(UserError, match=f"--{flag}=0(.0)? must be .*none"):
            run_of(f"--task={task}", f"--{flag}=0")


# Start and resume


def test_a_run_inherits_the_weights_and_not_the_computation():
    """Of another run: what the weights mean. How they are computed is a choice of this run."""
    source = run_of(
        "--model.position=rotary", "--model.position.base=500", "--model.ffn=96", "--model.dropout=0.25",
        "--model.remat=dots", "--model.classes=7", "--model.head.pool=mean", "--model.head.bias=false",
    )  # fmt: skip
    run = run_of("--init=a", source=flatten(source))
    assert run.model.position == Rotary(base=500.0)
    assert (run.model.ffn, run.model.head.bias, run.model.head.pool) == (96, False, "mean")
    assert (run.model.remat, run.model.dropout, run.model.classes) == ("none", 0.0, 2)
    other_task = run_of("--task=classify", "--init=a", source=flatten(source) | {"model.head.pool": "first"})
    assert (other_task.model.head.pool, other_task.model.head.bias) == ("mean", False), "the preset's pool"
    assert run_of("--init=a", "--model.position=learned", source=flatten(source)).model.position.name == "learned"
    preset = run_of("--init=a", "--preset=bert-mini", source=flatten(source)).model
    assert (preset.width, preset.position.name, preset.ffn) == (256, "learned", 96)
    assert all(name in flatten(run.model) for name in COMPUTE)


def test_the_start_of_a_translation_belongs_to_its_weights():
    source = flatten(run_of("--task=translate", "--task.start=</s>"))
    assert run_of("--task=translate", "--init=a", source=source).task.start == "</s>"
    assert run_of("--task=mlm", "--init=a", source=source).task.name == "mlm"


def test_a_run_goes_on_as_it_began():
    saved = flatten(run_of("--task=lm", "--preset=llama-tiny", "--model.position.base=500", "--stop-at=3"))
    run = run_of("--resume", "--steps=9", source=saved)
    assert (run.steps, run.resume, run.stop_at, run.model.position.base) == (9, True, None, 500.0)
    with pytest.raises(UserError, match="^--model.position=learned differs from rotary in the run to resume; leave"):
        run_of("--resume", "--model.position=learned", source=saved)
    with pytest.raises(UserError, match="^--model.ffn=none differs from 344 in the run to resume"):
        run_of("--resume", "--model.ffn=none", source=saved)
    with pytest.raises(UserError, match="^--model.period=2 differs from 1 in"):
        run_of("--resume", "--model.period=2", source=saved)
    assert run_of("--resume", "--model.position=rotary", source=saved).model == run.model, "nothing changes"


@pytest.mark.parametrize("flag", ["eval.best=perplexity", "eval.batches=3", "eval-data=other.txt", "data.split=line"])
def test_evaluations_of_a_run_stay_comparable(flag):
    """The metric, and the rows that it is measured on, are those with which the run began."""
    name, value = flag.replace("eval-data", "data.eval").split("=")
    with pytest.raises(UserError, match=f"^--{name}={value} differs from .* in the run to resume; leave it out"):
        run_of("--resume", f"--{flag}", source=flatten(run_of("--task=mlm")))


def test_resume_stands_in_the_first_start_too(tmp_path):
    """Of a command that says what to train and where: a mistyped folder alone is no start."""

    def resumed(out):
        raise UserError(f"{out} is read")

    begun = resolve.resolve(["--resume", "--task=lm", f"--out={tmp_path}"], resumed, resumed)
    assert begun[0].resume is False
    assert {"resume", "task", "out"} <= begun[1]
    for words in (["--resume", f"--out={tmp_path}"], ["--resume", "--task=lm"]):
        with pytest.raises(UserError, match="is read"):
            resolve.resolve(words, resumed, resumed)
    (tmp_path / "run.json").touch()
    with pytest.raises(UserError, match="is read"):
        resolve.resolve(["--resume", "--task=lm", f"--out={tmp_path}"], resumed, resumed)


def test_paths_of_a_resumed_run_may_move():
    """A hash of what they lead to says later whether it is the same."""
    saved = flatten(run_of("--task=lm", "--data=a.txt", "--eval-data=b.txt", "--teacher=old"))
    run = run_of(
        "--resume", "--data=c/a.txt", "--eval-data=c/b.txt", "--teacher=new", "--eval.patience=2", source=saved
    )
    assert (run.data.source, run.data.eval, run.teacher.folder) == ("c/a.txt", "c/b.txt", "new")
    with pytest.raises(UserError, match="^--teacher.folder= differs from old in the run to resume"):
        run_of("--resume", "--teacher=", source=saved)


@pytest.mark.parametrize(
    ("flag", "was", "wanted"),
    [("model.param-dtype", "bfloat16", "float32"), ("optim.moment-dtype", "float32", "bfloat16")],
)
def test_a_run_goes_on_in_the_dtypes_that_it_began_with(flag, was, wanted):
    saved = {flag.replace("-", "_"): was}
    assert flatten(run_of("--resume", source=saved))[flag.replace("-", "_")] == was
    with pytest.raises(UserError, match=f"--{flag}={wanted} differs from {was} in the run to resume"):
        run_of("--resume", f"--{flag}={wanted}", source=saved)


def test_the_data_and_the_device_decide_what_no_flag_does():
    run, explicit = resolve.resolve(["--model.vocab=900"], None, None)
    filled = resolve.fill_from_data(run, explicit, {"vocab": 800, "classes": 3}, "gpu").model
    assert (filled.vocab, filled.classes, filled.dtype) == (900, 3, "bfloat16")
    assert resolve.fill_from_data(run, explicit, {}, "gpu", has_bfloat16=False).model.dtype == "float16"
    assert resolve.fill_from_data(run, explicit, {}, "cpu", has_bfloat16=False).model.dtype == "float32"
    with pytest.raises(UserError, match="--model.vocab=900 is less than the 901 of the data; leave the flag out"):
        resolve.fill_from_data(run, explicit, {"vocab": 901}, "cpu")


def test_flags_of_a_processor_that_init_brings_are_refused(tmp_path):
    """Not where the folder has none."""
    flags, source = ["--task=image", f"--init={tmp_path}", "--task.pixels.mean=0.4"], {"task": "image"}
    assert run_of(*flags, source=source).task.pixels.mean == "0.4"
    (tmp_path / "preprocessor_config.json").write_text("{}")
    with pytest.raises(UserError, match="brings its own processor of pictures; leave --task.pixels.mean out$"):
        run_of(*flags, source=source)


@pytest.mark.parametrize(
    ("platform", "flags", "scan"),
    [
        ("gpu", ["--model.layers=48"], False),
        ("gpu", ["--model.layers=49"], True),
        ("gpu", ["--model.remat=dots"], True),
        ("gpu", ["--model.residual=reversible"], True),
        ("gpu", ["--model.scan=true"], True),
        ("tpu", [], True),
        ("cpu", [], True),
    ],
)
def test_a_gpu_has_a_block_for_each_layer(platform, flags, scan):
    run, explicit = resolve.resolve(["--preset=bert-base", *flags], None, None)
    assert resolve.fill_from_data(run, explicit, {}, platform).model.scan == scan


# Help


def test_every_flag_has_a_line_of_help():
    for task in TASKS:
        run = run_of(f"--task={task}")
        assert all(flag.help for flag in flags.flags_of(run))
        assert [flag.name for flag in flags.flags_of(run)] == list(flatten(run))


SEVERAL_KINDS = (
    "--model.period=3 --model.period.position=rotary --model.prefix=1 --model.prefix.0.mixer=softmax".split()
)


def marks_of_help(task, preset, more):
    """A plain test reads the help of a task's first preset; those of the others are slow tests."""
    return [] if preset == next(iter(PRESETS[task])) and not more else [pytest.mark.slow]


@pytest.mark.parametrize(
    ("task", "preset", "more"),
    [
        pytest.param(task, preset, more, marks=marks_of_help(task, preset, more))
        for task in PRESETS
        for preset in PRESETS[task]
        for more in ([], SEVERAL_KINDS)
    ],
)
def test_help_lists_every_flag_of_the_task_on_two_screens(task, preset, more):
    argv = [f"--task={task}", f"--preset={preset}"]
    if more and (run_of(*argv).model.stages or run_of(*argv).model.mixer.name != "softmax"):
        pytest.skip("a model in stages has kinds of its own, and recurrent models have one kind")
    argv += more
    text = resolve.help_text([*argv, "--help"])
    words = {word.partition("=")[0] for word in f"{text} {resolve.help_text([*argv, '--help=phases'])}".split()}
    short = {name: alias for alias, name in resolve.ALIASES.items()}
    for flag in flags.flags_of(run_of(*argv)):
        is_part = flag.name.startswith(resolve.PARTS) or any(word.isdigit() for word in flag.name.split("."))
        if flag.value != flag.default or not is_part or flag.name in short:
            assert f"--{short.get(flag.name, flag.name.replace('_', '-'))}" in words
    assert len(text.splitlines()) <= 100


def test_help_of_a_section():
    text = resolve.help_text(["--help=model.position", "--model.position=rotary"])
    assert "  --model.position.base=10000.0 " in text
    assert "of the wavelengths; more than 10,000 for longer texts" in text
    assert "      alibi: Scores fall with the distance" in text
    assert "--model.layers" not in text
    assert "--model.kv-heads=none" in resolve.help_text(["--help=model.kv-heads"])
    with pytest.raises(UserError, match=r"--help=modl is unknown; did you mean model"):
        resolve.help_text(["--help=modl"])
    assert resolve.help_text(["--task=mlm"]) is None


def test_help_says_what_flags_lead_to():
    text = resolve.help_text(["-h", "--model.layers=7", "--model.vocab=900"])
    assert "--model.layers=7 " in text
    assert "--model.vocab=900 " in text
    assert "--model.dtype=by device" in text


def test_help_is_there_at_once():
    """Without jax, numpy, or any library."""
    code = """
import contextlib, io, resource, sys
from train.main import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["--help", "--task=translate"]) == 0
print(*{"jax", "numpy", "flax", "optax", "orbax", "tokenizers", "matplotlib"} & set(sys.modules))
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr


def test_a_run_is_what_its_flags_say():
    for task in TASKS:
        run = run_of(f"--task={task}")
        argv = [f"--{flag.name.replace('_', '-')}={flags.show(flag.value)}" for flag in flags.flags_of(run)]
        assert run_of(*argv) == run
        assert flags.build(AnyRun, flatten(run)) == run
        assert dataclasses.replace(run, steps=7) == flags.build(AnyRun, flatten(run), {"steps": 7})

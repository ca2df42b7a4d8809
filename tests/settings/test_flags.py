"""Flags: how they are read, corrected, explained and turned into a configuration."""

import dataclasses

import pytest

from train import UserError
from train.settings import flags, resolve, schema, tasks


@dataclasses.dataclass(frozen=True)
class Inner:
    """Inside.

    size: how large
    on: whether at all
    """

    size: int = 4
    on: bool = True

    def __post_init__(self):
        if self.size < 1:
            raise ValueError(f"size={self.size} must be at least 1")


@dataclasses.dataclass(frozen=True)
class Outer:
    """Outside.

    name: what it is called
    rate: how fast: in steps
    fast_mode: whether to hurry
    """

    name: str = "x"
    rate: float = 0.5
    fast_mode: bool = False
    inner: Inner = dataclasses.field(default_factory=Inner)


FLAGS = flags.flags_of(Outer, {})


def parse(*argv):
    return flags.parse(argv, FLAGS, {"size": "inner.size"})


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["--inner.on=false"], {"inner.on": False}),
        (["--inner.on", "false"], {"inner.on": False}),
        (["--inner.on=True"], {"inner.on": True}),
        (["--fast-mode"], {"fast_mode": True}),
        (["--fast-mode", "--inner.size=2"], {"fast_mode": True, "inner.size": 2}),
        (["--fast_mode=true"], {"fast_mode": True}),
        (["--inner.size", "3", "--name", "a b"], {"inner.size": 3, "name": "a b"}),
        (["--inner.size=1_000"], {"inner.size": 1000}),
        (["--inner.size=-3"], {"inner.size": -3}),
        (["--inner.size", "-3"], {"inner.size": -3}),
        (["--rate=1e-3"], {"rate": 1e-3}),
        (["--rate=2"], {"rate": 2.0}),
        (["--name="], {"name": ""}),
        (["--name=a=b"], {"name": "a=b"}),
        (["--size=7"], {"inner.size": 7}),
        (["--inner.size=1", "--inner.size=2"], {"inner.size": 2}),
        ([], {}),
    ],
)
def test_values(argv, values):
    found = parse(*argv)
    assert found == values
    assert [type(value) for value in found.values()] == [type(value) for value in values.values()]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--inner.size=abc"], "--inner.size=abc must be a whole number"),
        (["--inner.size=1.5"], "--inner.size=1.5 must be a whole number"),
        (["--rate=fast"], "--rate=fast must be a number"),
        (["--rate=nan"], "--rate=nan must be a number"),
        (["--inner.on=maybe"], "--inner.on=maybe must be true or false"),
        (["--fast-mode", "perhaps"], "--fast-mode=perhaps must be true or false"),
        (["--inner.size"], "--inner.size needs a value: --inner.size=INT"),
        (["--inner.size", "--fast-mode"], "--inner.size needs a value: --inner.size=INT"),
        (["inner.size=3"], "'inner.size=3' is not a flag; write --name=value"),
        (["--inner.sise=3"], "unknown flag --inner.sise; did you mean inner.size?"),
        (["--iner.size=3"], "unknown flag --iner.size; did you mean inner.size?"),
        (["--fast-mod"], "unknown flag --fast-mod; did you mean fast-mode?"),
        (["--zzz=1"], "unknown flag --zzz; --help lists all flags"),
    ],
)
def test_wrong_flags(argv, sentence):
    with pytest.raises(UserError) as error:
        parse(*argv)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("--modle.layers=2", "model.layers"), ("--step=5", "steps"), ("--eval-dat=x", "eval-data"), ("--tsk=mlm", "task")],
)
def test_the_trainer_names_the_nearest_flag(wrong, right):
    with pytest.raises(UserError, match=f"did you mean {right}\\?"):
        flags.parse([wrong], resolve.FLAGS["mlm"], resolve.ALIASES)


def test_aliases():
    argv = ["--task=mlm", "--data=a.txt", "--eval-data=b.txt"]
    assert flags.parse(argv, resolve.FLAGS["mlm"], resolve.ALIASES) == {
        "task.name": "mlm",
        "data.source": "a.txt",
        "data.eval": "b.txt",
    }


def test_build_and_flatten_are_inverse():
    values = {"name": "y", "rate": 2.0, "fast_mode": True, "inner.size": 9, "inner.on": False}
    built = flags.build(Outer, values)
    assert built == Outer("y", 2.0, True, Inner(9, False))
    assert flags.flatten(built) == values
    assert flags.flatten(dataclasses.asdict(built)) == values, "as read back from run.json"
    assert flags.build(Outer, {"inner.on": False}) == Outer(inner=Inner(on=False)), "the rest are defaults"
    assert flags.build(schema.Run, flags.flatten(schema.Run(steps=7))) == schema.Run(steps=7)


def test_build_names_the_flag_that_a_class_refuses():
    with pytest.raises(UserError, match=r"^--inner.size=0 must be at least 1$"):
        flags.build(Outer, {"inner.size": 0})


def test_every_flag_has_a_default_of_its_type_and_a_line_of_help():
    for flag in [flag for known in resolve.FLAGS.values() for flag in known.items()]:
        assert type(flag[1].default) is flag[1].type, flag[0]
        assert flag[1].help, flag[0]
    assert FLAGS["rate"].help == "how fast: in steps"


@pytest.mark.parametrize("task", tasks.TASKS)
def test_help_lists_every_flag_of_the_task_on_two_screens(task):
    text = resolve.usage([f"--task={task}"])
    short = {flag: alias for alias, flag in resolve.ALIASES.items()}
    for name in resolve.FLAGS[task]:
        assert f"  --{short.get(name, name.replace('_', '-'))}=" in text
    assert len(text.splitlines()) <= 100


def test_layers_of_a_run(tmp_path):
    """Defaults, preset, flags: the later one wins."""

    def resolved(*argv):
        return resolve.resolve(argv, None, None)[0]

    assert (resolved().model.layers, resolved().model.width, resolved().preset) == (2, 128, "bert-tiny")
    mini = resolved("--preset=bert-mini")
    assert (mini.model.layers, mini.model.width, mini.model.heads, mini.model.sizes["F"]) == (4, 256, 4, 1024)
    assert resolved("--preset=bert-mini", "--model.layers=3").model.layers == 3


@pytest.mark.parametrize(
    ("flag", "was", "wanted"),
    [("model.param-dtype", "bfloat16", "float32"), ("optim.moment-dtype", "float32", "bfloat16")],
)
def test_a_run_goes_on_in_the_dtypes_that_it_began_with(flag, was, wanted):
    saved = {flag.replace("-", "_"): was}
    assert flags.flatten(resolve.resolve(["--resume"], lambda given: saved, None)[0])[flag.replace("-", "_")] == was
    with pytest.raises(UserError, match=f"--{flag}={wanted} differs from {was} in the run to resume"):
        resolve.resolve(["--resume", f"--{flag}={wanted}"], lambda given: saved, None)

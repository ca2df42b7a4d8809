"""Recipes of phases: what files say, which settings every step has, and sentences about those that do not fit."""

import numpy as np
import pytest

import tfm
from train import UserError
from train.settings.schema import Run
from train.tasks import phases, resolve
from train.training.rates import rates

RECIPE = """
[[phase]]
tokens = 96_000             # 60 steps of 20, 50 and 30 rows on average
batch.length = 48
batch.size = [20, 50, 30]
task.rate = 0.3
optim.rate = 1e-3
optim.schedule = "constant"
optim.warmup = 10

[[phase]]
steps = 15
batch.length = 64
data.mixture = "a b:1,c:2"

[[phase]]
steps = 25
task.rate = 0.05
model.mixer.pattern.name = "sliding"
model.mixer.pattern.window = 8
optim.schedule = "1-sqrt"
optim.final = 0.1
"""


def resolved(path, text, *argv) -> Run:
    """The run with a recipe of this text."""
    path.write_text(text)
    return resolve.resolve(["--task=mlm", "--model.vocab=300", f"--phases={path}", *argv], None, None)[0]


@pytest.fixture
def recipe(tmp_path):
    return tmp_path / "recipe.toml"


def test_what_every_step_has(recipe):
    run = resolved(recipe, RECIPE)
    parts = phases.step_ranges(run)
    assert run.steps == 100
    bounds = [(part.phase, part.first, part.stop, part.begins, part.ends) for part in parts]
    assert bounds == [
        (1, 0, 20, 0, 60),
        (1, 20, 40, 0, 60),
        (1, 40, 60, 0, 60),
        (2, 60, 75, 60, 75),
        (3, 75, 100, 75, 100),
    ]
    settings = [
        (part.run.batch.size, part.run.batch.length, part.run.task.rate, part.run.data.mixture) for part in parts
    ]
    assert settings[:3] == [(size, 48, 0.3, "size") for size in (20, 50, 30)]
    assert settings[3:] == [(30, 64, 0.3, "a b:1,c:2"), (30, 64, 0.05, "a b:1,c:2")], "what a phase leaves out stays"
    assert [part.run.model.mixer.pattern.name for part in parts] == ["full"] * 4 + ["sliding"]
    assert (run.batch.size, run.batch.length, run.task.rate) == (32, 32, 0.15), "the flags stay those of validation"
    assert [phases.step_range_of(run, step).phase for step in (0, 59, 60, 74, 75, 99, 100)] == [1, 1, 2, 2, 3, 3, 3]


def test_rates_of_phases(recipe):
    """The warm-up belongs to the first phase alone."""
    n = np.arange(100)
    rate = np.where(n < 10, (n + 1) / 10, np.where(n < 75, 1, 1 - 0.9 * np.sqrt(np.clip((n - 75) / 25, 0, 1))))
    np.testing.assert_allclose(rates(resolved(recipe, RECIPE))(n), 1e-3 * rate, rtol=1e-5)


def test_a_schedule_of_the_flags_goes_over_all_phases(recipe):
    run = resolved(
        recipe, "[[phase]]\nsteps = 4\ntask.rate = 0.3\n[[phase]]\ntask.rate = 0.1", "--steps=10", "--optim.warmup=0"
    )
    np.testing.assert_allclose(rates(run)(np.arange(10)), run.optim.rate * (1 - np.arange(10) / 10), rtol=1e-5)


@pytest.mark.parametrize("shape", ["linear", "cosine", "1-sqrt"])
def test_wsd_falls_in_its_shape(recipe, shape):
    flags = "optim.schedule = 'wsd'\noptim.cooldown = 20\noptim.warmup = 0\noptim.final = 0.2\n"
    run = resolved(recipe, f"[[phase]]\nsteps = 50\n{flags}optim.cooldown_shape = '{shape}'")
    done = np.clip((np.arange(50) - 30) / 20, 0, 1)
    left = {"linear": 1 - done, "cosine": (1 + np.cos(np.pi * done)) / 2, "1-sqrt": 1 - np.sqrt(done)}[shape]
    np.testing.assert_allclose(rates(run)(np.arange(50)), run.optim.rate * (0.2 + 0.8 * left), rtol=1e-5)


def test_the_last_phase_may_take_what_is_left(recipe):
    run = resolved(recipe, "[[phase]]\nsteps = 4\ntask.rate = 0.3\n[[phase]]\ntask.rate = 0.1", "--steps=10")
    assert [(part.first, part.stop) for part in phases.step_ranges(run)] == [(0, 4), (4, 10)]


def test_a_preset_may_be_told_to_have_none(recipe):
    run = resolved(recipe, RECIPE)
    assert resolve.resolve(["--task=mlm", "--phases=0"], None, None)[0].phases == ()
    assert phases.step_ranges(resolve.resolve(["--task=mlm"], None, None)[0])[0].stop == 2200
    assert len(run.phases) == 3


TWO = "[[phase]]\nsteps = 5\n[[phase]]\nsteps = 7\n"
SENTENCES = {
    "": "has no phases; it must have [[phase]] tables, each with steps, tokens or share and what it changes",
    "phase = 3": "has no phases; it must have [[phase]] tables",
    "[phase]\nsteps = 3": "has no phases; it must have [[phase]] tables",
    "seed = 3\n" + TWO: "has seed outside of a phase; it may have [[phase]] tables",
    "[[phase]]\nsteps = 5\nsteps = 6\n": "is no TOML: Cannot overwrite a value (at line 3, column 10)",
    "[[phase]]\nsteps = \n": "is no TOML: Invalid value (at line 2, column 9)",
    "[[phase]]\nsteps = 0": "phases.0.steps=0 must be at least 1",
    "[[phase]]\nsteps = 1.5": "phase 1: --steps=1.5 must be a whole number",
    "[[phase]]\nsteps = 5\ntokens = 9": "phases.0.steps=5 and tokens=9 say a length each; leave all but the first out",
    "[[phase]]\ntask.rate = 0.1\n[[phase]]\nsteps = 3": "phase 1: it has no length; say steps, tokens or share",
    TWO + "task.rat = 0.1": "phase 2: unknown flag --task.rat; did you mean task.rate?",
    TWO + "task.rate = 1.5": "phase 2: --task.rate=1.5 must be between 0 and 1; BERT uses 0.15",
    TWO + "task.rate = [0.1]": "phase 2: task.rate must be a number, a text, true or false",
    TWO + "seed = 1": "phase 2: seed is the same in all phases; a phase may change batch.length, batch.size",
    TWO + "optim.beta1 = 0.5": "phase 2: optim.beta1 is the same in all phases; a phase may change",
    TWO + "task.name = 'lm'": "phase 2: task.name is the same in all phases; a phase may change",
    TWO + "batch.length = 1024": "phase 2: --batch.length=1024 is more than model.length=512; add --model.length=1024",
    TWO + "batch.size = [8, 'x']": "phase 2: --batch.size=x must be a whole number",
    "[[phase]]\nsteps = 2_000_000_000\n" + TWO + "[[phase]]\nsteps = 2_000_000_000\n": "must be at most 2147483647",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences(recipe, text):
    with pytest.raises(UserError) as error:
        resolved(recipe, text)
    assert SENTENCES[text] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (11, "recipe.toml: phase 2, steps 6 to 12, does not fit --steps=11; shorten the phases, or leave --steps out"),
        (5, "recipe.toml: phase 2, steps 6 to 12, does not fit --steps=5"),
        (20, "recipe.toml: the phases end at step 12, before --steps=20; leave out --steps"),
    ],
)
def test_other_steps_than_those_of_the_run(recipe, steps, sentence):
    with pytest.raises(UserError) as error:
        resolved(recipe, TWO, f"--steps={steps}")
    assert sentence in str(error.value)


def test_the_best_weights_have_a_single_model(recipe):
    window = TWO + "model.mixer.pattern.name = 'sliding'\nmodel.mixer.pattern.window = 8\n"
    with pytest.raises(
        UserError, match=r"--eval.patience=3 keeps the best weights of any phase, and the model of these"
    ):
        resolved(recipe, window, "--eval.patience=3")
    assert resolved(recipe, TWO, "--eval.patience=3").eval.patience == 3


def test_a_file_that_is_not_there():
    with pytest.raises(UserError, match="--phases=none.toml cannot be read: No such file or directory; name a file of"):
        resolve.resolve(["--phases=none.toml"], None, None)


@pytest.mark.parametrize(
    ("preset", "tokens", "parameters"),
    [("modernbert-base", [50, 1669, 250, 50], 149), ("modernbert-large", [10, 890, 800, 250, 50], 395)],
)
def test_modernbert_as_published(preset, tokens, parameters):
    """The tokens of its phases, in billions; its parameters, in millions, with the published vocabulary."""
    run = resolve.resolve(["--task=mlm", f"--preset={preset}", "--model.vocab=50368"], None, None)[0]
    parts = phases.step_ranges(run)
    read = [
        sum(
            (part.stop - part.first) * part.run.batch.size * part.run.batch.length
            for part in parts
            if part.phase == phase
        )
        for phase in range(1, len(tokens) + 1)
    ]
    np.testing.assert_allclose(read, np.multiply(tokens, 1e9), rtol=1e-3)
    assert {part.run.task.rate for part in parts} == {0.3}
    assert run.task.rate == 0.15
    assert [(part.run.batch.length, part.run.model.position.base) for part in parts[-2:]] == [(8192, 160_000.0)] * 2
    assert {kind.position.base for part in parts for kind in part.run.model.period[:2]} == {10_000.0}
    assert tfm.count_params(tfm.masked_lm_specs(run.model)) // 10**6 == parameters

"""Presets that have the recipe of their paper: its size, its tokens, its steps."""

import math

import pytest

import tfm
from train.tasks import phases, presets, resolve
from train.training.rates import rates


def recipe(*argv):
    """The run of flags, without data."""
    return resolve.resolve(argv, None, None)[0]


@pytest.mark.parametrize(
    ("preset", "published", "steps"), [("transformer-base", 65e6, 100_000), ("transformer-big", 213e6, 300_000)]
)
def test_translation_as_published(preset, published, steps):
    """Vaswani et al. 2017, table 3 (the size without its rounding is 63 and 214 million) and sections 5.1, 5.3: the
    rate of step n is width^-0.5 min(n^-0.5, n 4000^-1.5), to the digits of the preset."""
    run = recipe("--task=translate", f"--preset={preset}")
    assert (run.steps, run.batch.tokens, run.tokenizer.vocab, run.task.smoothing) == (steps, 25_000, 37_000, 0.1)
    size = tfm.count_params(tfm.seq2seq_specs(presets.model(preset, vocab=37_000)))
    assert size == pytest.approx(published, rel=0.03)
    rate = rates(run)
    for step in (400, 4000, 40_000):
        expected = run.model.width**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert float(rate(step)) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("preset", ["bert-base", "bert-large"])
def test_bert_as_published(preset):
    """Devlin et al. 2018, appendix A.2: 90 % of a million steps with 128 tokens a row, the rest with 512; batches of
    256 rows; a rate that grows for 10,000 steps to 1e-4 and falls to 0."""
    run = recipe("--task=mlm", f"--preset={preset}")
    parts = [(part.stop - part.first, part.run.batch.size, part.run.batch.length) for part in phases.step_ranges(run)]
    assert parts == [(900_000, 256, 128), (100_000, 256, 512)]
    assert (run.steps, run.tokenizer.vocab, run.optim.decay, run.optim.beta2) == (1_000_000, 30_522, 0.01, 0.999)
    rate = rates(run)
    assert [float(rate(step)) for step in (5000, 10_000, 505_000)] == pytest.approx([5e-5, 1e-4, 5e-5], rel=1e-3)


def test_bert_in_fewer_steps():
    """Phases keep their shares, and flags that stand before them hold in the first."""
    run = recipe("--task=mlm", "--preset=bert-base", "--steps=20", "--batch.length=64", "--batch.size=8")
    parts = [(part.stop - part.first, part.run.batch.size, part.run.batch.length) for part in phases.step_ranges(run)]
    assert parts == [(18, 8, 64), (2, 8, 512)]
    assert recipe("--task=mlm", "--preset=bert-base", "--phases=0").phases == ()


@pytest.mark.parametrize(
    ("preset", "tokens", "step_tokens"),
    [
        ("gpt3-175b", 300e9, 3.2e6),
        ("gopher-280b", 300e9, 6e6),
        ("chinchilla-70b", 1.4e12, 3e6),
        ("palm-540b", 780e9, 4e6),
    ],
)
def test_the_largest_models_read_as_many_tokens(preset, tokens, step_tokens):
    """The tokens of a run and of a step, as in the papers that `train/settings/recipes/papers.py` names."""
    run = recipe("--task=lm", f"--preset={preset}")
    a_step = run.batch.size * run.batch.length
    assert a_step == pytest.approx(step_tokens, rel=0.06)
    assert a_step * run.steps == pytest.approx(tokens, rel=1e-4)


def test_gpt3_alternates():
    """Brown et al. 2020, section 2.1 and appendix B: dense and banded layers in turns; 375 million tokens of warm-up;
    a rate that falls to a tenth."""
    run = recipe("--task=lm", "--preset=gpt3-175b")
    patterns = [type(kind.mixer.pattern).__name__ for kind in run.model.layer_plan.period]
    assert (patterns, run.model.layers % 2) == (["Full", "Sliding"], 0)
    assert run.optim.warmup * run.batch.size * run.batch.length == pytest.approx(375e6, rel=0.01)
    rate = rates(run)
    assert float(rate(run.steps)) == pytest.approx(6e-6, rel=1e-3)
    assert math.isclose(max(float(rate(step)) for step in (1, 119, 120, 1000)), 6e-5, rel_tol=1e-3)

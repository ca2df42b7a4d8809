"""The bench command, and the number of devices that it and training use on a CPU."""

import json

import pytest

from train import bench
from train.devices import devices_for

TINY = "--layers=2 --heads=2 --width=16 --vocab=64 --batch=8 --length=12 --steps=2 --warmup=1".split()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "gpt", "seq2seq"])
def test_one_line_with_the_keys_of_the_peer(model, capsys):
    assert bench.main([f"--model={model}", *TINY]) == 0
    result = json.loads(capsys.readouterr().out)
    keys = "peer model device dtype params ms_median ms_min tokens_per_s peak_bytes loss".split()
    assert set(keys) <= set(result)
    attention, feed_forward, norm = 4 * (16 * 16 + 16), (16 * 64 + 64) + (64 * 16 + 16), 2 * 16
    stack = 12 * 16 + 2 * (attention + feed_forward + 2 * norm) + norm
    assert result["params"] == 64 * 16 + (2 * stack + 2 * (attention + norm) if model == "seq2seq" else stack)
    assert result["tokens_per_s"] == pytest.approx(8 * 12 / result["ms_median"] * 1000, rel=0.01)
    assert result["loss"] == pytest.approx(4.16, abs=0.2), "random tokens: about log(64)"


@pytest.mark.slow
def test_decoding_with_and_without_a_cache(capsys):
    assert bench.main(["--model=gpt", *TINY, "--length=24", "--decode=16"]) == 0
    result = json.loads(capsys.readouterr().out)
    for how in ("cached", "read_again"):
        assert min(result[f"ms_{how}"], result[f"ms_{how}_first"], result[f"ms_{how}_last"]) > 0
        assert result[f"tokens_per_s_{how}"] == pytest.approx(8e3 / result[f"ms_{how}"], rel=0.01)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--decode=20"], "--decode=20 needs --model=gpt, and must be at least 10 and at most --length less 8"),
        (["--model=gpt", "--decode=57"], "--decode=57 needs --model=gpt, and must be at least 10 and at most --length less 8"),
        (["--model=gtp"], "--model=gtp must be bert, gpt or seq2seq"),
        (["--heads=5"], "--heads=5 must divide width=128; try heads=4"),
        (["--predict=0"], "--predict=0.0 must be above 0 and at most 1"),
        (["--steps=0"], "batch, length, steps and warmup must be at least 1"),
    ],
)
def test_bad_input(argv, message, capsys):
    assert bench.main(argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cores", "rows", "sizes", "devices"),
    [
        (2, 32, (-1, 1, 1), 2),
        (1, 32, (-1, 1, 1), 1),
        (16, 32, (-1, 1, 1), 8),  # 4 rows each
        (2, 9, (-1, 1, 1), 1),  # 2 does not divide 9
        (2, 32, (1, 1, 1), 1),
        (4, 32, (1, 2, 1), 2),
        (2, 32, (2, 2, 2), 2),  # too many: the mesh will say so
    ],
)
def test_devices_on_a_cpu(cores, rows, sizes, devices):
    assert devices_for(cores, rows, *sizes) == devices

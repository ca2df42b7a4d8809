"""Presets: what each of them makes."""

import jax
import jax.numpy as jnp
import pytest

import tfm
from tfm.catalogue.options.patterns import Sliding
from tfm.config.mixers import Softmax
from tfm.config.model import Config, Layer
from tfm.config.patterns import Full
from tfm.mixers.softmax import pattern_mask
from train.settings import flags
from train.tasks import presets
from train.tasks.table import AnyRun


@pytest.mark.parametrize(
    ("task", "preset"), [(task, name) for task, names in presets.PRESETS.items() for name in names]
)
def test_every_preset_is_a_run(task, preset):
    assert flags.build(AnyRun, {"task": task}, presets.PRESETS[task][preset]).task.name == task


def test_the_model_of_a_preset_with_other_fields():
    assert presets.model("gpt2", **{"position": "rotary", "position.base": 5.0}).position.base == 5.0
    assert presets.model("bert-tiny", layers=3) == presets.model("bert-tiny", layers=3)
    with pytest.raises(ValueError, match=r"preset gpt3-tyni is unknown; did you mean gpt3-tiny\?"):
        presets.model("gpt3-tyni")


def test_gpt3_alternates_dense_and_banded_layers():
    config = presets.model("gpt3-tiny")
    patterns = [kind.mixer.pattern for kind in config.layer_plan.period] * config.layer_plan.times
    assert patterns == [Full(), Sliding(window=16)] * 2
    assert config.period == (Layer(), Layer(mixer=Softmax(pattern=Sliding(window=16))))
    dense = presets.model("gpt-tiny")
    assert isinstance(dense, Config)
    assert presets.model("gpt3-tiny", period=1) == dense, "beside that, it is gpt-tiny"


# Of the classes of transformers 5.24 with configurations and vocabularies of the published models. BART
# has no rows for two positions before the first one in each stack here, and a bias of its output, a constant there.
SIZES = {
    ("t5-small", 32_128): 60_506_624,
    ("t5-base", 32_128): 222_903_552,
    ("bart-base", 50_265): 139_420_416 - 2 * 2 * 768 + 50_265,
}
DISCRIMINATORS = {
    ("electra-small", 30_522): (13_483_008, 65_792 + 257),
    ("electra-base", 30_522): (108_891_648, 590_592 + 769),
    ("deberta-v3-small", 128_100): (141_304_320, 590_592 + 769),
}


@pytest.mark.parametrize(("preset", "vocab"), SIZES)
def test_encoder_decoders_have_the_published_sizes(preset, vocab):
    config = flags.build(AnyRun, {"task": "denoise"}, presets.PRESETS["denoise"][preset] | {"model.vocab": vocab}).model
    assert tfm.count_params(tfm.seq2seq_specs(config)) == SIZES[preset, vocab]


@pytest.mark.parametrize(("preset", "vocab"), DISCRIMINATORS)
def test_discriminators_have_the_published_sizes(preset, vocab):
    """Of ElectraModel, DebertaV2Model and the head that ElectraForPreTraining adds."""
    settings = presets.PRESETS["rtd"][preset] | {"model.vocab": vocab, "model.classes": 1}
    run = flags.build(AnyRun, {"task": "rtd"}, settings)
    specs = tfm.replaced_detector_specs(run.model, run.task.generator(run), run.task.embeddings == "offset")
    head = tfm.count_params(specs.dense) + tfm.count_params(specs.output)
    assert (tfm.count_params(specs.encoder), head) == DISCRIMINATORS[preset, vocab]


def test_the_generator_of_electra_small_has_the_published_size():
    """ElectraForMaskedLM without the tables and the norm that both models read."""
    run = flags.build(AnyRun, {"task": "rtd"}, presets.PRESETS["rtd"]["electra-small"] | {"model.vocab": 30_522})
    specs = tfm.replaced_detector_specs(run.model, run.task.generator(run))
    assert tfm.count_params(specs.generator) == 4_620_026 - (30_522 + 512 + 2 + 2) * 128


@pytest.mark.parametrize("platform", ["cpu", "gpu 9.0", "tpu"])
@pytest.mark.parametrize("preset", ["longformer-base", "bigbird-base"])
def test_long_rows_are_not_scored_densely_when_they_train(preset, platform):
    """With dropout of attention weights, in rows of one text each and of several. Without it a GPU has cuDNN, which
    keeps no scores."""
    settings = presets.PRESETS["mlm"][preset]
    config = flags.build(AnyRun, {"task": "mlm"}, settings).model
    size, length = settings["batch.size"], settings["batch.length"]
    assert config.attn_rate == 0.1
    assert config.length == length == 4096
    q = jax.ShapeDtypeStruct((size, length, config.heads, 1, 64), "bfloat16")
    k = jax.ShapeDtypeStruct((size, length, config.heads, 64), "bfloat16")
    valid = tfm.padding(jnp.ones((size, length), bool))
    for restarts in (False, True):
        context = tfm.AttentionContext(jnp.arange(length)[None], causal=False, restarts=restarts)
        mask = pattern_mask(config.mixer.pattern, config, context) & valid
        assert tfm.choose_kernel(q, k, mask, rate=config.attn_rate, platform=platform).name == "chunked"
    fused = "cudnn" if platform == "gpu 9.0" else "chunked"
    assert tfm.choose_kernel(q, k, mask, rate=0.0, platform=platform).name == fused

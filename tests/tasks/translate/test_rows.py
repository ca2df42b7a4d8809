"""Pairs in rows: the loss of every pair is the same packed and alone, and batch n is a pure function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from train.data.tokens import TokenizedTexts
from train.settings.schema import Batch
from train.tasks.translate.rows import RowOptions, TranslationPairs
from train.tasks.translate.task import TRANSLATE
from train.text.tokenize import SequenceTemplate

RNG = np.random.default_rng(0)
COUNT, VOCAB = 60, 40
BATCH = Batch(tokens=128, length=16, multiple=4)
TEMPLATE = SequenceTemplate(prefix=(), suffix=(2,), decoder_start=1, pad=0)
CONFIG = tfm.override(
    tfm.Config(layers=2, heads=2, width=16, ffn=24, vocab=VOCAB, pad_vocab_to=8, length=16, init_std=0.3, dropout=0.0),
    {"input.token_types": None, "position": "sinusoidal"},
)


def side():
    sizes = RNG.integers(1, 15, COUNT)
    return TokenizedTexts(RNG.integers(3, VOCAB, sizes.sum()), np.cumsum([0, *sizes]))


SIDES = side(), side()


def rows_of(pack, **options):
    names = [(str(n), str(n)) for n in range(COUNT)]
    return TranslationPairs(names, SIDES, BATCH, TEMPLATE, RowOptions(0.1, 3, pack, **options))


def losses_by_pair(rows, config, params):
    """The loss of every pair: the sum of the derivatives of the loss for the weights of its targets."""

    @jax.jit
    def of_targets(batch):
        return jax.grad(lambda weights: TRANSLATE.loss(params, config, batch | {"weights": weights}, None)["loss"])(
            batch["weights"]
        )

    losses = {}
    for chosen in rows.buckets.epoch():
        batch = rows.batch(chosen)
        of_target = np.asarray(of_targets({name: jnp.asarray(field) for name, field in batch.items()}))
        for b, row in enumerate(chosen):
            for k, (name, _) in enumerate(rows.pairs_of(row)):
                losses[int(name)] = of_target[b][batch["target_segments"][b] == 1 + k].sum()
    return np.array([losses[n] for n in range(COUNT)])


@pytest.mark.slow
@pytest.mark.parametrize("position", ["sinusoidal", "t5"])
def test_a_packed_pair_has_the_loss_that_it_has_alone(position):
    config = tfm.override(CONFIG, {"position": position})
    params = random_params(tfm.seq2seq_specs(config))
    packed, alone = rows_of(True), rows_of(False)
    assert packed.plan.packs
    assert not alone.plan.packs
    expected = losses_by_pair(alone, config, params)
    np.testing.assert_allclose(losses_by_pair(packed, config, params), expected, rtol=1e-5)
    assert expected.std() > 0.1


@pytest.mark.slow
def test_packed_rows_cannot_write():
    params = random_params(tfm.seq2seq_specs(CONFIG))
    ids = jnp.ones((2, 4), jnp.int32)
    model = tfm.encode_packed(params, CONFIG, ids, ids, (ids, ids))
    with pytest.raises(ValueError, match="hold several texts"):
        tfm.generate(model, CONFIG, [[1]] * 2, 3)
    with pytest.raises(ValueError, match="cannot keep the texts"):
        tfm.encode_packed(params, tfm.override(CONFIG, {"mixer": "fnet"}), ids, ids, (ids, ids))

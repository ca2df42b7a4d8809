"""The encoder-decoder: what it sees, what it does not, and text from it."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(
        layers=2,
        heads=4,
        width=16,
        ffn=24,
        vocab=40,
        pad_vocab_to=8,
        length=32,
        activation="relu",
        init_std=0.3,
        dropout=0.0,
    ),
    {"input.token_types": None, "input.norm": False, "input.scale": True, "position": "sinusoidal"},
)
RNG = np.random.default_rng(0)
SOURCE, TARGET = jax.device_put(RNG.integers(0, 40, (3, 9))), jax.device_put(RNG.integers(0, 40, (3, 7)))
VALID = jnp.arange(9)[None] < jnp.array([[9], [5], [7]])
VARIANTS = {
    "post": {},
    "pre": {"residual": "pre"},
    "own vocabularies": {"encoder.vocab": 48, "tie_embeddings": False, "scan": False},
    "rotary": {"position": "rotary", "kv_heads": 2, "residual": "pre", "norm": "rms"},
    "additive": {"mixer.score": "additive", "kv_heads": 2},
    "kinds of layers": {
        "layers": 4,
        "residual": "pre",
        "prefix": 1,
        "prefix.0.residual": "parallel",
        "period": 2,
        "period.0.mixer": "softmax",
        "period.0.mixer.pattern": "sliding",
        "period.0.mixer.pattern.window": 3,
    },
    "own kinds of layers in the encoder": {
        "position": "learned",
        "length": 8,
        "encoder.length": 9,
        "encoder.layers": 3,
        "encoder.period": 2,
        "encoder.period.0.mixer": "linear",
        "encoder.period.1.residual": "deepnorm",
    },
    "recurrent": {"mixer": "gru", "mixer.score": "additive", "position": "none"},
}


def model_of(name):
    config = tfm.override(CONFIG, VARIANTS[name])
    return config, random_params(tfm.seq2seq_specs(config))


logits = jax.jit(tfm.seq2seq, static_argnums=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kinds of layers", *list(VARIANTS)[:5]])
def test_padding_changes_no_logit(name):
    config, params = model_of(name)
    together = logits(params, config, SOURCE, TARGET, VALID)
    for row, length in enumerate((9, 5, 7)):
        alone = logits(params, config, SOURCE[row : row + 1, :length], TARGET[row : row + 1, :5])
        np.testing.assert_allclose(together[row, :5], alone[0], rtol=1e-4, atol=1e-5)
    assert not np.allclose(logits(params, config, SOURCE, TARGET)[1], together[1], atol=1e-3)


def test_an_encoder_with_its_own_kinds_of_layers():
    config = tfm.override(CONFIG, VARIANTS["own kinds of layers in the encoder"])
    reader = tfm.encoder_config(config)
    assert [kind.mixer.name for kind in reader.layer_plan.period] == ["linear", "softmax"]
    assert [kind.mixer.name for kind in config.kinds] == ["softmax"]
    assert (reader.layer_plan.times, len(reader.layer_plan.tail), reader.length, config.length) == (1, 1, 9, 8)
    assert reader.period[1].residual.alpha == pytest.approx(0.81 * (3**4 * 2) ** (1 / 16))
    specs = tfm.seq2seq_specs(config)
    assert [model.embed.positions.shape[0] for model in (specs.encoder, specs.decoder)] == [9, 8]
    for length, limit, side in ((10, 9, SOURCE), (9, 8, TARGET)):
        tokens = {"source": SOURCE[:, :4], "target": TARGET[:, :4]}
        tokens["source" if side is SOURCE else "target"] = jnp.zeros((3, length), jnp.int32)
        with pytest.raises(ValueError, match=f"{length} tokens are more than the {limit} positions"):
            jax.eval_shape(lambda params, x: tfm.seq2seq(params, config, **x), tfm.abstract(specs), tokens)


@pytest.mark.slow
def test_a_target_sees_itself_what_is_before_it_and_the_whole_source():
    config, params = model_of("post")
    weights = RNG.normal(size=16).astype(np.float32)

    @jax.jit
    def influence(params):
        model = tfm.encode_source(params, config, SOURCE[:1], VALID[1:2])
        x = tfm.embed(model.decoder.embed, config, TARGET[:1])
        states = tfm.encoder(params.encoder, config, SOURCE[:1], tfm.padding(VALID[1:2]))

        def project(x, states):
            memory = tfm.cross_keys_values(model.decoder, config, states, VALID[1:2])
            context = tfm.AttentionContext(tfm.default_positions(TARGET[:1]), causal=True)
            return tfm.stack(model.decoder, config, x, context, memory=memory)[0][0] @ weights

        return jax.jacrev(project, argnums=(0, 1))(x, states)

    to_target, to_source = influence(params)
    np.testing.assert_array_equal(np.abs(to_target[:, 0]).max(-1) > 0, np.tri(7, dtype=bool))
    np.testing.assert_array_equal(np.abs(to_source[:, 0]).max(-1) > 0, np.broadcast_to(VALID[1], (7, 9)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["post", *(pytest.param(name, marks=pytest.mark.slow) for name in list(VARIANTS)[1:])])
def test_text_from_a_source(name):
    """Greedy text is the argmax of all logits so far; a beam of one finds the same; no sentence disturbs another."""
    config, params = model_of(name)
    model = tfm.encode_source(params, config, SOURCE, VALID)
    generated = tfm.generate(model, config, [[1]] * 3, 6)
    target = jnp.array([[1, *tokens] for tokens in generated.tokens])
    expected = logits(params, config, SOURCE, target, VALID)[:, :-1]
    np.testing.assert_array_equal(expected.argmax(-1), target[:, 1:])
    logprobs = jnp.take_along_axis(jax.nn.log_softmax(expected), target[:, 1:, None], axis=-1)[..., 0]
    np.testing.assert_allclose(generated.logprobs, logprobs, rtol=1e-4, atol=1e-4)
    beams = tfm.beam_search(model, config, [[1]] * 3, 6, tfm.Beam(1))
    assert [hypotheses[0].tokens for hypotheses in beams] == generated.tokens
    wide = tfm.beam_search(model, config, [[1]] * 3, 6, tfm.Beam(3))
    for row in range(3):
        alone = tfm.encode_source(params, config, SOURCE[row : row + 1], VALID[row : row + 1])
        assert tfm.beam_search(alone, config, [[1]], 6, tfm.Beam(3))[0][0].tokens == wide[row][0].tokens


def test_counts_of_the_paper():
    """Vaswani et al. 2017, table 3: 65 and 213 million parameters, at a shared vocabulary of 37,000."""
    for width, ffn, heads, published in ((512, 2048, 8, 65e6), (1024, 4096, 16, 213e6)):
        config = dataclasses.replace(CONFIG, layers=6, width=width, ffn=ffn, heads=heads, vocab=37_000)
        attention, feed_forward, norm = 4 * (width**2 + width), 2 * width * ffn + width + ffn, 2 * width
        layers = 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
        count = tfm.count_params(tfm.seq2seq_specs(config))
        assert count == 37_000 * width + layers
        assert math.isclose(count, published, rel_tol=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pre", "additive", "recurrent"])
def test_the_loss_reaches_every_parameter(name):
    config, params = model_of(name)
    gradient = jax.jit(jax.grad(lambda params: (logits(params, config, SOURCE, TARGET, VALID) ** 2).mean()))(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.abs(leaf).max() > 0, jax.tree_util.keystr(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["additive", "recurrent"])
def test_cached_targets_compare_the_source_by_additive_scores(name):
    """A prompt, several tokens, one token, against a pass over all of them; recurrent: Bahdanau et al. 2015."""
    config, params = model_of(name)
    model = tfm.encode_source(params, config, SOURCE, VALID)

    @jax.jit
    def read(model, target):
        states, cache = tfm.prefill(model.decoder, config, target[:, :3], jnp.zeros(3, jnp.int32), 7, model.memory)
        parts = [states]
        for part in (target[:, 3:6], target[:, 6:]):
            states, cache = tfm.extend(model.decoder, config, part, cache)
            parts.append(states)
        return jnp.concatenate(parts, axis=1)

    full = tfm.decoder(model.decoder, config, TARGET, memory=model.memory)
    np.testing.assert_allclose(read(model, TARGET), full, rtol=1e-4, atol=1e-5)
    silent = jax.tree_util.tree_map_with_path(
        lambda path, leaf: 0 * leaf if jax.tree_util.keystr(path).endswith(".cross.score") else leaf, model
    )
    means = tfm.decoder(silent.decoder, config, TARGET, memory=model.memory)
    assert not np.allclose(means, full, atol=1e-2), "the vector of cross-attention has influence"


@pytest.mark.slow
def test_the_alignment_is_how_much_each_place_is_seen():
    """Of a model with one layer and head: its own queries and keys, in numpy. What a cache adds up is its sum."""
    config = dataclasses.replace(CONFIG, layers=1, heads=1)
    params = random_params(tfm.seq2seq_specs(config), 1)
    model = tfm.encode_source(params, config, SOURCE, VALID)
    weights = jax.jit(tfm.alignment, static_argnums=1)(model, config, TARGET)
    assert weights.shape == (1, 3, 1, 7, 9)
    block = jax.tree.map(lambda leaf: leaf[0], model.decoder.layers.period[0])
    x = tfm.embed(model.decoder.embed, config, TARGET)
    attended = tfm.multi_head_attention(block.mixer, config, x, tfm.causal())
    x = tfm.layer_norm(block.residual.mixer, x + attended, config.norm_eps)
    q = np.einsum("BTD,DH->BTH", x, block.cross.query.kernel[:, 0, 0]) + np.asarray(block.cross.query.bias[0, 0])
    scores = np.einsum("BTH,BSH->BTS", q, model.memory.layers.period[0][0][0, :, 0]) / 4
    powers = np.where(VALID[:, None], np.exp(scores), 0)
    np.testing.assert_allclose(weights[0, :, 0], powers / powers.sum(-1, keepdims=True), rtol=1e-4, atol=1e-5)

    @jax.jit
    def read(target, memory):
        _, cache = tfm.prefill(model.decoder, config, target[:, :3], jnp.zeros(3, jnp.int32), 7, memory)
        return tfm.extend(model.decoder, config, target[:, 3:], cache)[1]

    cache = read(TARGET, dataclasses.replace(model.memory, coverage=jnp.zeros((3, 9))))
    np.testing.assert_allclose(cache.memory.coverage, weights[0, :, 0].sum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_coverage_pays_for_what_was_not_looked_at():
    """A beam that follows every text of three tokens, against the scores of all of them (Wu et al. 2016, eq. 14)."""
    config = tfm.override(CONFIG, {"vocab": 4, "pad_vocab_to": 4, "encoder.vocab": 40, "tie_embeddings": False})
    params = random_params(tfm.seq2seq_specs(config), 2)
    model = tfm.encode_source(params, config, SOURCE[:1, :5])
    strategy = tfm.Beam(64, length_penalty=0.7, coverage=0.4)
    (hypotheses,) = tfm.beam_search(model, config, [[1]], 3, strategy, num_return_sequences=64)
    texts = np.array(list(np.ndindex(4, 4, 4)))
    many = tfm.encode_source(params, config, jnp.repeat(SOURCE[:1, :5], 64, 0))
    target = jnp.asarray(np.concatenate([np.ones((64, 1), int), texts[:, :2]], axis=1))
    logprobs = np.asarray(jax.nn.log_softmax(logits(params, config, jnp.repeat(SOURCE[:1, :5], 64, 0), target)))
    logprobs = np.take_along_axis(logprobs, texts[..., None], -1).sum((1, 2))
    seen = np.asarray(tfm.alignment(many, config, target)).mean((0, 2)).sum(1)
    scores = logprobs / ((5 + 3) / 6) ** 0.7 + 0.4 * np.log(np.minimum(seen, 1)).sum(-1)
    order = np.argsort(-scores)
    assert len(hypotheses) == 64
    assert [hypothesis.tokens for hypothesis in hypotheses[:5]] == texts[order[:5]].tolist()
    np.testing.assert_allclose([hypothesis.score for hypothesis in hypotheses], scores[order], rtol=1e-4)
    assert order.tolist() != np.argsort(-logprobs).tolist(), "or the test would not see the penalty"
    with pytest.raises(ValueError, match="coverage=-1"):
        tfm.beam_search(model, config, [[1]], 3, tfm.Beam(2, coverage=-1))


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [None, 0.4])
def test_beams_on_a_mesh_share_the_memory_of_their_text(coverage):
    """Eight devices as one; the beams of a text lie where its memory lies."""
    config = tfm.override(CONFIG, {"heads": 4})
    params, strategy = random_params(tfm.seq2seq_specs(config), 3), tfm.Beam(3, coverage=coverage)
    source = jax.device_put(np.random.default_rng(1).integers(0, 40, (8, 5)))

    def search(params, source):
        model = jax.jit(tfm.encode_source, static_argnums=1)(params, config, source)
        return tfm.beam_search(model, config, [[1]] * 8, 6, strategy, [2])

    mesh = tfm.make_mesh(data=2, fsdp=2, tensor=2)
    sharded = jax.device_put(params, tfm.shardings(tfm.seq2seq_specs(config), mesh))
    with jax.set_mesh(mesh):
        results = search(sharded, jax.device_put(source, jax.NamedSharding(mesh, jax.P(("data", "fsdp")))))
    for row, expected in zip(results, search(params, source), strict=True):
        assert row[0].tokens == expected[0].tokens
        assert row[0].score == pytest.approx(expected[0].score, rel=1e-4)

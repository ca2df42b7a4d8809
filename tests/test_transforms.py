"""Every public function on arrays gives the same values under jit, vmap, pmap, grad and on an Explicit mesh."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from layers.blocks import context_of, run_block

import tfm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.Config(layers=2, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, pad_vocab_to=64, length=8, dropout=0.1)
SIZES = CONFIG.sizes | dict(B=4, T=6, S=6, M=2, N=4)


class Case(NamedTuple):
    """f(params, *arrays); arrays as "axes" for floats, "axes:n" for integers below n, "key" for a random key."""

    f: Callable
    specs: object
    arrays: tuple[str, ...]


def weight_of(axes, **sizes):
    return tfm.weight_spec(CONFIG, axes, **sizes)


MODEL, CLASSIFIER, LM = tfm.masked_lm_specs(CONFIG), tfm.classifier_specs(CONFIG), tfm.causal_lm_specs(CONFIG)
ROTARY = tfm.override(CONFIG, {"position": "rotary"})
ROTARY_LM = tfm.causal_lm_specs(ROTARY)
BY_MEAN = dataclasses.replace(CONFIG, head=tfm.Head(pool="mean"))
CHOOSER = dataclasses.replace(CONFIG, classes=1)
ATTENTION, FFN, BLOCK = (
    tfm.attention_specs(CONFIG),
    tfm.feed_forward_specs(CONFIG),
    tfm.block_specs(CONFIG.kinds[0], CONFIG),
)
QKV = ("BTKGH", "BSKH", "BSKH")
SEQ2SEQ, OWN_TABLES = tfm.seq2seq_specs(CONFIG), tfm.seq2seq_specs(tfm.override(CONFIG, {"encoder.vocab": 64}))


def extended(model, tokens, more, starts):
    _, cache = tfm.prefill(model.decoder, ROTARY, tokens, starts, 8)
    return tfm.extend(model.decoder, ROTARY, more, cache)[0]


def recorded(params, x):
    """The attention weights of all layers."""
    outputs = tfm.stack(params.decoder, CONFIG, x, context_of(x, causal=True, record=True))[1]
    return jnp.stack([output.weights for output in tfm.by_layer(CONFIG, outputs)])


def learned(table, positions):
    x = jnp.zeros((*positions.shape, CONFIG.width))
    return tfm.position_of(CONFIG.position).embed(tfm.LayerCall(CONFIG.position, CONFIG, table), x, positions)


def rotary(positions):
    return tfm.rotary_angles(ROTARY.position, 4, positions)


CASES = {
    "lookup": Case(tfm.lookup, weight_of("VD"), ("BT:64",)),
    "einsum": Case(lambda p, x: tfm.einsum("BTD,DKGH->BTKGH", x, p), weight_of("DKGH"), ("BTD",)),
    "linear": Case(lambda p, x: tfm.linear(p, "BTF,FD->BTD", x), FFN.down, ("BTF",)),
    "layer_norm": Case(lambda p, x: tfm.layer_norm(p, x, 1e-6), BLOCK.residual.mixer, ("BTD",)),
    "rms_norm": Case(lambda p, x: tfm.rms_norm(tfm.Norm(p, None), x, 1e-6), tfm.scale_spec(CONFIG, "D"), ("BTD",)),
    "dropout": Case(lambda p, x, key: tfm.dropout(x, 0.5, key), None, ("BTF", "key")),
    "sinusoidal": Case(lambda p, positions: tfm.sinusoidal(positions, 16), None, ("BT:100",)),
    "learned": Case(learned, weight_of("PD"), ("BT:8",)),
    "rotary": Case(lambda p, positions: rotary(positions), None, ("BT:100",)),
    "rotate": Case(lambda p, x, positions: tfm.rotate(x, rotary(positions)), None, ("BTKGH", "BT:100")),
    "alibi": Case(lambda p: tfm.alibi(4, 2).dense(6), None, ()),
    "t5": Case(lambda p: tfm.T5Bias(p, True, 6).dense(6), weight_of("rKG", r=8), ()),
    "causal": Case(lambda p: tfm.causal().dense(6), None, ()),
    "window": Case(lambda p: tfm.window(2, 1).dense(6), None, ()),
    "local_blocks": Case(lambda p: tfm.local_blocks(4, 1).dense(6), None, ()),
    "strided": Case(lambda p: tfm.strided(2).dense(6), None, ()),
    "padding": Case(lambda p, valid: tfm.padding(valid).dense(6), None, ("BS:2",)),
    "segments": Case(lambda p, queries, keys: tfm.segments(queries, keys).dense(6), None, ("BT:3", "BS:3")),
    "prefix": Case(lambda p, n: tfm.prefix(n).dense(6), None, ("B:6",)),
    "left_padding": Case(lambda p, n: tfm.left_padding(n).dense(6), None, ("B:6",)),
    "combined": Case(lambda p, n, s: (tfm.causal() | tfm.prefix(n) & tfm.segments(s)).dense(6), None, ("B:6", "BT:3")),
    "attend": Case(
        lambda p, q, k, v, s, key: tfm.attend(q, k, v, tfm.segments(s), tfm.alibi(4, 2), 0.1, key),
        None,
        (*QKV, "BT:2", "key"),
    ),
    "chunked": Case(
        lambda p, q, k, v, s: tfm.chunked(q, k, v, (tfm.causal() & tfm.segments(s)) | tfm.window(1, 1)),
        None,
        (*QKV, "BT:2"),
    ),
    "attend_plain_heads": Case(lambda p, q, k, v: tfm.attend(q, k, v, tfm.causal()), None, ("BTNH", "BSNH", "BSNH")),
    "attention_weights": Case(
        lambda p, q, k, s: tfm.attention_weights(q, k, tfm.segments(s)), None, ("BTKGH", "BSKH", "BT:2")
    ),
    "attention_scores": Case(lambda p, q, k: tfm.attention_scores(q, k), None, ("BTKGH", "BSKH")),
    "weighted_sum": Case(lambda p, weights, v: tfm.weighted_sum(weights, v), None, ("BKGTS", "BSKH")),
    "multi_head_attention": Case(
        lambda p, x, s, key: tfm.multi_head_attention(p, CONFIG, x, tfm.segments(s), key=key),
        ATTENTION,
        ("BTD", "BT:2", "key"),
    ),
    "feed_forward": Case(lambda p, x: tfm.feed_forward(p, CONFIG, x), FFN, ("BTD",)),
    "transformer_block": Case(
        lambda p, x, key: run_block(p, CONFIG, x, context_of(x, causal=True), key)[0],
        BLOCK,
        ("BTD", "key"),
    ),
    "embed": Case(lambda p, t, key: tfm.embed(p, CONFIG, t, key=key), MODEL.encoder.embed, ("BT:60", "key")),
    "stack": Case(
        lambda p, x, n: tfm.stack(p, CONFIG, x, context_of(x, tfm.prefix(n)))[0], MODEL.encoder, ("BTD", "B:6")
    ),
    "encoder": Case(lambda p, t, s: tfm.encoder(p, CONFIG, t, tfm.segments(s)), MODEL.encoder, ("BT:60", "BT:2")),
    "decoder": Case(
        lambda p, t, n: tfm.decoder(p.decoder, ROTARY, t, tfm.left_padding(n)), ROTARY_LM, ("BT:60", "B:3")
    ),
    "recorded": Case(recorded, LM, ("BTD",)),
    "prefill": Case(
        lambda p, t, n: tfm.prefill(p.decoder, CONFIG, t, n, 8)[1].states.period[0].keys, LM, ("BT:60", "B:6")
    ),
    "extend": Case(extended, ROTARY_LM, ("BT:60", "BM:60", "B:6")),
    "causal_lm": Case(lambda p, t, key: tfm.causal_lm(p, CONFIG, t, key=key), LM, ("BT:60", "key")),
    "next_logits": Case(lambda p, x: tfm.next_logits(p, CONFIG, x), LM, ("BTD",)),
    "keys_values": Case(lambda p, x: jnp.stack(tfm.keys_values(p, CONFIG, x)), ATTENTION, ("BSD",)),
    "seq2seq": Case(
        lambda p, s, t, valid, key: tfm.seq2seq(p, CONFIG, s, t, valid > 0, key),
        SEQ2SEQ,
        ("BS:60", "BT:60", "BS:2", "key"),
    ),
    "seq2seq_own_tables": Case(lambda p, s, t: tfm.seq2seq(p, CONFIG, s, t), OWN_TABLES, ("BS:60", "BT:60")),
    "encode_source": Case(
        lambda p, s, valid: tfm.encode_source(p, CONFIG, s, valid > 0).memory.layers.period[0][0],
        SEQ2SEQ,
        ("BS:60", "BS:2"),
    ),
    "alignment": Case(
        lambda p, s, t: tfm.alignment(tfm.encode_source(p, CONFIG, s), CONFIG, t), SEQ2SEQ, ("BS:60", "BT:60")
    ),
    "masked_lm": Case(
        lambda p, t, where, s, key: tfm.masked_lm(p, CONFIG, t, where, tfm.segments(s), key=key),
        MODEL,
        ("BT:60", "BM:6", "BT:2", "key"),
    ),
    "classify": Case(
        lambda p, t, v, y, key: tfm.classify(p, CONFIG, t, v > 0, y, key), CLASSIFIER, ("BT:60", "BT:2", "BT:2", "key")
    ),
    "classify_by_mean": Case(lambda p, t, v: tfm.classify(p, BY_MEAN, t, v > 0), CLASSIFIER, ("BT:60", "BT:2")),
    "score_choices": Case(
        lambda p, t, v, y, key: tfm.score_choices(p, CHOOSER, t, v > 0, y, key),
        tfm.classifier_specs(CHOOSER),
        ("BNT:60", "BNT:2", "BNT:2", "key"),
    ),
    "next_sentence": Case(
        lambda p, x: tfm.next_sentence(p, CONFIG, x), tfm.masked_lm_specs(CONFIG, next_sentence=True), ("BTD",)
    ),
    "take_positions": Case(lambda p, x, where: tfm.take_positions(x, where), None, ("BTD", "BM:6")),
    "mlm_logits": Case(lambda p, x: tfm.mlm_logits(p.head, CONFIG, x, p.encoder.embed.tokens), MODEL, ("BMD",)),
    "mlm_features": Case(lambda p, x: tfm.mlm_features(p.head, CONFIG, x), MODEL, ("BMD",)),
    "vocabulary_loss": Case(
        lambda p, x, t, w: tfm.vocabulary_loss(CONFIG, p, x, t, w, 0.1)[0], weight_of("VD"), ("BMD", "BM:60", "BM")
    ),
    "losses": Case(
        lambda p, x, t: tfm.vocabulary_loss(CONFIG, p, x, t, jnp.ones(t.shape))[1], weight_of("VD"), ("BMD", "BM:60")
    ),
    "unembed": Case(lambda p, x: tfm.unembed(CONFIG, p, x), weight_of("VD"), ("BMD",)),
    "cross_entropy": Case(lambda p, logits, targets: tfm.cross_entropy(logits, targets), None, ("BMV", "BM:64")),
}


def argument(rng, text):
    if text == "key":
        return jax.random.key(rng.integers(1000))
    axes, _, below = text.partition(":")
    shape = tuple(SIZES[letter] for letter in axes)
    return (
        jax.device_put(np.int32(rng.integers(0, int(below), shape)))
        if below
        else jax.device_put(np.float32(rng.normal(size=shape)))
    )


def arguments(case, seed):
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda spec: jax.device_put(np.float32(rng.normal(0.1, 0.3, spec.shape))), case.specs)
    return params, *(argument(rng, text) for text in case.arrays)


@cache
def plain(name, seed):
    case = CASES[name]
    return np.asarray(case.f(*arguments(case, seed)))


def twice(case):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), arguments(case, 0), arguments(case, 1))


def arguments_on_mesh(case, mesh):
    """The arguments on a mesh: parameters as `tfm.shardings` says, arrays as `tfm.partition` does."""
    params, *arrays = arguments(case, 0)
    params = jax.device_put(params, tfm.shardings(case.specs, mesh))
    for n, text in enumerate(case.arrays):
        if text != "key":
            arrays[n] = jax.device_put(
                arrays[n], NamedSharding(mesh, tfm.partition(text.partition(":")[0], arrays[n].shape, mesh))
            )
    return params, *arrays


def on_mesh(case, transform=jax.jit):
    mesh = tfm.make_mesh(2, 2, 2)
    with jax.set_mesh(mesh):
        return transform(case.f)(*arguments_on_mesh(case, mesh))


TRANSFORMS = {
    "jit": lambda case: jax.jit(case.f)(*arguments(case, 0)),
    "vmap": lambda case: jax.jit(jax.vmap(case.f, axis_size=2))(*twice(case)),
    "pmap": lambda case: jax.pmap(case.f, devices=jax.devices()[:2], axis_size=2)(*twice(case)),
    "mesh": on_mesh,
    "mesh_eager": lambda case: on_mesh(case, transform=lambda f: f),
}


def some(names, slow):
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in names]


# What holds a model together is also tested on a mesh in the plain test command; slow tests do that for all functions,
# and for models as wholes under every transformation.
ON_MESH = ("lookup", "linear", "dropout", "attend", "take_positions", "vocabulary_loss")
WHOLE_MODELS = {"encoder", "classify", "stack", "transformer_block", "extend", "causal_lm", "encode_source", "seq2seq"}
WHOLE_MODELS |= {
    "seq2seq_own_tables",
    "alignment",
    "classify_by_mean",
    "score_choices",
    "losses",
    "masked_lm",
    "recorded",
}
WHOLE_MODELS |= {"decoder", "prefill", "multi_head_attention", "feed_forward", "embed", "next_logits", "keys_values"}
WHOLE_MODELS |= {"attention_weights", "attend_plain_heads"}


def is_plain(name, transform):
    """Whether a test is one of the plain test command."""
    return name not in WHOLE_MODELS and (transform == "jit" or (transform == "mesh" and name in ON_MESH))


@pytest.mark.parametrize(
    ("name", "transform"),
    [
        pytest.param(name, transform, marks=[] if is_plain(name, transform) else [pytest.mark.slow])
        for name in CASES
        for transform in TRANSFORMS
    ],
)
def test_values(name, transform):
    if transform == "pmap" and not jax.tree.leaves(arguments(CASES[name], 0)):
        pytest.skip("pmap needs an argument")
    expected = np.stack([plain(name, 0), plain(name, 1)]) if transform in ("vmap", "pmap") else plain(name, 0)
    np.testing.assert_allclose(TRANSFORMS[transform](CASES[name]), expected, rtol=1e-5, atol=1e-5)


def floats(case):
    """Which arguments are floats: the parameters, where there are any, and arrays."""
    return [0] * (case.specs is not None) + [
        n for n, text in enumerate(case.arrays, 1) if text.isalpha() and text.isupper()
    ]


def gradient(case):
    """That of a random projection of the result, for all floats; forbidden scores, at -1e30, are left out."""
    projection = np.random.default_rng(2).normal(size=jax.eval_shape(case.f, *arguments(case, 0)).shape)
    projected = lambda *args: jnp.where(
        jnp.abs(y := case.f(*args)) < 1e29, y * jnp.asarray(projection, y.dtype), 0
    ).sum()
    return jax.grad(projected, argnums=floats(case))


GRADED = [name for name, case in CASES.items() if floats(case)]
QUICK = {"linear", "lookup"}


@pytest.mark.parametrize("name", some(GRADED, slow=set(GRADED) - QUICK))
def test_gradients(name):
    case, mesh = CASES[name], tfm.make_mesh(2, 2, 2)
    grad = gradient(case)
    expected = grad(*arguments(case, 0))
    with jax.set_mesh(mesh):
        sharded = jax.jit(grad)(*arguments_on_mesh(case, mesh))
    for actual in (jax.jit(grad)(*arguments(case, 0)), sharded):
        assert jax.tree.structure(actual) == jax.tree.structure(expected)
        for leaf, reference in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(leaf, reference, rtol=1e-4, atol=1e-4 * max(1, np.abs(reference).max()))

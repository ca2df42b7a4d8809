"""Numbers that are not finite are refused, with their names."""

import json
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from train import UserError
from train.files.strict_json import json_text
from train.runs import parity
from train.screens import finite

CONFIG = tfm.Config(layers=1, heads=2, width=8, ffn=16, vocab=20, length=6, dropout=0.0)


def test_json_is_what_was_written():
    value = {"loss": 0.1, "n": 3, "none": None, "rows": [{"text": "é"}, [1.5, True]], "numpy": np.float32(0.5)}
    assert json.loads(json_text(value)) == value | {"numpy": 0.5}
    assert json_text({"text": "é"}) == '{"text": "é"}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (lambda x: {"loss": 1.0, "eval": {"f1": x}}, "eval.f1"),
        (lambda x: [{"a": 0}, {"probabilities": [0.5, x]}], "1.probabilities.1"),
        (lambda x: x, "the result"),
    ],
)
def test_json_names_what_is_not_finite(value, wrap, name):
    with pytest.raises(UserError, match=rf"^{name} is -?(nan|inf), and JSON"):
        json_text(wrap(value))


def test_parameters_are_named():
    params = {"encoder": {"a": jnp.ones(3), "b": jnp.array([1.0, jnp.inf])}, "head": jnp.array([jnp.nan])}
    with pytest.raises(UserError, match="^runs/x holds parameters that are not finite: encoder.b and 1 more; "):
        finite.refuse_parameters(params, "runs/x")
    finite.refuse_parameters({"a": jnp.ones(3), "n": jnp.arange(3)}, "runs/x")


@partial(jax.jit, static_argnums=1)
def scaled(params, config, x):
    with jax.named_scope("layer 0"):
        x = jnp.log(x)
    return (params["a"] * x).sum() + config.width


def test_results_are_checked_and_their_layer_is_named():
    params = {"a": jnp.ones(3)}
    assert finite.checked(scaled, params, CONFIG, jnp.ones(3)) == 8
    with pytest.raises(UserError, match=r"not finite: layer 0 is the first that is not finite \(log: 1 inf in 3"):
        finite.checked(scaled, params, CONFIG, jnp.array([1.0, 0.0, 2.0]))


@pytest.mark.slow
def test_a_certificate_fails_unless_all_is_finite_and_small():
    params = random_params(tfm.causal_lm_specs(CONFIG))
    differences = parity.layer_differences(CONFIG, params, CONFIG, params)
    differences |= parity.output_difference(CONFIG, params, CONFIG, params)
    assert differences == {"decoder embeddings": 0, "decoder layer 0": 0, "output": 0}

    def changed(change):
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: change(leaf) if "feed_forward" in jax.tree_util.keystr(path) else leaf, params
        )

    with pytest.raises(UserError, match="differs in decoder layer 0 by"):
        parity.layer_differences(CONFIG, params, CONFIG, changed(lambda leaf: leaf + 1))
    broken = changed(lambda leaf: leaf * jnp.nan)
    with pytest.raises(UserError, match="^the model computes values that are not finite, first in decoder layer 0"):
        parity.layer_differences(CONFIG, broken, CONFIG, broken)
    with pytest.raises(UserError, match="^the model as it was read back computes values that are not finite"):
        parity.output_difference(CONFIG, params, CONFIG, broken)

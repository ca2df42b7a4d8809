"""The classes of BEiT, by what the old ones were called with, gave and kept."""

import numpy as np
import pytest
from compat.models import assert_close, opened, paths

import tfm
import tfm.compat

LAYER = """attention.attention.query.kernel attention.attention.query.bias attention.attention.key.kernel
    attention.attention.value.kernel attention.attention.value.bias attention.output.dense.kernel
    attention.attention.relative_position_bias.relative_position_bias_table attention.output.dense.bias
    intermediate.dense.kernel intermediate.dense.bias output.dense.kernel output.dense.bias layernorm_before.scale
    layernorm_before.bias layernorm_after.scale layernorm_after.bias lambda_1 lambda_2""".split()
BODY = """embeddings.cls_token embeddings.mask_token embeddings.patch_embeddings.projection.kernel
    embeddings.patch_embeddings.projection.bias encoder.relative_position_bias.relative_position_bias_table""".split()
NAMES = {*BODY, *(f"encoder.layer.{n}.{name}" for n in range(2) for name in LAYER)}
POOLER = {"pooler.layernorm.scale", "pooler.layernorm.bias"}


def images():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3, 6, 6)).astype(np.float32), rng.random((2, 9)) < 0.4


@pytest.mark.slow
def test_the_bare_model(tmp_path):
    """Names of parameters, outputs in their order, and the mean of the patches behind a norm."""
    model = opened(tmp_path, "beit")
    assert paths(model.params) == NAMES | POOLER
    assert model.params["embeddings"]["patch_embeddings"]["projection"]["kernel"].shape == (2, 2, 3, 24)
    assert model.params["encoder"]["layer"]["1"]["lambda_1"].shape == (24,)
    assert (type(model).base_model_prefix, type(model).main_input_name) == ("beit", "pixel_values")
    pixels, masked = images()
    output = model(pixels, bool_masked_pos=masked, output_attentions=True, output_hidden_states=True)
    assert list(output) == ["last_hidden_state", "pooler_output", "hidden_states", "attentions"]
    assert [states.shape for states in output.hidden_states] == [(2, 10, 24)] * 3
    assert [weights.shape for weights in output.attentions] == [(2, 3, 10, 10)] * 2
    np.testing.assert_array_equal(output.hidden_states[-1], output.last_hidden_state)  # no norm behind the layers
    means = np.asarray(output.last_hidden_state, np.float64)[:, 1:].mean(1)
    norm = model.params["pooler"]["layernorm"]
    normed = (means - means.mean(-1, keepdims=True)) / means.std(-1, keepdims=True)
    assert_close(output.pooler_output, normed * np.asarray(norm["scale"]) + np.asarray(norm["bias"]), atol=1e-4)
    assert np.abs(model(pixels).last_hidden_state - output.last_hidden_state).max() > 0.1
    config, params = tfm.from_hf(tmp_path)
    hidden = tfm.encoder(params.encoder, config, tfm.MaskedPixels(pixels.transpose(0, 2, 3, 1), masked))
    assert_close(output.last_hidden_state, hidden)


@pytest.mark.slow
def test_visual_tokens_and_classes(tmp_path):
    """Of the same body; a head that a folder lacks starts anew, and a classifier reads all patches."""
    model = opened(tmp_path, "beit", "BeitForMaskedImageModeling")
    head = {"lm_head.kernel", "lm_head.bias", "layernorm.scale", "layernorm.bias"}
    assert paths(model.params) == {f"beit.{name}" for name in NAMES} | head
    pixels, masked = images()
    assert model(pixels, masked).logits.shape == (2, 9, 37)
    config, params = tfm.from_hf(tmp_path)
    assert_close(model(pixels, masked).logits, tfm.masked_image(params, config, pixels.transpose(0, 2, 3, 1), masked))
    with pytest.warns(UserWarning, match=r"has no such .*beit\.pooler\.layernorm\.weight, .*: they start anew"):
        classifier = tfm.compat.FlaxBeitForImageClassification.from_pretrained(tmp_path, num_labels=5)
    assert paths(classifier.params["beit"]) == NAMES | POOLER
    assert_close(classifier.params["beit"]["encoder"], model.params["beit"]["encoder"], atol=0)
    assert classifier(pixels).logits.shape == (2, 5)
    np.testing.assert_array_equal(classifier(pixels, masked).logits, classifier(pixels).logits)
    mapping = tfm.compat.FLAX_MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
    assert mapping["beit"] is tfm.compat.FlaxBeitForImageClassification
    without = opened(tmp_path / "plain", "beit", use_mask_token=False)
    with pytest.raises(ValueError, match="patches are masked, and the model has no vector for them"):
        without(pixels, masked)

"""What is written runs in transformers 4 and 5: positions in the fields of both, and tables and ids that they have."""

import dataclasses
import json

from hf.test_regressions import BERT, LINEAR, LLAMA, config_of, save

from tfm import from_hf, to_hf
from tfm.hf import FAMILIES, tensors


def test_scaled_positions_are_written_for_both_versions(tmp_path):
    """Version 4 reads `rope_scaling` and `rope_theta`, version 5 `rope_parameters`, or the first two where both are."""
    rope = {"rope_parameters": LINEAR | {"rope_theta": 500.0}}
    folder, _ = save(tmp_path / "read", LLAMA | rope)
    written = to_hf(*from_hf(folder), tmp_path / "written", like=folder)
    fields = json.loads((written / "config.json").read_text())
    assert (fields["rope_theta"], fields["rope_scaling"]) == (500.0, LINEAR)
    assert fields["rope_parameters"] == LINEAR | {"rope_theta": 500.0}
    plain, _ = save(tmp_path / "plain", LLAMA)
    fields = json.loads((to_hf(*from_hf(plain), tmp_path / "plain", like=plain) / "config.json").read_text())
    assert fields["rope_scaling"] is None


def test_a_model_without_token_types_gets_zeros(tmp_path):
    """transformers has no BERT without the table."""
    config, params = from_hf(save(tmp_path / "read", BERT)[0])
    config = dataclasses.replace(config, input=dataclasses.replace(config.input, token_types=None))
    embed = dataclasses.replace(params.encoder.embed, types=None)
    params = dataclasses.replace(params, encoder=dataclasses.replace(params.encoder, embed=embed))
    folder = to_hf(config, params, tmp_path / "written")
    assert json.loads((folder / "config.json").read_text())["type_vocab_size"] == 2
    types = tensors.Tensors(folder)["bert.embeddings.token_type_embeddings.weight"]
    assert types.shape == (2, 4)
    assert not types.any()


def test_ids_that_the_vocabulary_lacks_are_not_written():
    """transformers takes its own ids where there are none, and fails where the table has no such row."""
    family = FAMILIES["modernbert"]
    small = config_of({"model_type": "modernbert", "vocab_size": 11, "num_hidden_layers": 1})
    assert family.config_json(small, "ModernBertModel")["pad_token_id"] is None
    large = config_of({"model_type": "modernbert", "num_hidden_layers": 1})
    assert "pad_token_id" not in family.config_json(large, "ModernBertModel")

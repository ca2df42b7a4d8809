"""Texts of sounds: `--task=translate` of a model whose encoder reads frames."""

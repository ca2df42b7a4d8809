"""The configuration of a model: sizes and variants as frozen dataclasses, without jax."""

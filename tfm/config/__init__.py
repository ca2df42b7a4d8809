"""The catalogue of models: sizes and variants as frozen dataclasses, without jax."""

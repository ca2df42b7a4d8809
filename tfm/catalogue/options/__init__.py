"""The options of variants and further kinds of models, without jax; the unions of `tfm.config` name them."""

"""Inputs: from what a model reads to vectors. One file an input, named like its tag in `tfm.config.inputs`."""

"""Bugs that more than one kind of probe notices."""

import jax.numpy as jnp

import tfm
from train.data import packing
from train.tasks.lm import task


def texts_that_leak(plant):
    plant(packing, "row_mask", lambda original: lambda model, segments: tfm.padding(segments > 0))


def weight_that_counts_rows(plant):
    """The loss is divided by rows, not by targets."""

    def counts_rows(original):
        def loss(params, model, batch, key):
            return original(params, model, batch, key) | {"weight": jnp.float32(len(batch["tokens"]))}

        return loss

    plant(task, "LM.loss", counts_rows)

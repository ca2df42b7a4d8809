"""Losses of a student, which learns from what a larger model, its teacher, says of the same inputs."""

import jax
import jax.numpy as jnp
from jax import Array

from tfm.losses.vocabulary import cross_entropy
from tfm.ops import unit_vectors


def soft_losses(logits: Array, teacher_logits: Array, temperature: float = 1.0) -> Array:
    """logits and teacher_logits [...,C] -> float32 [...], in nats: the Kullback-Leibler divergence of the student's
    probabilities from the teacher's, both of logits / temperature, times the square of the temperature.

    That factor keeps the size of gradients (Hinton et al. 2015, section 2; Touvron et al. 2021, eq. 2). Raises
    ValueError for logits of different shapes, and for a temperature that is not positive.
    """
    _check_shapes(logits, teacher_logits)
    if not temperature > 0:
        raise ValueError(f"temperature={temperature} must be more than 0; 2 is usual")
    logprobs, teacher_logprobs = (
        jax.nn.log_softmax(array.astype(jnp.float32) / temperature) for array in (logits, teacher_logits)
    )
    return temperature**2 * (jnp.exp(teacher_logprobs) * (teacher_logprobs - logprobs)).sum(-1)


def hard_losses(logits: Array, teacher_logits: Array) -> Array:
    """logits and teacher_logits [...,C] -> float32 [...], in nats: the cross-entropy of the student with the class that
    the teacher holds for the most probable (Touvron et al. 2021, eq. 3). Raises ValueError for different shapes."""
    _check_shapes(logits, teacher_logits)
    return cross_entropy(logits, teacher_logits.argmax(-1))


def cosine_losses(states: Array, teacher_states: Array) -> Array:
    """states and teacher_states [...,D] -> float32 [...]: 1 - their cosine (Sanh et al. 2019, section 2). Raises
    ValueError for different shapes."""
    _check_shapes(states, teacher_states)
    return 1 - (unit_vectors(states) * unit_vectors(teacher_states)).sum(-1)


def _check_shapes(array: Array, teacher_array: Array):
    """Raises ValueError where a student and a teacher say different things."""
    if array.shape != teacher_array.shape:
        raise ValueError(f"student and teacher must have one shape; they have {array.shape} and {teacher_array.shape}")

"""Texts that join and leave a batch: each is what `generate` writes of it alone."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from random_params import random_params
from variants import VARIANTS

import tfm
from tfm.catalogue.decoding import slots
from tfm.decoding.generate import left_padded

STRATEGIES = [
    tfm.Greedy(),
    tfm.Greedy(repetition_penalty=1.5),
    tfm.Sample(temperature=0.7, seed=5),
    tfm.Sample(top_k=9, top_p=0.9, seed=3, repetition_penalty=1.3),
    tfm.Sample(min_p=0.05, typical_p=0.8, seed=4),
]
PROMPTS = [[5, 9, 0, 7], [3], [1, 2, 3, 4, 5, 1, 2, 3, 8], [6, 6], [4, 3, 2]]


def _mixer(config):
    return "mixer", config.mixer.name


def _position(config):
    return "position", config.position.name


# The first row of each mixer and of each position that writes.
WRITE = {name: variant.config for name, variant in VARIANTS.items() if variant.decoder and variant.generates}
FIRST = {slot(config): name for name, config in reversed(WRITE.items()) for slot in (_mixer, _position)}


def written_by_turns(config, model, limit, size):
    """The tokens of each prompt; text n joins after the others have written 2n more, in a place that is taken again."""
    texts: list[list[int]] = [[] for _ in PROMPTS]
    of_place: dict[int, int] = {}
    batch = None

    def write():
        nonlocal batch
        if batch.cache.length == size:
            longest = max(len(PROMPTS[text]) + len(texts[text]) for text in of_place.values())
            batch = slots.move(config, batch, longest - 1)
        batch = slots.write_tokens(config, True, True, model, batch)
        for place, text in list(of_place.items()):
            texts[text].append(int(batch.token[place]))
            if len(texts[text]) == limit:
                del of_place[place]

    for row, (prompt, strategy) in enumerate(zip(PROMPTS, STRATEGIES, strict=True)):
        tokens, starts = left_padded([prompt])
        text = slots.read_prompt(config, size, model, tokens, starts, slots.any_draw(config, strategy))
        texts[row].append(int(text.token[0]))
        while batch is not None and len(of_place) == 3:
            write()
        batch = slots.places(3, text) if batch is None else batch
        place = min({0, 1, 2} - set(of_place))
        if len(prompt) > batch.cache.length:
            batch = slots.move(config, batch, len(prompt))
        batch = slots.join(config, batch, text, jnp.int32(place))
        of_place[place] = row
        for _ in range(2):
            write()
    while of_place:
        write()
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*FIRST.values()}))
def test_company_changes_no_text(name):
    config = dataclasses.replace(VARIANTS[name].config, dropout=0.0, attn_dropout=0.0)
    model = random_params(tfm.causal_lm_specs(config), 5)
    alone = [tfm.generate(model, config, [p], 6, s).tokens[0] for p, s in zip(PROMPTS, STRATEGIES, strict=True)]
    assert written_by_turns(config, model, limit=6, size=16) == alone
    jax.clear_caches()  # of so many programs a process has no memory maps left


@pytest.mark.slow
def test_places_are_taken_and_get_room():
    config = dataclasses.replace(VARIANTS["learned"].config, dropout=0.0, attn_dropout=0.0)
    model = random_params(tfm.causal_lm_specs(config), 5)
    alone = tfm.generate(model, config, [PROMPTS[0]], 8).tokens[0]
    tokens, starts = left_padded([PROMPTS[0]])
    text = slots.read_prompt(config, 18, model, tokens, starts, slots.any_draw(config, tfm.Greedy()))
    batch = slots.places(2, text)
    written = [int(text.token[0])]
    for step in range(7):
        if step == 1:
            batch = slots.with_room(config, 32, slots.take_places(batch, jnp.array([1, 0, 1])))
        if step == 3:
            batch = slots.move(config, batch, 9)
        batch = slots.write_tokens(config, False, False, model, batch)
        written.append(int(batch.token[2 if step else 0]))
    assert written == alone

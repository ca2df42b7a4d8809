"""Multiple choice in plain English, written by a grammar: what happens, and four continuations of which one fits.

The data are synthetic: the tables below are all of them. Every event has four causes and four effects, and a row asks
for an effect. The wrong continuations are effects of other events, about the same person. Causes and effects of an
event share no word but the commonest, so that the continuation with the most words in common is no better than
chance. In the rows of two events, one wrong continuation is the effect of the event that befell somebody else, or of
the one that is denied.

Some pairs of a cause and an effect never occur in the training rows: those that `is_withheld` says. Every fourth
validation row has such a pair, and shows whether the model knows what kind of event it reads.
"""

import random
import re
from typing import NamedTuple

CHOICES = 4

# Causes | effects of each event; both can follow any person.
_EVENTS = """
knocked over a cup of coffee, spilled juice on the carpet, upset a glass of milk, let a bowl of soup fall
| fetched a cloth, scrubbed the stain, wiped the table, reached for the paper towels

was caught in the rain, walked home through a storm, waited for the bus in a downpour, forgot the umbrella in April
| hung up the dripping coat, stamped the mud off the boots, combed out wet hair, changed into fresh socks

lost the house key, shut the door from outside, searched every pocket for the key, left the key at the office
| called a locksmith, climbed through a window, rang at the neighbours', asked the caretaker for help

won the spelling contest, came first in the chess tournament, passed the final exam, ran faster than everybody else
| was congratulated, opened a bottle of champagne, received a certificate, held up the medal

caught a bad cold, woke up with a fever, had a sore throat, coughed all night
| took some medicine, drank camomile tea, went to see the doctor, measured the temperature again

rode over a nail, bent a wheel on the kerb, broke the chain of the bicycle, had a flat tyre
| pushed the bike home, patched the inner tube, bought a spare part, turned the saddle upside down

came too late to the station, missed the last train, stood on the wrong platform, fell asleep on the tram
| took a taxi, studied the timetable, waited for the next departure, had the ticket stamped again

skipped breakfast, ate nothing all day, came home very hungry, left the sandwiches on the kitchen table
| cooked a large meal, ordered a pizza, emptied the fridge, asked for a second helping

worked until midnight, did not sleep for two nights, finished a marathon, carried boxes all morning
| needed a long nap, yawned all evening, slept until noon, dozed off in an armchair

had no electricity, sat in a pitch-dark room, saw the lamp flicker and go out, heard the bulb burst
| lit a candle, looked for the torch, checked the fuses, felt along the wall for the switch

let the fire go out, slept beside an open window in winter, found the heating broken, moved into a hut without a stove
| put on a thick sweater, chopped some logs, filled a hot-water bottle, blew on frozen fingers

planted tomatoes, sowed lettuce, dug a vegetable patch, grew strawberries behind the house
| harvested a full basket, watered the rows every morning, pulled out the weeds, kept the snails away

let the dog off the leash, left the gate open for the puppy, lost sight of the terrier, heard that the spaniel was gone
| put up posters with a photo, called its name in the woods, searched the streets with a whistle, asked at the shelter

left the wallet in a shop, had no cash at the till, opened an empty purse, spent the last banknote
| borrowed ten euros, went to the bank, blocked the credit card, counted the remaining coins

heard loud music next door, could not work for all the drums, was woken by a party upstairs, lived above a noisy bar
| put in earplugs, knocked on the ceiling, complained to the landlord, turned over and pulled the pillow up

saw the screen go black, deleted the wrong folder, dropped the laptop, opened a file with a virus
| restarted the machine, restored a backup, phoned the technician, installed all programs again

invited twelve people, expected visitors at eight, planned a birthday party, had relatives coming for the weekend
| cleaned the living room, set the long table, baked two cakes, brought extra chairs from the cellar

bit on a cherry stone, broke a tooth, had a terrible toothache, lost a filling
| sat in the dentist's waiting room, rinsed with salt water, chewed on the left side only, pressed ice to one cheek

wrote a long letter, finished a card for an uncle, packed a parcel, addressed forty envelopes
| bought stamps, walked to the post office, stood in line at the counter, looked up the postcode

forgot the pie in the oven, left the rice on the hob, let the toast burn, fell asleep while the stew was boiling
| let out the smoke, scraped off a black crust, threw away the ruined food, scrubbed the scorched pot

tore a pair of trousers, lost a button, burst a seam at a wedding, ripped a sleeve on a hook
| threaded a needle, looked for matching yarn, visited the tailor, sewed for half an hour

found the path covered with snow, woke up to a white garden, saw the car buried in a drift, was snowed in on Sunday
| took the shovel, scattered grit on the steps, built a man with a carrot for a nose, went out with the sledge

saw a pipe leak, heard the tap drip, found the basement flooded, noticed a damp spot under the sink
| called a plumber, put a bucket underneath, closed the main valve, tightened the loose joint

agreed to play in a concert, joined the orchestra, was asked to sing in church, took up the violin
| practised scales for weeks, tuned all four strings, learned the notes by heart, hired an accompanist
"""

_PEOPLE = """my sister/she, my brother/he, my aunt/she, my uncle/he, our neighbour/he, the teacher/she, my cousin/he,
my colleague/she, the student/he, my grandmother/she, the carpenter/he, the journalist/she, my friend/he, the nurse/she
"""
_DAYS = "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday"

# Contexts of one event and of two. The continuations are about {person}, to whom {cause} happened, not {wrong}.
_ONE = (
    "{person} {cause}.",
    "On {day} {person} {cause}.",
    "I heard from {witness} that {person} {cause}.",
    "{witness} told me that last week {person} {cause}.",
)
_TWO = (
    "{person} {cause}, and {witness} {wrong}.",
    "{witness} {wrong}, and {person} {cause}.",
    "On {day} {person} {cause}, while {witness} {wrong}.",
    "On {day} {witness} {wrong}, while {person} {cause}.",
    "I had heard that {person} {wrong}, but that was {witness}; {person} {cause}.",
    "It is not true that {person} {wrong}; in fact {she} {cause}.",
)
_ENDINGS = ("{person} {effect}.", "So {person} {effect}.", "Soon after that {person} {effect}.")


class _Event(NamedTuple):
    """What may happen: its phrases for the cause, and for the effect."""

    causes: list[str]
    effects: list[str]


_SIDES = [paragraph.replace("\n", " ").split("|") for paragraph in _EVENTS.strip().split("\n\n")]
EVENTS = [_Event(*(side.strip().split(", ") for side in sides)) for sides in _SIDES]
PEOPLE = [person.split("/") for person in _PEOPLE.replace("\n", " ").strip().split(", ")]


def is_withheld(cause: int, effect: int) -> bool:
    """Whether this cause and this effect of an event, by their places, stay out of the training rows."""
    return (cause + effect) % 4 == 0


def generate(seed: int = 0, train: int = 20_000, valid: int = 1000) -> tuple[list[dict], list[dict]]:
    """Training and validation rows {"context", "choices", "label", "group"}, all different and the same everywhere.

    The label is the place of the continuation that fits; places take turns. The group is "unseen" for every fourth
    validation row, and else "seen". The validation rows do not depend on `train`, and fewer training rows are the
    first of more. Raises ValueError if there are not that many different rows.
    """
    rng, contexts = random.Random(seed), set[str]()
    kinds = [(n % CHOICES, n % 16 >= 12) for n in range(valid)] + [(n % CHOICES, False) for n in range(train)]
    rows = []
    for label, unseen in kinds:
        row = _row(rng, label, unseen, contexts)
        contexts.add(row["context"])
        rows.append(row)
    return rows[valid:], rows[:valid]


def _row(rng: random.Random, label: int, unseen: bool, contexts: set[str]) -> dict:
    """A row whose context is not among `contexts`."""
    for _ in range(1000):
        cause, effect = rng.randrange(4), rng.randrange(4)
        if is_withheld(cause, effect) != unseen:
            continue
        events = rng.sample(EVENTS, CHOICES)
        (person, she), (witness, _) = rng.sample(PEOPLE, 2)
        slots = {
            "person": person,
            "she": she,
            "witness": witness,
            "day": rng.choice(_DAYS.split(", ")),
            "cause": events[0].causes[cause],
            "wrong": rng.choice(events[1].causes),
        }
        context = _sentence(rng.choice(rng.choice((_ONE, _TWO))), slots)
        if context not in contexts:
            effects = [events[0].effects[effect], *(rng.choice(event.effects) for event in events[1:])]
            ending = rng.choice(_ENDINGS)
            wrong = [_sentence(ending, slots | {"effect": phrase}) for phrase in effects[1:]]
            rng.shuffle(wrong)
            choices = [*wrong[:label], _sentence(ending, slots | {"effect": effects[0]}), *wrong[label:]]
            return {"context": context, "choices": choices, "label": label, "group": "unseen" if unseen else "seen"}
    raise ValueError(f"no new context after {len(contexts)}; ask for fewer")


def _sentence(template: str, slots: dict[str, str]) -> str:
    """The template with its slots filled, and capitals where sentences begin."""
    text = template.format(**slots)
    return re.sub(r"^\w", lambda first: first[0].upper(), text)

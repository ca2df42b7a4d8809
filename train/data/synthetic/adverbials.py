"""Places and times of the grammar, in English and German."""

import re

# Prepositions for being there and for going there, English and German, and the places that have them.
_PLACES = """
in in, into in: kitchen, living room, garden, forest, house, flat
on auf, onto auf: balcony
in in, to in: park, café, library, museum, office, hotel, supermarket, village, town, church, bakery
at in, to in: school, cinema, theatre, swimming pool
at an, to zu: station, airport, bus stop
at auf, to auf: market, playground
at an, to an: beach, lake
"""
CITIES = {
    "Berlin": "Berlin",
    "Hamburg": "Hamburg",
    "Munich": "München",
    "Vienna": "Wien",
    "Cologne": "Köln",
    "Zurich": "Zürich",
}

# Times, after the groups of tenses that they go with: "later" are "will" and other modals, "habit" is "like to". An
# indented line continues the line before.
_TIMES = """
present past perfect later: today|heute
past perfect: this morning|heute Morgen
past: yesterday|gestern, yesterday evening|gestern Abend, last week|letzte Woche, last year|letztes Jahr
perfect later: this week|diese Woche
later: tomorrow|morgen, tomorrow evening|morgen Abend, next week|nächste Woche
past later: on Monday|am Montag, on Tuesday|am Dienstag, on Wednesday|am Mittwoch, on Thursday|am Donnerstag,
    on Friday|am Freitag
present past later habit: in the morning|am Morgen, in the afternoon|am Nachmittag, in the evening|am Abend,
    at the weekend|am Wochenende
present past later: after breakfast|nach dem Frühstück, before lunch|vor dem Mittagessen,
    after dinner|nach dem Abendessen
present past: every day|jeden Tag, every morning|jeden Morgen, every evening|jeden Abend, every Sunday|jeden Sonntag
present past habit: in summer|im Sommer, in winter|im Winter
"""


def _prepositions(line: str) -> dict[tuple[str, bool], tuple[str, str]]:
    """English and German prepositions of the places of a line, by place and whether someone goes there."""
    pairs, _, places = line.partition(": ")
    prepositions: dict[tuple[str, bool], tuple[str, str]] = {}
    for to, pair in zip((False, True), pairs.split(", "), strict=True):
        english, german = pair.split()
        prepositions |= dict.fromkeys(((place, to) for place in places.split(", ")), (english, german))
    return prepositions


def _times() -> dict[str, list[tuple[str, str]]]:
    """Times in English and German, by group of tenses."""
    times: dict[str, list[tuple[str, str]]] = {}
    for line in re.sub(r"\n +", " ", _TIMES.strip()).split("\n"):
        groups, _, items = line.partition(": ")
        for group in groups.split():
            pairs = (item.split("|") for item in items.split(", "))
            times.setdefault(group, []).extend((english, german) for english, german in pairs)
    return times


# Prepositions by place and whether someone goes there; places without an article, in the same way.
PLACES = {key: words for line in _PLACES.strip().split("\n") for key, words in _prepositions(line).items()}
FIXED = {("@home", False): ("at home", "zu Hause"), ("@home", True): ("home", "nach Hause")}
FIXED |= {(city, False): (f"in {city}", f"in {german}") for city, german in CITIES.items()}
FIXED |= {(city, True): (f"to {city}", f"nach {german}") for city, german in CITIES.items()}
TIMES = _times()

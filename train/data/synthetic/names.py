"""Names of persons, places and organizations, and dates, that built-in sentences mention.

Every fourth word of a table is kept for validation: no name with it ever occurs in the training sentences. Tables
share words on purpose: Florence is a person, a place or a ship, and May a person or a month.
"""

import random
from collections.abc import Callable, Mapping, Sequence

_FIRST = """
Ada Florence Ivo Sidonie Jordan Marta Oskar Philippa Austin Greta Lukas Thaddeus Sydney Nora Henrik Isolde April Clara
Emil Leopold Chelsea Irene Victor Rosalind June Anton Paula Winifred May Hugo Edith Cornelius Paris Nils Teresa Barnaby
Lorraine Simon Agnes Ottilie Dakota Felix Judith Balthasar Savannah Peter Helen Ludmila Carolina Robert Alice Fergus
Virginia Daniel Sofia Rasmus August Frieda Martin Genevieve
""".split()

_LAST = """
Lincoln Hartmann Okafor Quillfeather Chester Novak Ferreira Brandvold Lancaster Keller Sorensen Achterberg Wells Moreau
Takeda Featherstone Morgan Lindqvist Rossi Zielinski Mercer Baptiste Yamada Thistlewood Preston Vogel Castillo
Drummond Kingston Petrov Ibrahim Underhill Bristow Jensen Duarte Popescu Halifax Weber Santos Rutherglen Hamilton
Fischer Mendes Oxenford Burton Laurent Kovacs Wetherby Stafford Hansen Delgado Przybylski Houston Berger Silva
Montefiore Carson Nilsson Romero Haverkamp Denver Schmidt Navarro Blackadder Durham Olsen Garcia Vandermeer Nelson
Dubois Costa Eriksdottir Warwick Steiner Marino Gallowglass Clinton Haas Pereira Fitzwarren
""".split()

_PLACES = """
Florence Lincoln Porto Ravensholm Chester Sydney Bergen Castelmar Austin Paris Tampere Oudenwijk Lancaster Lyon Graz
Steinbrunn Denver Halifax Malmo Villanova Kingston Turin Leeds Kirkwall Preston Seville Ghent Dunmore Houston Riga
Utrecht Montclair Wells Krakow Split Tarragona Hamilton Nantes Basel Eastleigh Durham Odense Bilbao Lauterbach Georgia
Tallinn Zagreb Penhallow Virginia Aarhus Verona Szentendre Jordan Rouen Linz Holmfirth Chelsea Genoa Cork Valdemossa
Dakota Antwerp Vilnius Brackenford Carolina Trieste Bremen Loughrea Savannah Cadiz Brno Hindeloopen Warwick Bruges
Lugano Stavelot Stafford Lille Split Ystad
""".split()

_BRANDS = """
Veltrix Northgate Solvane Quorum Mercer Arcadia Brightwell Zephyrine Morgan Ferrotec Halcyon Umbraline Vogel Lumina
Kestrel Ostrava Hartmann Polaris Teklon Corvantis Phoenix Meridian Novacore Ironbridge Wells Aurora Cobalt Xandrel
Weber Summit Delphi Brambleton Hamilton Orion Falcon Skarnholt
""".split()

_BANKS = "Bank Motors Press Airlines Foods Steel Insurance Shipping".split()
_MONTHS = "January February March April May June July August September October November December".split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_YEARS = [str(year) for year in range(1940, 2020)]


def _half(table: Sequence[str], unseen: bool) -> list[str]:
    """The words of a table that are kept for validation, or the others."""
    return [word for n, word in enumerate(table) if (n % 4 == 3) == unseen]


def person(rng: random.Random, unseen: bool) -> str:
    """A full name, or its first or last word; a last name has two first names."""
    firsts, lasts = _half(_FIRST, unseen), _half(_LAST, unseen)
    n = rng.randrange(len(lasts))
    first = firsts[(2 * n + rng.randrange(2)) % len(firsts)]
    return rng.choice([f"{first} {lasts[n]}", f"{first} {lasts[n]}", lasts[n], first])


def place(rng: random.Random, unseen: bool) -> str:
    """A town, or what is named after it."""
    town = rng.choice(_half(_PLACES, unseen))
    return rng.choice([town] * 6 + [f"Port {town}", f"{town} County", f"Lake {town}"])


def organization(rng: random.Random, unseen: bool) -> str:
    """A firm, a university or a club; some are named after persons and places."""
    brand, lasts = rng.choice(_half(_BRANDS, unseen)), _half(_LAST, unseen)
    n = rng.randrange(len(lasts))
    town = rng.choice(_half(_PLACES, unseen))
    names = [brand, brand, brand, f"{brand} {_BANKS[len(brand) % len(_BANKS)]}", f"{lasts[n - 1]} & {lasts[n]}"]
    return rng.choice([*names, lasts[n], f"{lasts[n]} Ltd", f"University of {town}", f"{town} United"])


def date(rng: random.Random, unseen: bool) -> str:
    """A year, a month of a year or a day of a month."""
    n = rng.randrange(len(_MONTHS))
    days = [str(day) for day in range(1, 29) if ((day + n) % 4 == 3) == unseen]
    year = rng.choice(_half(_YEARS, unseen))
    return rng.choice([year, f"{_MONTHS[int(year) % len(_MONTHS)]} {year}", f"{rng.choice(days)} {_MONTHS[n]}"])


def weekday(rng: random.Random, unseen: bool) -> str:
    """A day of the week, or a day of a month where the name must be unseen."""
    return date(rng, unseen) if unseen else rng.choice(_DAYS)


def ship(rng: random.Random, unseen: bool) -> str:
    """The name of a ship, which is that of a person, a place or a firm too; it is no entity of these data."""
    return rng.choice(_half(_FIRST, unseen) + _half(_PLACES, unseen) + _half(_BRANDS, unseen))


# By slot: the type of the entity, empty for none, and what writes its name.
SLOTS: Mapping[str, tuple[str, Callable[[random.Random, bool], str]]] = {
    "per": ("PER", person),
    "loc": ("LOC", place),
    "org": ("ORG", organization),
    "date": ("DATE", date),
    "day": ("DATE", weekday),
    "ship": ("", ship),
}

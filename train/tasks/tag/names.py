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

_BRANCHES = "Bank Motors Press Airlines Foods Steel Insurance Shipping".split()
_MONTHS = "January February March April May June July August September October November December".split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_YEARS = [str(year) for year in range(1940, 2020)]


# What English names of families, towns and firms are made of.
_STEMS = """
Ash Black Brad Cran Dal East Fair Gran Hart Kirk Lang Mar Nor Oak Rad Stan Thorn Wald Whit Wood
""".split()
_ENDINGS = """
berg by combe croft den field ford ham hurst ley man mere more ridge son stead stone ton well worth
""".split()


def _half(table: Sequence[str], unseen: bool) -> list[str]:
    """The words of a table that are kept for validation, or the others."""
    return [word for n, word in enumerate(table) if (n % 4 == 3) == unseen]


def _compounds(unseen: bool) -> list[str]:
    """Names such as Ashcroft, which persons, places and firms share."""
    return [
        stem + ending
        for n, stem in enumerate(_STEMS)
        for m, ending in enumerate(_ENDINGS)
        if ((n + m) % 4 == 3) == unseen
    ]


# By whether they are kept for validation.
_FIRSTS = {unseen: _half(_FIRST, unseen) for unseen in (False, True)}
_LASTS = {unseen: _half(_LAST, unseen) for unseen in (False, True)}
_TOWNS = {unseen: _half(_PLACES, unseen) for unseen in (False, True)}
_FIRMS = {unseen: _half(_BRANDS, unseen) for unseen in (False, True)}
_COMPOUNDS = {unseen: _compounds(unseen) for unseen in (False, True)}
_SOME_YEARS = {unseen: _half(_YEARS, unseen) for unseen in (False, True)}


def _name(rng: random.Random, table: Sequence[str], unseen: bool) -> str:
    """A name of the table, or a compound."""
    return rng.choice(table if rng.random() < 0.6 else _COMPOUNDS[unseen])


def person(rng: random.Random, unseen: bool) -> str:
    """A full name, or its first or last word; a last name has six first names at most."""
    last, firsts = _name(rng, _LASTS[unseen], unseen), _FIRSTS[unseen]
    first = firsts[(sum(map(ord, last)) + 7 * rng.randrange(6)) % len(firsts)]
    return rng.choice([f"{first} {last}", f"{first} {last}", last, first])


def place(rng: random.Random, unseen: bool) -> str:
    """A town, or what is named after it."""
    town = _name(rng, _TOWNS[unseen], unseen)
    return rng.choice([town] * 6 + [f"Port {town}", f"{town} County", f"Lake {town}"])


def organization(rng: random.Random, unseen: bool) -> str:
    """A firm, a university or a club; some are named after persons and places."""
    firm, town = _name(rng, _FIRMS[unseen], unseen), _name(rng, _TOWNS[unseen], unseen)
    lasts = _LASTS[unseen]
    n = rng.randrange(len(lasts))
    names = [firm, firm, firm, f"{firm} {_BRANCHES[len(firm) % len(_BRANCHES)]}", f"{lasts[n - 1]} & {lasts[n]}"]
    return rng.choice([*names, lasts[n], f"{lasts[n]} Ltd", f"University of {town}", f"{town} United"])


def year(rng: random.Random, unseen: bool) -> str:
    """A year, or a month of a year."""
    name = rng.choice(_SOME_YEARS[unseen])
    return rng.choice([name, f"{rng.choice(_MONTHS)} {name}"])


def day(rng: random.Random, unseen: bool) -> str:
    """A day of a month, or of the week."""
    n = rng.randrange(len(_MONTHS))
    days = [f"{date} {_MONTHS[n]}" for date in range(1, 29) if ((date + n) % 4 == 3) == unseen]
    return rng.choice(days) if unseen or rng.random() < 0.7 else rng.choice(_DAYS)


def ship(rng: random.Random, unseen: bool) -> str:
    """The name of a ship, which is that of a person, a place or a firm too; it is no entity of these data."""
    return _name(rng, [*_FIRSTS[unseen], *_TOWNS[unseen], *_FIRMS[unseen]], unseen)


# By slot: the type of the entity, empty for none, and what writes its name.
SLOTS: Mapping[str, tuple[str, Callable[[random.Random, bool], str]]] = {
    "per": ("PER", person),
    "loc": ("LOC", place),
    "org": ("ORG", organization),
    "year": ("DATE", year),
    "day": ("DATE", day),
    "ship": ("", ship),
}

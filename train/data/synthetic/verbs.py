"""Verbs of the grammar: their English and German forms, who acts, and on what and where.

An English word has one German word. Where English leaves a choice, it is made here once: "know" is kennen with an
object and wissen with a clause.
"""

import re
from typing import NamedTuple

from train.data.synthetic.adverbials import CITIES
from train.data.synthetic.nouns import KINDS


class Verb(NamedTuple):
    """A verb: its forms as in the table, the German ones without the separable prefix, and what goes with it."""

    name: str
    english: tuple[str, ...]
    particle: str
    prefix: str
    german: tuple[str, ...]
    subjects: list[str]
    objects: list[tuple[str, list[str]]]
    where: str
    places: list[str]
    more: list[str]


# English forms | German forms | subjects | objects, with their case or after a preposition | where (to) | more. An
# indented line continues the line before. Forms: infinitive, past, participle, and in German the third person before
# the past; only the infinitive if all are regular. Subjects: people if there are none. Where: "in!" and "to!" cannot
# be left out; "to!" is a direction. State: only present and past. Event: nobody wants it. Clock: at an hour.
_VERBS = """
read, read, read | lesen, liest, las, gelesen | | acc text | in home, park, café, library
write, wrote, written | schreiben, schreibt, schrieb, geschrieben | | acc letter, postcard, poem, report | in home,
    café, library
buy, bought, bought | kaufen | | acc goods | in market, supermarket
sell, sold, sold | verkaufen, verkauft, verkaufte, verkauft | | acc vehicle, clothes, furniture, crockery, house,
    flat, machine, fruit
eat, ate, eaten | essen, isst, aß, gegessen | | acc fruit, food, staple, dish | in home, café, park
drink, drank, drunk | trinken, trinkt, trank, getrunken | | acc drink | in home, café
take, took, taken | nehmen, nimmt, nahm, genommen | | acc transport
see, saw, seen | sehen, sieht, sah, gesehen | | acc people, animal, vehicle, film, picture | in public | event
find, found, found | finden, findet, fand, gefunden | | acc key, ring, umbrella, glove, bag, camera, ticket,
    ball | in home, public | event
look for | suchen | | acc key, ring, umbrella, clothes, bag, camera, ticket, ball, people, dog, cat,
    hotel | in home, public
lose, lost, lost | verlieren, verliert, verlor, verloren | | acc key, ring, umbrella, glove, bag, ticket,
    game | in public | event
forget, forgot, forgotten | vergessen, vergisst, vergaß, vergessen | | acc key, umbrella, bag, camera,
    ticket | in home, café | event
love | lieben | | acc kin, junior, animal, fairy tale, chocolate, names | | state
like, liked, liked | mögen, mag, mochte, gemocht | | acc people, animal, drink, staple, soup, place, tale | | state
know, knew, known | kennen, kennt, kannte, gekannt | | acc people, place, text, tale | | state
have, had, had | haben, hat, hatte, gehabt | | acc animal, vehicle, machine, thing, clothes, garden, balcony | | state
visit | besuchen, besucht, besuchte, besucht | | acc kin, junior, names, neighbour, doctor, museum, church, school,
    library
meet, met, met | treffen, trifft, traf, getroffen | | acc people | in public
invite | ein-laden, lädt, lud, eingeladen | | acc people
call | an-rufen, ruft, rief, angerufen | | acc people
pick up | ab-holen | | acc adult, young, kin, names, parcel | in station, airport, school
open | auf-machen | | acc opening, bottle, parcel, present, letter, suitcase | in home
close | zu-machen | | acc opening, suitcase, bag, box
turn on | ein-schalten, schaltet, schaltete, eingeschaltet | | acc machine, lamp | in living room, kitchen, office
turn off | aus-schalten, schaltet, schaltete, ausgeschaltet | | acc machine, lamp | in living room, kitchen, office
wash | waschen, wäscht, wusch, gewaschen | | acc vehicle, clothes, fruit, crockery, dog
clean | putzen | | acc window, door, shoe, kitchen, living room, office
tidy up | auf-räumen | | acc kitchen, living room, office, flat, cupboard
put on, put, put | an-ziehen, zieht, zog, angezogen | | acc clothes | in home
take along, took, taken | mit-nehmen, nimmt, nahm, mitgenommen | | acc luggage, umbrella, camera, guitar, ball,
    book, dog
bring along, brought, brought | mit-bringen, bringt, brachte, mitgebracht | | acc cake, flower, present, guitar,
    ball, names, kin
throw away, threw, thrown | weg-werfen, wirft, warf, weggeworfen | | acc text, box, shoe, bottle, hat
sing, sang, sung | singen, singt, sang, gesungen | | acc song | in garden, school, church, theatre, park
feed, fed, fed | füttern | | acc animal | in park, garden
help | helfen, hilft, half, geholfen | | dat people | in home, shops, school
answer | antworten, antwortet, antwortete, geantwortet | | dat people
follow | folgen, folgt, folgte, ist gefolgt | | dat people, dog | in park, station, forest
listen to | zu-hören | | dat people | in park, school, café
belong to | gehören, gehört, gehörte, gehört | things | dat people | | state
wait for | warten, wartet, wartete, gewartet | | auf+acc transport, people, letter, parcel | in station, airport,
    café, bus stop
look after | auf-passen, passt, passte, aufgepasst | | auf+acc junior, young, dog, cat, horse | in playground, park,
    home, beach
think of, thought, thought | denken, denkt, dachte, gedacht | | an+acc people, trip, present, game, party | | event
talk about | sprechen, spricht, sprach, gesprochen | | über+acc event, text, tale, people | in home, café, office,
    school
dream of | träumen | | von+dat trip, vehicle, house, garden, horse, beach, lake, concert | | event
take part in, took, taken | teil-nehmen, nimmt, nahm, teilgenommen | | an+dat course, race, game, trip
play with | spielen | | mit+dat ball, doll, dog, cat, junior, young, names | in garden, playground, park, living room
give, gave, given | geben, gibt, gab, gegeben | | dat people; acc fruit, food, text, thing, plant,
    luggage | in park, school, station
show, showed, shown | zeigen | | dat people; acc text, thing, place, vehicle, clothes
send, sent, sent | schicken | | dat people; acc letter, parcel, postcard, present, picture, book, report
lend, lent, lent | leihen, leiht, lieh, geliehen | | dat people; acc book, vehicle, umbrella, camera, guitar,
    jacket, suitcase, knife
offer | an-bieten, bietet, bot, angeboten | | dat people; acc fruit, food, drink, chair, chocolate | in home, café
sleep, slept, slept | schlafen, schläft, schlief, geschlafen | people | | in living room, garden, hotel, balcony
work | arbeiten, arbeitet, arbeitete, gearbeitet | people | | in office, library, garden, kitchen, hotel,
    supermarket, bakery, cities
play | spielen | young, junior | | in garden, playground, park, living room, beach, @home
live | wohnen | people | | in! village, town, house, flat, hotel, cities, @home | state
stay | bleiben, bleibt, blieb, ist geblieben | people | | in! @home, hotel, garden, office, library, cities, beach
get up, got, got | auf-stehen, steht, stand, ist aufgestanden | people | | clock
fall asleep, fell, fallen | ein-schlafen, schläft, schlief, ist eingeschlafen | people | | in living room, garden,
    cinema | event
arrive | an-kommen, kommt, kam, ist angekommen | people, transport | | in station, cities, airport, hotel,
    village | event clock
start | an-fangen, fängt, fing, angefangen | event | | | event clock
come back, came, come | zurück-kommen, kommt, kam, ist zurückgekommen | people, animal | | | clock
go out, went, gone | aus-gehen, geht, ging, ist ausgegangen | people | | | clock
go, went, gone | gehen, geht, ging, ist gegangen | people | | to! home, public, shops, @home, school, beach, lake,
    forest | clock
drive, drove, driven | fahren, fährt, fuhr, ist gefahren | adult, kin, names | | to! station, airport, beach,
    cities, @home
fly, flew, flown | fliegen, fliegt, flog, ist geflogen | people | | to! cities
"""

# Verbs of single constructions.
_SPECIAL = """
be, was, been | sein, ist, war, ist gewesen
know, knew, known | wissen, weiß, wusste, gewusst
think, thought, thought | denken, denkt, dachte, gedacht
say, said, said | sagen
hope | hoffen
believe | glauben
ask | fragen
"""

# Subjects and objects that are several kinds, and places that are several.
GROUPS = {
    "people": "adult adult adult young young kin kin junior names names pronouns pronouns pronouns".split(),
    "things": "clothes furniture luggage thing vehicle text crockery".split(),
    "goods": "fruit food staple sweet clothes furniture luggage crockery thing plant text".split(),
    "home": ["kitchen", "living room", "garden", "balcony"],
    "public": ["park", "café", "station", "market", "museum", "library"],
    "shops": ["market", "supermarket", "bakery"],
}
GROUPS["cities"] = list(CITIES)


def expand(names: str) -> list[str]:
    """The kinds, nouns and places of a list that may name groups."""
    groups = (GROUPS.get(name, [name]) for name in names.split(", ") if name)
    return [name for group in groups for name in group]


def _verb(line: str) -> Verb:
    english, german, subjects, objects, where, more = (part.strip() for part in (line + "|" * 5).split("|")[:6])
    name, *forms = english.split(", ")
    base, _, particle = name.partition(" ")
    past = re.sub(r"([^aeiou])yed$", r"\1ied", base + ("d" if base.endswith("e") else "ed"))
    german_name, *german_forms = german.split(", ")
    prefix, _, infinitive = german_name.rpartition("-")
    stem = re.sub(r"(?<=r)n$|en$", "", infinitive)
    with_case = (item.partition(" ") for item in objects.split("; ") if item)
    at, _, places = where.partition(" ")
    return Verb(
        name,
        (base, *(forms or (past, past))),
        particle,
        prefix,
        (infinitive, *(german_forms or [stem + "t", stem + "te", f"{prefix}ge{stem}t"])),
        expand(subjects or "people"),
        [(role, expand(kinds)) for role, _, kinds in with_case],
        at,
        expand(places),
        more.split(),
    )


VERBS = [_verb(line) for line in re.sub(r"\n +", " ", _VERBS.strip()).split("\n")]
SPECIAL = {verb.name: verb for verb in map(_verb, _SPECIAL.strip().split("\n"))}
VERBS_OF = {kind: [verb for verb in VERBS if kind in verb.subjects] for kind in [*KINDS, "names", "pronouns"]}

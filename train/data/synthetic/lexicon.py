"""The words of train.data.grammar: English ones, the German ones they become, and what it takes to inflect both.

One English word has one German word. Where English leaves a choice, it is made here once: "teacher" is der Lehrer, "you" is du, "know" is
kennen with an object and wissen with a clause.
"""

import re
from typing import NamedTuple


class Noun(NamedTuple):
    """A noun in the nominative, in English and German; what it does not have is empty."""

    english: str
    englishes: str
    german: str
    germans: str
    gender: str
    weak: bool
    kind: str

    @property
    def name(self) -> str:
        """The English word by which it is known."""
        return self.english or self.englishes


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


# A kind: adjectives that go with it. Then its nouns, "singular/plural der Singular/Plural" where the English plural is not regular. A star:
# one of the weak masculines, which have the plural form in the accusative and dative too. What is not counted has no plural.
_NOUNS = """
adult: young, old, tall, friendly, famous, polite, rich, poor, clever | man/men der Mann/Männer; woman/women die Frau/Frauen
teacher der Lehrer/Lehrer; doctor der Arzt/Ärzte; neighbour *der Nachbar/Nachbarn; farmer *der Bauer/Bauern; baker der Bäcker/Bäcker
student *der Student/Studenten; waitress die Kellnerin/Kellnerinnen; tourist *der Tourist/Touristen
actress die Schauspielerin/Schauspielerinnen; guest der Gast/Gäste; policeman/policemen *der Polizist/Polizisten
young: small, clever, brave, lazy, curious | boy *der Junge/Jungen; girl das Mädchen/Mädchen; child/children das Kind/Kinder
pupil der Schüler/Schüler
kin: dear, old, clever, brave | father der Vater; mother die Mutter; brother der Bruder/Brüder; sister die Schwester/Schwestern
uncle der Onkel/Onkel; aunt die Tante/Tanten; grandfather der Großvater; grandmother die Großmutter; friend der Freund/Freunde
colleague *der Kollege/Kollegen; /parents die /Eltern
junior: dear, small, clever, brave, lazy, curious | son der Sohn/Söhne; daughter die Tochter/Töchter
animal: small, big, black, white, old, hungry | dog der Hund/Hunde; cat die Katze/Katzen; horse das Pferd/Pferde
bird der Vogel/Vögel; duck die Ente/Enten; cow die Kuh/Kühe
fruit: fresh, ripe, sweet, big, red, green | apple der Apfel/Äpfel; pear die Birne/Birnen; tomato/tomatoes die Tomate/Tomaten
food: fresh, big, small, cheap, good, tasty | egg das Ei/Eier; potato/potatoes die Kartoffel/Kartoffeln; cake der Kuchen/Kuchen
roll das Brötchen/Brötchen; biscuit der Keks/Kekse; sausage die Wurst/Würste; orange die Orange/Orangen
staple: fresh, good, cheap, expensive, tasty | bread das Brot; cheese der Käse; meat das Fleisch; chocolate die Schokolade
sweet: good, cheap, expensive, tasty | rice der Reis; honey der Honig; butter die Butter
dish: cold, fresh, good, tasty | soup die Suppe/Suppen; salad der Salat/Salate
drink: cold, good, cheap | water das Wasser; milk die Milch; juice der Saft; lemonade die Limonade; apple juice der Apfelsaft
orange juice der Orangensaft; coffee der Kaffee; tea der Tee; cocoa der Kakao
text: interesting, long, short, boring, funny, old, new, good | book das Buch/Bücher; newspaper die Zeitung/Zeitungen
letter der Brief/Briefe; poem das Gedicht/Gedichte; report der Bericht/Berichte; novel der Roman/Romane; postcard die Postkarte/Postkarten
tale: funny, sad, beautiful, short, long, old, new | song das Lied/Lieder; story die Geschichte/Geschichten; fairy tale das Märchen/Märchen
clothes: new, old, warm, elegant, thick, clean, dirty, cheap, expensive, red, blue, green, black, white, grey | shirt das Hemd/Hemden
coat der Mantel/Mäntel; jacket die Jacke/Jacken; hat der Hut/Hüte; shoe der Schuh/Schuhe; scarf/scarves der Schal/Schals
glove der Handschuh/Handschuhe; cap die Mütze/Mützen
furniture: new, old, big, small, heavy, modern, cheap, expensive, brown, white, beautiful | table der Tisch/Tische
kitchen table der Küchentisch/Küchentische; chair der Stuhl/Stühle; bed das Bett/Betten; cupboard der Schrank/Schränke
lamp die Lampe/Lampen; bookshelf/bookshelves das Bücherregal/Bücherregale
luggage: new, old, big, small, heavy, full, empty, brown, black | bag die Tasche/Taschen; suitcase der Koffer/Koffer; box die Kiste/Kisten
parcel das Paket/Pakete
crockery: clean, dirty, white, blue | cup die Tasse/Tassen; plate der Teller/Teller; glass das Glas/Gläser; bottle die Flasche/Flaschen
thing: new, old, small, cheap, expensive, beautiful | camera die Kamera/Kameras; clock die Uhr/Uhren; umbrella der Regenschirm/Regenschirme
guitar die Gitarre/Gitarren; ball der Ball/Bälle; ring der Ring/Ringe; key der Schlüssel/Schlüssel; doll die Puppe/Puppen
ticket die Fahrkarte/Fahrkarten; present das Geschenk/Geschenke; picture das Bild/Bilder; knife/knives das Messer/Messer
plant: beautiful, big, small, old | flower die Blume/Blumen; rose die Rose/Rosen; tree der Baum/Bäume
vehicle: new, old, fast, slow, expensive, red, blue, grey | car das Auto/Autos; bicycle das Fahrrad/Fahrräder; boat das Boot/Boote
transport: new, old, big, fast, slow, full, empty | bus der Bus/Busse; train der Zug/Züge; ship das Schiff/Schiffe
machine: new, old, modern, loud, cheap, expensive, small | radio das Radio/Radios; computer der Computer/Computer
washing machine die Waschmaschine/Waschmaschinen
opening: small, big, old, new, white, brown | window das Fenster/Fenster; door die Tür/Türen; drawer die Schublade/Schubladen
event: long, short, good, interesting, boring, exciting | film der Film/Filme; concert das Konzert/Konzerte; course der Kurs/Kurse
race das Rennen/Rennen; party das Fest/Feste; trip die Reise/Reisen; game das Spiel/Spiele
room: big, small, quiet, beautiful | kitchen die Küche/Küchen; living room das Wohnzimmer/Wohnzimmer; garden der Garten/Gärten
balcony der Balkon/Balkone; house das Haus/Häuser; flat die Wohnung/Wohnungen
place: big, small, old, new, quiet, beautiful, modern | park der Park/Parks; café das Café/Cafés; library die Bibliothek/Bibliotheken
museum das Museum/Museen; cinema das Kino/Kinos; theatre das Theater/Theater; school die Schule/Schulen; office das Büro/Büros
hotel das Hotel/Hotels; station der Bahnhof/Bahnhöfe; airport der Flughafen/Flughäfen; market der Markt/Märkte
supermarket der Supermarkt/Supermärkte; bakery die Bäckerei/Bäckereien; village das Dorf/Dörfer; town die Stadt/Städte
playground der Spielplatz/Spielplätze; church die Kirche/Kirchen; swimming pool das Schwimmbad/Schwimmbäder
bus stop die Bushaltestelle/Bushaltestellen
nature: big, small, quiet, beautiful | beach der Strand/Strände; lake der See/Seen; forest der Wald/Wälder
"""

# English German; then the comparatives, where they are used, and after a slash the German stem where an ending changes it.
_ADJECTIVES = """
young jung younger jünger; old alt older älter; tall groß taller größer; friendly freundlich friendlier freundlicher; famous berühmt
polite höflich; rich reich richer reicher; poor arm poorer ärmer; small klein smaller kleiner; big groß bigger größer; brave mutig
lazy faul lazier fauler; curious neugierig; dear lieb; clever klug cleverer klüger; black schwarz; white weiß; brown braun
fresh frisch; ripe reif; sweet süß; cheap billig cheaper billiger; red rot; green grün; hungry hungrig; good gut better besser; tasty lecker
expensive teuer/teur more_expensive teurer; cold kalt; interesting interessant more_interesting interessanter
long lang longer länger; short kurz shorter kürzer; boring langweilig; funny lustig funnier lustiger; new neu newer neuer; sad traurig
beautiful schön more_beautiful schöner; warm warm warmer wärmer; elegant elegant more_elegant eleganter; thick dick thicker dicker
clean sauber; dirty schmutzig; blue blau; grey grau; heavy schwer heavier schwerer; modern modern more_modern moderner; full voll
empty leer; fast schnell faster schneller; slow langsam slower langsamer; loud laut louder lauter; quiet ruhig quieter ruhiger
exciting spannend more_exciting spannender; tired müde; ill krank; thirsty durstig; happy glücklich; angry wütend; nervous nervös
"""
COLOURS = frozenset("red blue green black white brown grey".split())
STATES = "tired ill hungry thirsty happy sad angry nervous curious".split()

# English forms | German forms | who does it | with which objects, in which case or after which preposition | where (to) | more.
# Forms: infinitive, past, participle, and in German the third person before the past; only the infinitive where all is regular.
# Who: people unless something else stands there. Where: "in!" and "to!" cannot be left out; "to!" is a direction.
# State: only present and past. Event: nobody wants it. Clock: at an hour. Those of _SPECIAL are known by the construction that uses them.
_VERBS = """
read, read, read | lesen, liest, las, gelesen | | acc text | in home, park, café, library
write, wrote, written | schreiben, schreibt, schrieb, geschrieben | | acc letter, postcard, poem, report | in home, café, library
buy, bought, bought | kaufen | | acc goods | in market, supermarket
sell, sold, sold | verkaufen, verkauft, verkaufte, verkauft | | acc vehicle, clothes, furniture, crockery, house, flat, machine, fruit
eat, ate, eaten | essen, isst, aß, gegessen | | acc fruit, food, staple, dish | in home, café, park
drink, drank, drunk | trinken, trinkt, trank, getrunken | | acc drink | in home, café
take, took, taken | nehmen, nimmt, nahm, genommen | | acc transport
see, saw, seen | sehen, sieht, sah, gesehen | | acc people, animal, vehicle, film, picture | in public | event
find, found, found | finden, findet, fand, gefunden | | acc key, ring, umbrella, glove, bag, camera, ticket, ball | in home, public | event
look for | suchen | | acc key, ring, umbrella, clothes, bag, camera, ticket, ball, people, dog, cat, hotel | in home, public
lose, lost, lost | verlieren, verliert, verlor, verloren | | acc key, ring, umbrella, glove, bag, ticket, game | in public | event
forget, forgot, forgotten | vergessen, vergisst, vergaß, vergessen | | acc key, umbrella, bag, camera, ticket | in home, café | event
love | lieben | | acc kin, junior, animal, fairy tale, chocolate, names | | state
like, liked, liked | mögen, mag, mochte, gemocht | | acc people, animal, drink, staple, soup, place, tale | | state
know, knew, known | kennen, kennt, kannte, gekannt | | acc people, place, text, tale | | state
have, had, had | haben, hat, hatte, gehabt | | acc animal, vehicle, machine, thing, clothes, garden, balcony | | state
visit | besuchen, besucht, besuchte, besucht | | acc kin, junior, names, neighbour, doctor, museum, church, school, library
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
take along, took, taken | mit-nehmen, nimmt, nahm, mitgenommen | | acc luggage, umbrella, camera, guitar, ball, book, dog
bring along, brought, brought | mit-bringen, bringt, brachte, mitgebracht | | acc cake, flower, present, guitar, ball, names, kin
throw away, threw, thrown | weg-werfen, wirft, warf, weggeworfen | | acc text, box, shoe, bottle, hat
sing, sang, sung | singen, singt, sang, gesungen | | acc song | in garden, school, church, theatre, park
feed, fed, fed | füttern | | acc animal | in park, garden
help | helfen, hilft, half, geholfen | | dat people | in home, shops, school
answer | antworten, antwortet, antwortete, geantwortet | | dat people
follow | folgen, folgt, folgte, ist gefolgt | | dat people, dog | in park, station, forest
listen to | zu-hören | | dat people | in park, school, café
belong to | gehören, gehört, gehörte, gehört | things | dat people | | state
wait for | warten, wartet, wartete, gewartet | | auf+acc transport, people, letter, parcel | in station, airport, café, bus stop
look after | auf-passen, passt, passte, aufgepasst | | auf+acc junior, young, dog, cat, horse | in playground, park, home, beach
think of, thought, thought | denken, denkt, dachte, gedacht | | an+acc people, trip, present, game, party | | event
talk about | sprechen, spricht, sprach, gesprochen | | über+acc event, text, tale, people | in home, café, office, school
dream of | träumen | | von+dat trip, vehicle, house, garden, horse, beach, lake, concert | | event
take part in, took, taken | teil-nehmen, nimmt, nahm, teilgenommen | | an+dat course, race, game, trip
play with | spielen | | mit+dat ball, doll, dog, cat, junior, young, names | in garden, playground, park, living room
give, gave, given | geben, gibt, gab, gegeben | | dat people; acc fruit, food, text, thing, plant, luggage | in park, school, station
show, showed, shown | zeigen | | dat people; acc text, thing, place, vehicle, clothes
send, sent, sent | schicken | | dat people; acc letter, parcel, postcard, present, picture, book, report
lend, lent, lent | leihen, leiht, lieh, geliehen | | dat people; acc book, vehicle, umbrella, camera, guitar, jacket, suitcase, knife
offer | an-bieten, bietet, bot, angeboten | | dat people; acc fruit, food, drink, chair, chocolate | in home, café
sleep, slept, slept | schlafen, schläft, schlief, geschlafen | people | | in living room, garden, hotel, balcony
work | arbeiten, arbeitet, arbeitete, gearbeitet | people | | in office, library, garden, kitchen, hotel, supermarket, bakery, cities
play | spielen | young, junior | | in garden, playground, park, living room, beach, @home
live | wohnen | people | | in! village, town, house, flat, hotel, cities, @home | state
stay | bleiben, bleibt, blieb, ist geblieben | people | | in! @home, hotel, garden, office, library, cities, beach
get up, got, got | auf-stehen, steht, stand, ist aufgestanden | people | | clock
fall asleep, fell, fallen | ein-schlafen, schläft, schlief, ist eingeschlafen | people | | in living room, garden, cinema | event
arrive | an-kommen, kommt, kam, ist angekommen | people, transport | | in station, cities, airport, hotel, village | event clock
start | an-fangen, fängt, fing, angefangen | event | | | event clock
come back, came, come | zurück-kommen, kommt, kam, ist zurückgekommen | people, animal | | | clock
go out, went, gone | aus-gehen, geht, ging, ist ausgegangen | people | | | clock
go, went, gone | gehen, geht, ging, ist gegangen | people | | to! home, public, shops, @home, school, beach, lake, forest | clock
drive, drove, driven | fahren, fährt, fuhr, ist gefahren | adult, kin, names | | to! station, airport, beach, cities, @home
fly, flew, flown | fliegen, fliegt, flog, ist geflogen | people | | to! cities
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
NAMES = {
    "Anna": "she",
    "Maria": "she",
    "Lisa": "she",
    "Julia": "she",
    "Peter": "he",
    "Thomas": "he",
    "Paul": "he",
    "Max": "he",
}
_CITIES = {
    "Berlin": "Berlin",
    "Hamburg": "Hamburg",
    "Munich": "München",
    "Vienna": "Wien",
    "Cologne": "Köln",
    "Zurich": "Zürich",
}
GROUPS["cities"] = list(_CITIES)

# Times, after the groups of tenses that they go with; "later" are the modals and "will", "habit" is "like to".
_TIMES = """
present past perfect later: today|heute
past perfect: this morning|heute Morgen
past: yesterday|gestern, yesterday evening|gestern Abend, last week|letzte Woche, last year|letztes Jahr
perfect later: this week|diese Woche
later: tomorrow|morgen, tomorrow evening|morgen Abend, next week|nächste Woche
past later: on Monday|am Montag, on Tuesday|am Dienstag, on Wednesday|am Mittwoch, on Thursday|am Donnerstag, on Friday|am Freitag
present past later habit: in the morning|am Morgen, in the afternoon|am Nachmittag, in the evening|am Abend, at the weekend|am Wochenende
present past later: after breakfast|nach dem Frühstück, before lunch|vor dem Mittagessen, after dinner|nach dem Abendessen
present past: every day|jeden Tag, every morning|jeden Morgen, every evening|jeden Abend, every Sunday|jeden Sonntag
present past habit: in summer|im Sommer, in winter|im Winter
"""

_SPECIAL = """
be, was, been | sein, ist, war, ist gewesen
know, knew, known | wissen, weiß, wusste, gewusst
think, thought, thought | denken, denkt, dachte, gedacht
say, said, said | sagen
hope | hoffen
believe | glauben
ask | fragen
"""


def _nouns(block: str) -> list[Noun]:
    head, _, nouns = block.partition(" | ")
    found = []
    for item in re.split(r"; |\n", nouns):
        english, star, article, german = re.findall(r"(.+?) (\*?)(der|die|das) (.+)", item)[0]
        singular, _, plural = english.partition("/")
        one, _, many = german.partition("/")
        regular = re.sub(r"([^aeiou])ys$", r"\1ies", re.sub(r"(s|x|ch|sh)s$", r"\1es", singular + "s"))
        gender = {"der": "m", "die": "f", "das": "n"}[article]
        found.append(Noun(singular, plural or (many and regular), one, many, gender, bool(star), head.split(": ")[0]))
    return found


def expand(names: str) -> list[str]:
    """The kinds, nouns and places of a list that may name groups."""
    found = (GROUPS.get(name, [name]) for name in names.split(", ") if name)
    return [each for group in found for each in group]


def _verb(line: str) -> Verb:
    english, german, who, what, where, more = (part.strip() for part in (line + "|" * 5).split("|")[:6])
    name, *forms = english.split(", ")
    base, _, particle = name.partition(" ")
    past = re.sub(r"([^aeiou])yed$", r"\1ied", base + ("d" if base.endswith("e") else "ed"))
    word, *formen = german.split(", ")
    prefix, _, infinitive = word.rpartition("-")
    stem = re.sub(r"(?<=r)n$|en$", "", infinitive)
    formen = formen or [stem + "t", stem + "te", f"{prefix}ge{stem}t"]
    objects = [(role, expand(kinds)) for role, _, kinds in (item.partition(" ") for item in what.split("; ") if item)]
    at, _, places = where.partition(" ")
    return Verb(
        name, (base, *(forms or (past, past))), particle, prefix, (infinitive, *formen),
        expand(who or "people"), objects, at, expand(places), more.split(),
    )  # fmt: skip


def _adjective(item: str) -> tuple[str, tuple[str, str, str, str]]:
    english, german, more, mehr = (*item.split(), "", "")[:4]
    word, _, stem = german.partition("/")
    return english, (word, stem or word, more.replace("_", " "), mehr)


_BLOCKS = re.split(r"\n(?=[a-z ]+:)", _NOUNS.strip())
KINDS = {head: adjectives.split(", ") for head, adjectives in (block.split(" | ")[0].split(": ") for block in _BLOCKS)}
NOUNS = {noun.name: noun for block in _BLOCKS for noun in _nouns(block)}
ADJECTIVES = dict(_adjective(item) for item in re.split(r";\s|\n", _ADJECTIVES.strip()))
VERBS = [_verb(line) for line in _VERBS.strip().split("\n")]
SPECIAL = {verb.name: verb for verb in map(_verb, _SPECIAL.strip().split("\n"))}
PLACES = {
    (place, to): tuple(words)
    for line in _PLACES.strip().split("\n")
    for to, words in zip((False, True), (each.split() for each in line.split(": ")[0].split(", ")), strict=True)
    for place in line.split(": ")[1].split(", ")
}
# Places without an article: being there and going there.
FIXED = {("@home", False): ("at home", "zu Hause"), ("@home", True): ("home", "nach Hause")}
FIXED |= {(city, False): (f"in {city}", f"in {stadt}") for city, stadt in _CITIES.items()}
FIXED |= {(city, True): (f"to {city}", f"nach {stadt}") for city, stadt in _CITIES.items()}
TIMES: dict[str, list[tuple[str, str]]] = {}
for _line in _TIMES.strip().split("\n"):
    for _group in _line.split(": ")[0].split():
        TIMES.setdefault(_group, []).extend(
            (item.split("|")[0], item.split("|")[1]) for item in _line.split(": ")[1].split(", ")
        )
NOUNS_OF = {kind: [noun for noun in NOUNS.values() if noun.kind == kind] for kind in KINDS}
VERBS_OF = {kind: [verb for verb in VERBS if kind in verb.subjects] for kind in [*KINDS, "names", "pronouns"]}

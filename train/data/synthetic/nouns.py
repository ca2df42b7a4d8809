"""Nouns and adjectives of the grammar: English ones, and German ones with what it takes to decline them.

An English word has one German word. Where English leaves a choice, it is made here once: "teacher" is der Lehrer.
"""

import re
from typing import NamedTuple


class Noun(NamedTuple):
    """A noun in the nominative, in English and German; a form that does not exist is empty."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str
    weak: bool
    kind: str

    @property
    def name(self) -> str:
        """The English word that names it."""
        return self.english or self.english_plural


# A kind of nouns: the adjectives that go with it. Below it its nouns: "singular/plural der Singular/Plural", without
# an English plural where that is regular, and without any plural where there is none. A star marks weak masculines,
# which have the plural form in the accusative and dative too.
_NOUNS = """
adult: young, old, tall, friendly, famous, polite, rich, poor, clever
    man/men der Mann/Männer; woman/women die Frau/Frauen; teacher der Lehrer/Lehrer; doctor der Arzt/Ärzte
    neighbour *der Nachbar/Nachbarn; farmer *der Bauer/Bauern; baker der Bäcker/Bäcker; student *der Student/Studenten
    waitress die Kellnerin/Kellnerinnen; tourist *der Tourist/Touristen; actress die Schauspielerin/Schauspielerinnen
    guest der Gast/Gäste; policeman/policemen *der Polizist/Polizisten
young: small, clever, brave, lazy, curious
    boy *der Junge/Jungen; girl das Mädchen/Mädchen; child/children das Kind/Kinder; pupil der Schüler/Schüler
kin: dear, old, clever, brave
    father der Vater; mother die Mutter; brother der Bruder/Brüder; sister die Schwester/Schwestern
    uncle der Onkel/Onkel; aunt die Tante/Tanten; grandfather der Großvater; grandmother die Großmutter
    friend der Freund/Freunde; colleague *der Kollege/Kollegen; /parents die /Eltern
junior: dear, small, clever, brave, lazy, curious
    son der Sohn/Söhne; daughter die Tochter/Töchter
animal: small, big, black, white, old, hungry
    dog der Hund/Hunde; cat die Katze/Katzen; horse das Pferd/Pferde; bird der Vogel/Vögel; duck die Ente/Enten
    cow die Kuh/Kühe
fruit: fresh, ripe, sweet, big, red, green
    apple der Apfel/Äpfel; pear die Birne/Birnen; tomato/tomatoes die Tomate/Tomaten
food: fresh, big, small, cheap, good, tasty
    egg das Ei/Eier; potato/potatoes die Kartoffel/Kartoffeln; cake der Kuchen/Kuchen; roll das Brötchen/Brötchen
    biscuit der Keks/Kekse; sausage die Wurst/Würste; orange die Orange/Orangen
staple: fresh, good, cheap, expensive, tasty
    bread das Brot; cheese der Käse; meat das Fleisch; chocolate die Schokolade
sweet: good, cheap, expensive, tasty
    rice der Reis; honey der Honig; butter die Butter
dish: cold, fresh, good, tasty
    soup die Suppe/Suppen; salad der Salat/Salate
drink: cold, good, cheap
    water das Wasser; milk die Milch; juice der Saft; lemonade die Limonade; apple juice der Apfelsaft
    orange juice der Orangensaft; coffee der Kaffee; tea der Tee; cocoa der Kakao
text: interesting, long, short, boring, funny, old, new, good
    book das Buch/Bücher; newspaper die Zeitung/Zeitungen; letter der Brief/Briefe; poem das Gedicht/Gedichte
    report der Bericht/Berichte; novel der Roman/Romane; postcard die Postkarte/Postkarten
tale: funny, sad, beautiful, short, long, old, new
    song das Lied/Lieder; story die Geschichte/Geschichten; fairy tale das Märchen/Märchen
clothes: new, old, warm, elegant, thick, clean, dirty, cheap, expensive, red, blue, green, black, white, grey
    shirt das Hemd/Hemden; coat der Mantel/Mäntel; jacket die Jacke/Jacken; hat der Hut/Hüte; shoe der Schuh/Schuhe
    scarf/scarves der Schal/Schals; glove der Handschuh/Handschuhe; cap die Mütze/Mützen
furniture: new, old, big, small, heavy, modern, cheap, expensive, brown, white, beautiful
    table der Tisch/Tische; kitchen table der Küchentisch/Küchentische; chair der Stuhl/Stühle; bed das Bett/Betten
    cupboard der Schrank/Schränke; lamp die Lampe/Lampen; bookshelf/bookshelves das Bücherregal/Bücherregale
luggage: new, old, big, small, heavy, full, empty, brown, black
    bag die Tasche/Taschen; suitcase der Koffer/Koffer; box die Kiste/Kisten; parcel das Paket/Pakete
crockery: clean, dirty, white, blue
    cup die Tasse/Tassen; plate der Teller/Teller; glass das Glas/Gläser; bottle die Flasche/Flaschen
thing: new, old, small, cheap, expensive, beautiful
    camera die Kamera/Kameras; clock die Uhr/Uhren; umbrella der Regenschirm/Regenschirme; guitar die Gitarre/Gitarren
    ball der Ball/Bälle; ring der Ring/Ringe; key der Schlüssel/Schlüssel; doll die Puppe/Puppen
    ticket die Fahrkarte/Fahrkarten; present das Geschenk/Geschenke; picture das Bild/Bilder
    knife/knives das Messer/Messer
plant: beautiful, big, small, old
    flower die Blume/Blumen; rose die Rose/Rosen; tree der Baum/Bäume
vehicle: new, old, fast, slow, expensive, red, blue, grey
    car das Auto/Autos; bicycle das Fahrrad/Fahrräder; boat das Boot/Boote
transport: new, old, big, fast, slow, full, empty
    bus der Bus/Busse; train der Zug/Züge; ship das Schiff/Schiffe
machine: new, old, modern, loud, cheap, expensive, small
    radio das Radio/Radios; computer der Computer/Computer; washing machine die Waschmaschine/Waschmaschinen
opening: small, big, old, new, white, brown
    window das Fenster/Fenster; door die Tür/Türen; drawer die Schublade/Schubladen
event: long, short, good, interesting, boring, exciting
    film der Film/Filme; concert das Konzert/Konzerte; course der Kurs/Kurse; race das Rennen/Rennen
    party das Fest/Feste; trip die Reise/Reisen; game das Spiel/Spiele
room: big, small, quiet, beautiful
    kitchen die Küche/Küchen; living room das Wohnzimmer/Wohnzimmer; garden der Garten/Gärten
    balcony der Balkon/Balkone; house das Haus/Häuser; flat die Wohnung/Wohnungen
place: big, small, old, new, quiet, beautiful, modern
    park der Park/Parks; café das Café/Cafés; library die Bibliothek/Bibliotheken; museum das Museum/Museen
    cinema das Kino/Kinos; theatre das Theater/Theater; school die Schule/Schulen; office das Büro/Büros
    hotel das Hotel/Hotels; station der Bahnhof/Bahnhöfe; airport der Flughafen/Flughäfen; market der Markt/Märkte
    supermarket der Supermarkt/Supermärkte; bakery die Bäckerei/Bäckereien; village das Dorf/Dörfer
    town die Stadt/Städte; playground der Spielplatz/Spielplätze; church die Kirche/Kirchen
    swimming pool das Schwimmbad/Schwimmbäder; bus stop die Bushaltestelle/Bushaltestellen
nature: big, small, quiet, beautiful
    beach der Strand/Strände; lake der See/Seen; forest der Wald/Wälder
"""

# English German; then the comparatives if they are used. After a slash the German stem, where an ending changes it.
_ADJECTIVES = """
young jung younger jünger; old alt older älter; tall groß taller größer; friendly freundlich friendlier freundlicher
famous berühmt; polite höflich; rich reich richer reicher; poor arm poorer ärmer; small klein smaller kleiner
big groß bigger größer; brave mutig; lazy faul lazier fauler; curious neugierig; dear lieb
clever klug cleverer klüger; black schwarz; white weiß; brown braun; fresh frisch; ripe reif; sweet süß
cheap billig cheaper billiger; red rot; green grün; hungry hungrig; good gut better besser; tasty lecker
expensive teuer/teur more_expensive teurer; cold kalt; interesting interessant more_interesting interessanter
long lang longer länger; short kurz shorter kürzer; boring langweilig; funny lustig funnier lustiger
new neu newer neuer; sad traurig; beautiful schön more_beautiful schöner; warm warm warmer wärmer
elegant elegant more_elegant eleganter; thick dick thicker dicker; clean sauber; dirty schmutzig; blue blau; grey grau
heavy schwer heavier schwerer; modern modern more_modern moderner; full voll; empty leer
fast schnell faster schneller; slow langsam slower langsamer; loud laut louder lauter; quiet ruhig quieter ruhiger
exciting spannend more_exciting spannender; tired müde; ill krank; thirsty durstig; happy glücklich; angry wütend
nervous nervös
"""
COLOURS = frozenset("red blue green black white brown grey".split())
STATES = "tired ill hungry thirsty happy sad angry nervous curious".split()
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


class Adjective(NamedTuple):
    """A German adjective, its stem before an ending, and both comparatives or ""."""

    german: str
    stem: str
    english_comparative: str
    german_comparative: str


def _nouns_of(block: str) -> list[Noun]:
    """The nouns of a kind, from its part of the table."""
    head, *lines = block.split("\n")
    nouns = []
    for item in "; ".join(line.strip() for line in lines).split("; "):
        english, star, article, german = re.findall(r"(.+?) (\*?)(der|die|das) (.+)", item)[0]
        singular, _, plural = english.partition("/")
        german_singular, _, german_plural = german.partition("/")
        if german_plural and not plural:
            plural = regular_s(singular + "s")
        gender = {"der": "m", "die": "f", "das": "n"}[article]
        kind = head.split(": ")[0]
        nouns.append(Noun(singular, plural, german_singular, german_plural, gender, bool(star), kind))
    return nouns


def regular_s(word: str) -> str:
    """The spelling of an English word with a regular s at its end: ladys -> ladies, buss -> buses."""
    return re.sub(r"([^aeiou])ys$", r"\1ies", re.sub(r"(s|x|ch|sh)s$", r"\1es", word))


def _adjective(item: str) -> tuple[str, Adjective]:
    english, german, *comparatives = item.split()
    word, _, stem = german.partition("/")
    english_comparative, german_comparative = comparatives or ("", "")
    return english, Adjective(word, stem or word, english_comparative.replace("_", " "), german_comparative)


_BLOCKS = re.split(r"\n(?=\S)", _NOUNS.strip())
_HEADS = [block.split("\n")[0].split(": ") for block in _BLOCKS]

# By kind: the adjectives that go with it, and its nouns.
KINDS = {kind: adjectives.split(", ") for kind, adjectives in _HEADS}
NOUNS = {noun.name: noun for block in _BLOCKS for noun in _nouns_of(block)}
NOUNS_OF = {kind: [noun for noun in NOUNS.values() if noun.kind == kind] for kind in KINDS}
ADJECTIVES = dict(_adjective(item) for item in re.split(r";\s|\n", _ADJECTIVES.strip()))

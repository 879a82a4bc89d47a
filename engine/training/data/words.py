"""Names and words for the generator."""

import random

from engine.training.data.example import Split, is_held_out


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


FIRST_NAMES = split_words(
    "Mira Jonas Petra Oskar Lena Tomas Ingrid Felix Clara Anton Freya Hugo Nora Viktor Alma Emil Greta Ruben "
    "Selma Otto Ida Casper Vera Milo Astrid Leon Hanna Elias Rosa Bruno Maja Simon Tilda Marek Elsa Nils Dora "
    "Gustav Lucia Kaspar Signe Arvid Flora Matteo Runa Stefan Willa Rafael"
)
SYLLABLES = split_words("bar cor dan fel gar hol jun kal lor mar nel par quin ros sal tor val wen yor zan")
ENDINGS = split_words("a o i en is ek us in el am")
SURNAMES = split_words(
    "Falk Brandt Holm Vance Kerr Lind Marsh Novak Ortiz Pell Quist Rowe Stark Thorn Udell Voss Webb Yates Zeller "
    "Adler Boyle Crane Dorn Ekberg Frost Gale Hale Irwin Jarvis Keller"
)
TOWNS = split_words(
    "Oakham Redmoor Stonefield Elmwood Fairport Greyhaven Hollowell Kingsmere Lowbridge Millbrook Northwick "
    "Otterby Pinecrest Ravensea Saltmarsh Thornbury Underhill Westvale Yarrow Ashdown Birchley Coldwater Dunmore "
    "Eastlake"
)
WORDS = split_words(
    "apple anchor arrow basket bell bird blanket boat bottle bread bridge brush bucket button cabin candle carpet "
    "castle chain chair cherry circle clock cloud coat coffee coin copper corner cotton curtain desk door dragon "
    "drum eagle engine feather fence field finger fire flag flower forest fork fox garden ginger glass glove gold "
    "grape grass hammer harbour hat hill honey horse house island jacket jar jewel kettle key king kitchen ladder "
    "lake lamp leaf lemon letter lion marble market mirror moon mountain mouse needle nest night oak ocean onion "
    "orange paint paper pearl pencil pepper piano pillow planet plate pocket pond queen rabbit rain ribbon ring "
    "river road rope rose sail salt sand school shadow shell ship silver snow spoon spring star stone storm "
    "street sugar summer sun table temple tiger tower train tree tulip tunnel turtle valley velvet violin wagon "
    "wall water wheel willow wind window winter wolf wood yard zebra"
)
COLOURS = split_words("red blue green yellow purple white black brown pink grey orange silver")
JOBS = split_words(
    "baker carpenter doctor driver farmer fisher gardener lawyer mason nurse painter pilot plumber poet sailor "
    "singer smith tailor teacher weaver"
)
ANIMALS = split_words("cat dog horse rabbit parrot goat turtle hamster donkey duck goose pony sheep owl")
FOODS = split_words("soup bread cheese pasta salad curry pizza rice stew pancakes waffles noodles dumplings omelette")
ROOMS = split_words("cellar attic kitchen library garage office workshop pantry studio stable chapel lobby")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def made_up_name(rng: random.Random, split: Split) -> str:
    """Return a name made of syllables; the split decides which combinations may occur."""
    while True:
        name = rng.choice(SYLLABLES) + rng.choice(("", rng.choice(SYLLABLES))) + rng.choice(ENDINGS)
        if is_held_out("name", name) == (split == "test"):
            return name.capitalize()


def first_name(rng: random.Random, split: Split) -> str:
    """Return mostly a common first name, sometimes a made-up one."""
    return made_up_name(rng, split) if rng.random() < 0.2 else rng.choice(FIRST_NAMES)


def people(rng: random.Random, split: Split, count: int) -> list[str]:
    """Return distinct first names."""
    names: dict[str, None] = {}
    while len(names) < count:
        names.setdefault(first_name(rng, split))
    return list(names)

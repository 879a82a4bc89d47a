"""Pairs of questions that are alike and mean something else: the cases in which a similar answer is the wrong one.

Made from templates and words of our own, with a seed. Each kind of change comes in two halves. The rules were tuned on
the first one. The other one has templates, and where a kind is no closed class also words, that no rule was tuned on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, get_args

from loadtests.cache.question_pairs import changed_words
from loadtests.cache.question_pairs.templates import lines_of, two_of

Kind = Literal[
    "negation", "number", "unit", "direction", "name", "verb", "modality", "tense", "quantity", "count", "order", "code"
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Pair:
    """The answer of `cached` is wrong for `prompt`."""

    kind: Kind
    is_held_out: bool
    cached: str
    prompt: str


def pairs(kind: Kind, *, is_held_out: bool, seed: int) -> Iterator[Pair]:
    """Pairs of one kind without end and without order; the same for the same seed."""
    rng = Random(f"{kind} {not is_held_out} {seed}")
    make = _MAKERS[kind]
    while True:
        cached, prompt = make(rng, not is_held_out)
        if rng.random() < 0.5:
            cached, prompt = prompt, cached
        yield Pair(kind, is_held_out, cached, prompt)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in text.split())


_THINGS = _words(
    """the_greenhouse a_bicycle_chain the_compost_heap an_oak_table the_kitchen_tap a_woollen_coat the_garden_hose
    a_violin_bow the_router_firmware the_staging_database a_linen_curtain the_fish_pond a_cast_iron_pan
    the_backup_script a_leather_boot the_chicken_coop the_attic_window the_rice_cooker a_ceramic_vase
    the_invoice_template"""
)
_OCCASIONS = _words(
    """in_January during_a_heatwave at_a_rented_cottage for_a_school_fair on_a_small_balcony at_high_altitude
    for_a_wedding_party in_a_shared_office when_guests_arrive on_an_old_farm"""
)
_DOINGS = tuple(
    pair.split("/")
    for pair in _words(
        """water/watering oil/oiling cover/covering repaint/repainting insulate/insulating polish/polishing
        rinse/rinsing patch/patching sand/sanding photograph/photographing"""
    )
)

# stored template, changed template; {doing} and {do} are forms of one verb
_NEGATED: Final = (
    ("Should I {do} {thing} {when}?", "Should I not {do} {thing} {when}?"),
    ("Is it wise to {do} {thing} {when}?", "Is it wise to never {do} {thing} {when}?"),
    ("Why do people {do} {thing} {when}?", "Why don't people {do} {thing} {when}?"),
    ("Can I {do} {thing} {when} with gloves?", "Can I {do} {thing} {when} without gloves?"),
    ("What happens if I {do} {thing} {when}?", "What happens if I do not {do} {thing} {when}?"),
    ("How do I remember {doing} {thing} {when}?", "How do I avoid {doing} {thing} {when}?"),
    ("Which tools are needed for {doing} {thing}?", "Which tools are not needed for {doing} {thing}?"),
    ("Can I {do} {thing} {when} using gloves?", "Can I {do} {thing} {when} in lieu of gloves?"),
    ("How do I remember {doing} {thing} {when}?", "How do I steer clear of {doing} {thing} {when}?"),
    ("Is {doing} {thing} {when} a good idea?", "Is {doing} {thing} {when} anything but a good idea?"),
    ("What do I gain by {doing} {thing} {when}?", "What do I gain by everything but {doing} {thing} {when}?"),
    ("Is {doing} {thing} {when} a good idea?", "Is {doing} {thing} {when} far from a good idea?"),
    ("Which tools does {doing} {thing} call for?", "Which tools other than oil does {doing} {thing} call for?"),
)
_NEGATED_UNLISTED: Final = (
    ("Should I {do} {thing} {when}?", "Should I desist from {doing} {thing} {when}?"),
    ("Is it wise to keep {doing} {thing} {when}?", "Is it wise to shun {doing} {thing} {when}?"),
    ("What happens if I {do} {thing} {when}?", "What happens if I eschew {doing} {thing} {when}?"),
    ("Which tools does {doing} {thing} call for?", "Which tools does {doing} {thing} dispense with?"),
    ("How do I {do} {thing} {when}?", "How do I get out of {doing} {thing} {when}?"),
    ("Should we {do} {thing} {when}?", "Should we put off {doing} {thing} {when}?"),
    ("Is {doing} {thing} {when} a good idea?", "Is {doing} {thing} {when} the reverse of a good idea?"),
    ("Is it wise to {do} {thing} {when}?", "Is it wise to leave {thing} be {when}?"),
    ("What happens if I {do} {thing} {when}?", "What happens if I give {doing} {thing} {when} a miss?"),
    ("Which tools are needed for {doing} {thing}?", "Which tools are superfluous for {doing} {thing}?"),
)


def _negation(rng: Random, is_listed: bool) -> tuple[str, str]:
    do, doing = rng.choice(_DOINGS)
    slots = {"do": do, "doing": doing, "thing": rng.choice(_THINGS), "when": rng.choice(_OCCASIONS)}
    cached, prompt = rng.choice(_NEGATED if is_listed else _NEGATED_UNLISTED)
    return cached.format(**slots), prompt.format(**slots)


_COUNTED: Final = (
    "How do I bake bread for {} guests {when}?",
    "Is a loan over {} months a good idea for {thing}?",
    "What can I do with {} tomatoes {when}?",
    "How long does it take to paint {} fences {when}?",
    "Can a choir of {} singers perform {when}?",
    "What is the best layout for {} shelves {when}?",
    "How do I store {} letters safely {when}?",
    "Does version {} of the firmware work with {thing}?",
)
_COMPUTED: Final = ("What is {} {} {}?", "How much is {} {} {} in the head?", "Show me that {} {} {} is right.")
_OPERATORS: Final = ("+", "-", "*", "/", "×", "÷", "^")
_ODD_NUMBERS = _words(
    """umpteen_hundred/a_handful_of twentyfold/thirtyfold VIII/XIV XX/XL III/IX several_score/a_gross_of
    scores_of/oodles_of"""
)
_WORD_NUMBERS = _words("three seven eight nine ten twelve fifteen twenty thirty forty sixty ninety two_hundred")


def _number(rng: Random, is_listed: bool) -> tuple[str, str]:
    if is_listed and rng.random() < 0.2:
        template, first, second = rng.choice(_COMPUTED), rng.randrange(2, 99), rng.randrange(2, 99)
        left, right = rng.sample(_OPERATORS, 2)
        return template.format(first, left, second), template.format(first, right, second)
    template = rng.choice(_COUNTED).replace("{when}", rng.choice(_OCCASIONS)).replace("{thing}", rng.choice(_THINGS))
    if not is_listed:
        one, other = rng.choice(_ODD_NUMBERS).split("/")
    elif rng.random() < 0.4:
        one, other = rng.sample(_WORD_NUMBERS, 2)
    else:
        first = rng.choice((2, 3, 4, 5, 8, 10, 12, 16, 24, 30, 48, 75, 120, 250, 900))
        one, other = str(first), str(rng.choice((first * 10, first + 1, first * 2, first + 100)))
    return template.format(one), template.format(other)


_MEASURED: Final = (
    "How heavy is a bag of {n} {u} of {stuff}?",
    "How do I order {n} {u} of {stuff} {when}?",
    "Is a delivery of {n} {u} of {stuff} too much {when}?",
    "What does a crate with {n} {u} of {stuff} cost to ship?",
    "How do I keep {n} {u} of {stuff} dry {when}?",
)
_TIMED: Final = (
    "How far can I walk in {n} {u} {when}?",
    "Is {n} {u} enough to dry {thing} {when}?",
    "Can {thing} be left alone for {n} {u} {when}?",
)
_STUFF = _words("gravel flour birdseed cement sugar barley charcoal sawdust")
_UNIT_SETS: Final = {
    (True, True): _words("grams kilograms pounds ounces tons"),
    (True, False): _words("seconds minutes hours days weeks months years"),
    (False, True): _words("stones bushels carats pecks hundredweights quintals scruples"),
    (False, False): _words("fortnights moons semesters heartbeats fiscal_periods tides"),
}


def _unit(rng: Random, is_listed: bool) -> tuple[str, str]:
    is_weight = rng.random() < 0.5
    one, other = rng.sample(_UNIT_SETS[is_listed, is_weight], 2)
    slots = {"n": str(rng.randrange(2, 60)), "stuff": rng.choice(_STUFF)}
    slots |= {"thing": rng.choice(_THINGS), "when": rng.choice(_OCCASIONS)}
    template = rng.choice(_MEASURED if is_weight else _TIMED)
    return template.format(u=one, **slots), template.format(u=other, **slots)


_TURNED: Final = (
    "How do I travel from {a} to {b} by train?",
    "How do I move my files from {a} to {b}?",
    "Can you translate this letter from {a} into {b}?",
    "Is {a} better than {b} for a beginner?",
    "Should I learn {a} before {b}?",
    "How do I convert {a} to {b} by hand?",
    "Why is {a} more expensive than {b}?",
    "Does {a} lead to {b}?",
    "Can I replace {a} by {b}?",
    "Why did {a} write to {b}?",
    "Can I use {a} inside {b}?",
)
_TURNED_FORMS: Final = (
    ("Should I {do} {thing} before {doing2} {other}?", "Should I {do2} {other} before {doing} {thing}?"),
    ("Should I {do} {thing} before going cycling?", "Should I go cycling before {doing} {thing}?"),
    ("How do I replace {thing} with {other}, step by step?", "How do I replace {other} with {thing}, step by step?"),
    ("Who did {a} photograph first?", "Who photographed {a} first?"),
)
_TURNED_UNLISTED: Final = (
    "Does {a} outrank {b}?",
    "Why did {a} sue {b}?",
    "Is {a} derived out of {b}?",
    "When did {a} colonise {b}?",
    "How does {a} resemble a child of {b}?",
    "Can {a} subsume {b}?",
    "Who says that {a} plagiarised {b}?",
    "Is {a} heavier, gram for gram, than {b}?",
    "How did {a} inspire {b}?",
)
_ENDS = _words(
    "Tallinn Kraków Bergen Ghent Izmir Recife Almaty Windhoek Cusco Leipzig Basque Tamil Esperanto Latin Tagalog"
)
_ENDS_TECHNICAL = _words(
    "Fortran Haskell Cobol Ledgerly Quillbase Zettelbox Nimbuspad Parquetta Tessera Obsidio Kestrelpay"
)


def _direction(rng: Random, is_listed: bool) -> tuple[str, str]:
    one, other = rng.sample(rng.choice((_ENDS, _ENDS_TECHNICAL)), 2)
    if is_listed and rng.random() < 0.4:
        (do, doing), (do2, doing2) = rng.sample(_DOINGS, 2)
        slots = {"do": do, "doing": doing, "do2": do2, "doing2": doing2, "a": one}
        slots["thing"], slots["other"] = rng.sample(_THINGS, 2)
        cached, prompt = rng.choice(_TURNED_FORMS)
        return cached.format(**slots), prompt.format(**slots)
    template = rng.choice(_TURNED if is_listed else _TURNED_UNLISTED)
    return template.format(a=one, b=other), template.format(a=other, b=one)


_NAMED: Final = (
    "Who is the mayor of {}?",
    "What is the best museum in {}?",
    "How do I open a bank account in {}?",
    "What is a typical breakfast in {}?",
    "How cold does it get in {} in January?",
    "Which bus goes to the harbour of {}?",
    "How do I register a small bicycle repair business with the council of {}?",
    "Which documents does a visiting student need for a rented room in {}?",
    "What do families with young children do on a rainy Sunday afternoon in {}?",
    "How long does a parcel with garden tools take to be delivered to {}?",
)
_NAMED_PERSON: Final = (
    "When was the composer {} born?",
    "Which prizes did {} win for chemistry?",
    "What was the first novel of {}?",
    "Where did the painter {} grow up?",
    "Which of the early violin sonatas by {} is easiest for a beginner to play?",
    "What did critics write about the last photography exhibition of {}?",
    "How do I cite a chapter on coastal erosion written by {} in my thesis?",
    "Is there a recording of the lecture on medieval bridges by {}?",
)
_PLACES = _words(
    "Tallinn Bergen Ghent Izmir Recife Almaty Windhoek Cusco Leipzig Galway Turku Brno Split Varna Pécs Bari"
)
_PEOPLE = _words(
    """Halvorsen Okonkwo Lindqvist Marchetti Delacroix Yamanaka Petrosyan Abernathy Castellanos Wojcik Njoroge Svensson
    Ferreira Baumgartner"""
)


def _name(rng: Random, is_listed: bool) -> tuple[str, str]:
    """No name is in any list: here "listed" ones have a capital letter, the others are in small letters."""
    people = rng.random() < 0.5
    template = rng.choice(_NAMED_PERSON if people else _NAMED)
    one, other = (template.format(name) for name in rng.sample(_PEOPLE if people else _PLACES, 2))
    return (one, other) if is_listed else (one.lower(), other.lower())


_ACTED: Final = (
    "How do I {} {thing} {when}?",
    "Can I {} {thing} {when}?",
    "What does it cost to {} {thing}?",
    "Is it legal to {} {thing} {when}?",
    "Who can {} {thing} for me {when}?",
)
_OPPOSITE_VERBS = _words(
    """open/close lock/unlock buy/sell install/uninstall enable/disable attach/detach fill/empty heat/cool lift/drop
    turn_on/turn_off switch_on/switch_off scale_up/scale_down
    mount/unmount hide/show import/export break/fix cover/uncover raise/lower tighten/loosen"""
)
_OTHER_VERBS = _words(
    """glaze varnish dismantle auction weigh disinfect upholster engrave insure ship calibrate donate shred microwave
    bleach"""
)


def _verb(rng: Random, is_listed: bool) -> tuple[str, str]:
    template = rng.choice(_ACTED).replace("{thing}", rng.choice(_THINGS)).replace("{when}", rng.choice(_OCCASIONS))
    one, other = rng.choice(_OPPOSITE_VERBS).split("/") if is_listed else rng.sample(_OTHER_VERBS, 2)
    return template.format(one), template.format(other)


def _from_lines(listed: str, held_out: str) -> Callable[[Random, bool], tuple[str, str]]:
    halves = {True: lines_of(listed), False: lines_of(held_out)}
    return lambda rng, is_listed: two_of(rng.choice(halves[is_listed]), rng)


_MAKERS: Final[dict[Kind, Callable[[Random, bool], Sequence[str]]]] = {
    "negation": _negation,
    "number": _number,
    "unit": _unit,
    "direction": _direction,
    "name": _name,
    "verb": _verb,
    "modality": _from_lines(changed_words.MODALITY, changed_words.MODALITY_HELD_OUT),
    "tense": _from_lines(changed_words.TENSE, changed_words.TENSE_HELD_OUT),
    "quantity": _from_lines(changed_words.QUANTITY, changed_words.QUANTITY_HELD_OUT),
    "count": _from_lines(changed_words.NUMBER, changed_words.NUMBER_HELD_OUT),
    "order": _from_lines(changed_words.ORDER, changed_words.ORDER_HELD_OUT),
    "code": _from_lines(changed_words.CODE, changed_words.CODE_HELD_OUT),
}

"""Templates: questions made from lines of text and a seed, with slots for things, people, places and deeds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in text.split())


_DEEDS: Final = _words(
    "oil varnish insulate repaint photograph dismantle auction weigh disinfect polish rinse patch glaze sand"
)
_THINGS: Final = _words(
    """the_greenhouse a_bicycle_chain the_compost_heap an_oak_table the_kitchen_tap a_woollen_coat a_violin_bow
    a_linen_curtain a_cast_iron_pan a_leather_boot the_chicken_coop the_attic_window a_ceramic_vase"""
)
_OCCASIONS: Final = _words(
    """in_January during_a_heatwave at_a_rented_cottage for_a_school_fair on_a_small_balcony at_high_altitude
    for_a_wedding_party when_guests_arrive on_an_old_farm"""
)
_PEOPLE: Final = _words("Halvorsen Okonkwo Lindqvist Marchetti Delacroix Yamanaka Petrosyan Abernathy Njoroge")
_TOWNS: Final = _words("Tallinn Bergen Ghent Izmir Recife Almaty Windhoek Cusco Galway Turku Varna")


def filled(rng: Random) -> dict[str, str]:
    """Return a choice for every slot."""
    person, other_person = rng.sample(_PEOPLE, 2)
    town, other_town = rng.sample(_TOWNS, 2)
    return {
        "do": rng.choice(_DEEDS),
        "thing": rng.choice(_THINGS),
        "when": rng.choice(_OCCASIONS),
        "person": person,
        "other_person": other_person,
        "town": town,
        "other_town": other_town,
    }


def two_of(line: str, rng: Random, split: str = " ¦ ") -> tuple[str, str]:
    """Return two questions of a line: a template with words behind a bar, or whole questions."""
    template, bar, words = line.partition(" | ")
    one, other = rng.sample((words if bar else line).split(split), 2)
    slots = filled(rng)
    if not bar:
        return _with(one.strip(), slots), _with(other.strip(), slots)
    whole = _with(template, slots)
    return whole.replace("{}", one.strip()), whole.replace("{}", other.strip())


def lines_of(text: str) -> Sequence[str]:
    """Return the lines of a block."""
    return text.strip().splitlines()


def _with(text: str, slots: dict[str, str]) -> str:
    for name, value in slots.items():
        text = text.replace("{" + name + "}", value)
    return text[0].upper() + text[1:]

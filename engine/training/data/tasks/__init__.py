"""Task families; each makes one example for a split and a difficulty."""

import random
from collections.abc import Callable, Mapping

from engine.training.data.example import Difficulty, Example, Split
from engine.training.data.tasks import (
    arithmetic,
    extraction,
    followup,
    passage,
    smalltalk,
    strings,
    support,
    units,
    unknown,
)

Maker = Callable[[random.Random, Split, Difficulty], Example]
MAKERS: Mapping[str, Maker] = {
    "support": support.make,
    "arithmetic": arithmetic.make,
    "strings": strings.make,
    "units": units.make,
    "extraction": extraction.make,
    "passage": passage.make,
    "followup": followup.make,
    "unknown": unknown.make,
    "smalltalk": smalltalk.make,
}
TRAINING_ONLY: Mapping[str, Maker] = {"copying": strings.copying, "counting": strings.counting}
EASY_ONLY = frozenset({"smalltalk", "copying", "counting"})

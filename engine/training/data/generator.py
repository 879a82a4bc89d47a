"""Seeded stream of examples, mixed by task and difficulty."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from engine.training.data.example import DIFFICULTIES, Difficulty, Example, ExampleMessage, Split, assistant
from engine.training.data.tasks import EASY_ONLY, MAKERS, TRAINING_ONLY

SYSTEM_PROMPTS: Mapping[Split, tuple[str, ...]] = {
    "train": (
        "You are a helpful assistant.",
        "You are the assistant of Harbour & Pine.",
        "Answer briefly.",
        "You help customers of the shop Harbour & Pine.",
        "You are a support assistant. Be polite and short.",
        "Answer the question of the customer.",
    ),
    "test": ("You are the support assistant of Harbour & Pine.", "You are a helpful assistant. Answer briefly."),
}


Cells = Mapping[tuple[str, Difficulty], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Frequencies of tasks and difficulties."""

    cells: Cells
    joined_ratio: float = 0.2
    system_ratio: float = 0.25


def _cells(tasks: Mapping[str, float], shares: tuple[float, float, float], **passages: float) -> Cells:
    """Return task weights times difficulty shares; keyword arguments replace the weights of passages."""
    weights = {
        (task, difficulty): weight * share
        for task, weight in tasks.items()
        for difficulty, share in zip(DIFFICULTIES, shares, strict=True)
        if difficulty == "easy" or task not in EASY_ONLY
    }
    replaced = {("passage", level): passages[level] for level in DIFFICULTIES if level in passages}
    return weights | replaced


def _without_cheapest(tasks: Mapping[str, float], shares: tuple[float, float, float], **passages: float) -> Cells:
    """Return the weights of `_cells` without the cells about the cheapest of several."""
    cells = _cells(tasks, shares, **passages)
    return {cell: weight for cell, weight in cells.items() if cell not in {("support", "hard"), ("followup", "hard")}}


_TASKS = {
    "support": 2.5, "arithmetic": 5.5, "strings": 5.0, "units": 2.5, "extraction": 5.0, "passage": 6.0, "followup": 2.0,
    "unknown": 2.0, "smalltalk": 1.0,
}  # fmt: skip
_COPYING = _TASKS | {
    "copying": 32.0, "passage": 9.0, "support": 1.5, "arithmetic": 1.5, "units": 1.0, "followup": 1.0, "unknown": 1.0
}  # fmt: skip
_ADVANCED = _TASKS | {
    "arithmetic": 7.0, "units": 4.0, "strings": 6.0, "support": 4.0, "extraction": 5.0, "passage": 9.0,
    "followup": 4.0, "smalltalk": 1.5,
}  # fmt: skip
_FORMS = (
    _ADVANCED
    | {"copying": 2.0, "counting": 5.0, "arithmetic": 22.0, "units": 9.0, "strings": 12.0}
    | {"extraction": 8.0, "unknown": 4.0, "support": 5.0, "followup": 5.0}
)
MIXES: Mapping[str, Mix] = {
    # Both models start here: looking things up must be learned before long texts are of any use.
    "warmup": Mix(cells=_cells(_COPYING, (0.6, 0.2, 0.2), hard=0.0)),
    # All tasks follow, cheaply, in the small shape; the large model grows from there.
    "shared": Mix(cells=_cells(_TASKS, (0.50, 0.25, 0.25), hard=0.3)),
    # The large model starts with the small one's abilities, so it works on the rest.
    "large": Mix(cells=_cells(_ADVANCED, (0.42, 0.23, 0.35), hard=1.0), joined_ratio=0.3),
    # It ends on the most important prompts: easy ones, unseen names and numbers, passages.
    "polish": Mix(
        cells=_cells(
            _ADVANCED | {"copying": 4.0, "counting": 7.0, "extraction": 8.0, "strings": 8.0},
            (0.6, 0.2, 0.2),
            easy=8.0,
            hard=1.5,
        ),
        joined_ratio=0.25,
    ),
    # Finished weights are trained further on their weakest tasks, with some of everything.
    "finish": Mix(
        cells=_cells(
            _ADVANCED
            | {"copying": 2.0, "counting": 5.0, "extraction": 9.0, "strings": 7.0, "units": 5.0, "unknown": 4.0},
            (0.55, 0.2, 0.25),
            easy=12.0,
            medium=5.0,
            hard=3.0,
        ),
        joined_ratio=0.2,
    ),
    # Finished weights are trained further on small tasks, numbers above all, with enough of the rest to prevent
    # forgetting.
    "forms": Mix(
        cells=_cells(_FORMS, (0.55, 0.2, 0.25), easy=8.0, medium=4.0, hard=2.5),
        joined_ratio=0.2,
    ),
    # And then on sums, which take longest to learn.
    "sums": Mix(
        cells=_cells(
            _FORMS | {"arithmetic": 40.0, "units": 12.0, "strings": 9.0},
            (0.5, 0.25, 0.25),
            easy=8.0,
            medium=4.0,
            hard=2.5,
        ),
        joined_ratio=0.2,
    ),
    # The small model learns them as the cheap model: hardly any hard ones, and none about the cheapest of several.
    "small_forms": Mix(
        cells=_without_cheapest(
            _TASKS | {"counting": 4.0, "arithmetic": 16.0, "units": 5.0, "strings": 8.0, "support": 4.0},
            (0.78, 0.20, 0.02),
            easy=6.0,
            medium=2.0,
            hard=0.0,
        ),
        joined_ratio=0.2,
    ),
    # Data for the Medusa heads: answers of every kind, more of those that are long.
    "ahead": Mix(
        cells=_cells(
            _ADVANCED | {"support": 6.0, "extraction": 9.0, "unknown": 3.0},
            (0.45, 0.27, 0.28),
            easy=9.0,
            medium=5.0,
            hard=2.0,
        ),
        joined_ratio=0.35,
    ),
    # The small model is the cheap one: it ends on hardly any hard examples, so that it is reliable on the easy ones.
    "small": Mix(cells=_cells(_TASKS, (0.78, 0.20, 0.02), hard=0.0)),
}


def draw_example(rng: random.Random, split: Split, mix: Mix) -> Example:
    """Return one example of the mix; some get a system prompt, some continue an unrelated conversation."""
    example = _plain(rng, split, mix)
    if split == "train" and rng.random() < mix.joined_ratio and len(example.prompt) < 400:
        example = join([_plain(rng, split, mix) for _ in range(rng.randint(1, 3))], example)
    return with_system(rng, split, example) if rng.random() < mix.system_ratio else example


def join(before: list[Example], last: Example) -> Example:
    """Return one conversation of the earlier examples with their answers and the last one; long ones are left out."""
    messages: list[ExampleMessage] = []
    for example in before:
        if sum(len(message["content"]) for message in example.messages) < 600:
            messages += [*example.messages, assistant(example.answer)]
    return replace(last, messages=(*messages, *last.messages))


def with_system(rng: random.Random, split: Split, example: Example) -> Example:
    """Return the example with a system prompt in front."""
    system: ExampleMessage = {"role": "system", "content": rng.choice(SYSTEM_PROMPTS[split])}
    return replace(example, messages=(system, *example.messages))


def stream(seed: int | str, split: Split, mix: Mix) -> Iterator[Example]:
    """Yield examples without end; a seed always gives the same stream."""
    rng = random.Random(f"{split}:{seed}")
    while True:
        yield draw_example(rng, split, mix)


def test_set(seed: int, samples: int) -> list[Example]:
    """Return `samples` held-out prompts of each task and difficulty, a quarter of them with a system prompt."""
    rng = random.Random(f"test:{seed}")
    examples: dict[tuple[ExampleMessage, ...] | str, Example] = {}
    for task, make in MAKERS.items():
        for difficulty in DIFFICULTIES[:1] if task in EASY_ONLY else DIFFICULTIES:
            for _ in range(samples):
                example = make(rng, "test", difficulty)
                if rng.random() < 0.25:
                    example = with_system(rng, "test", example)
                examples.setdefault(repr(example.messages), example)
    return list(examples.values())


def _plain(rng: random.Random, split: Split, mix: Mix) -> Example:
    task, difficulty = rng.choices(list(mix.cells), list(mix.cells.values()))[0]
    make = TRAINING_ONLY.get(task) or MAKERS[task]
    return make(rng, split, difficulty)

"""The seeded stream of examples, mixed by task and difficulty."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from engine.bundled.example import DIFFICULTIES, Difficulty, Example, Message, Split, assistant
from engine.bundled.tasks import EASY_ONLY, MAKERS

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How often each task and difficulty comes up."""

    tasks: Mapping[str, float]
    difficulties: Mapping[Difficulty, float]
    joined_ratio: float = 0.2
    system_ratio: float = 0.25


TASK_WEIGHTS: Mapping[str, float] = {
    "support": 5, "arithmetic": 4, "strings": 4, "units": 3, "extraction": 3, "passage": 4, "followup": 3, "unknown": 2,
    "smalltalk": 0.5,
}  # fmt: skip
MIXES: Mapping[str, Mix] = {
    "large": Mix(tasks=TASK_WEIGHTS, difficulties={"easy": 0.35, "medium": 0.25, "hard": 0.40}),
    "small": Mix(tasks=TASK_WEIGHTS, difficulties={"easy": 0.70, "medium": 0.22, "hard": 0.08}),
}


def draw(rng: random.Random, split: Split, mix: Mix) -> Example:
    """One example of the mix; some get a system prompt, some continue an unrelated conversation."""
    example = _plain(rng, split, mix)
    if split == "train" and rng.random() < mix.joined_ratio and len(example.prompt) < 400:
        example = join([_plain(rng, split, mix) for _ in range(rng.randint(1, 3))], example)
    return with_system(rng, split, example) if rng.random() < mix.system_ratio else example


def join(before: list[Example], last: Example) -> Example:
    """One conversation: the earlier examples with their answers, then the last one; long ones are left out."""
    messages: list[Message] = []
    for example in before:
        if sum(len(message["content"]) for message in example.messages) < 600:
            messages += [*example.messages, assistant(example.answer)]
    return replace(last, messages=(*messages, *last.messages))


def with_system(rng: random.Random, split: Split, example: Example) -> Example:
    """The example with a system prompt in front."""
    system: Message = {"role": "system", "content": rng.choice(SYSTEM_PROMPTS[split])}
    return replace(example, messages=(system, *example.messages))


def stream(seed: int | str, split: Split, mix: Mix) -> Iterator[Example]:
    """Endless examples; the same seed gives the same stream."""
    rng = random.Random(f"{split}:{seed}")
    while True:
        yield draw(rng, split, mix)


def test_set(seed: int, samples: int) -> list[Example]:
    """Held-out prompts: so many of every task and difficulty, a quarter of them with a system prompt."""
    rng = random.Random(f"test:{seed}")
    examples: dict[tuple[Message, ...] | str, Example] = {}
    for task, make in MAKERS.items():
        for difficulty in DIFFICULTIES[:1] if task in EASY_ONLY else DIFFICULTIES:
            for _ in range(samples):
                example = make(rng, "test", difficulty)
                if rng.random() < 0.25:
                    example = with_system(rng, "test", example)
                examples.setdefault(repr(example.messages), example)
    return list(examples.values())


def _plain(rng: random.Random, split: Split, mix: Mix) -> Example:
    task = rng.choices(list(mix.tasks), list(mix.tasks.values()))[0]
    difficulty = rng.choices(list(mix.difficulties), list(mix.difficulties.values()))[0]
    return MAKERS[task](rng, split, "easy" if task in EASY_ONLY else difficulty)

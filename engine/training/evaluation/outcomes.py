"""Record which bundled model answers which prompt right, with the log probabilities of its first tokens.

`python -m engine.training.evaluation.outcomes --split train --samples 150 --out outcomes.jsonl` writes one JSON object
per prompt, for `penstock policy train` and `penstock bench routing`. The two splits share no wordings.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from engine.bundled import model_dir
from engine.training.data.example import DIFFICULTIES, Example, Split
from engine.training.data.generator import join, test_set, with_system
from engine.training.data.grade import is_right
from engine.training.data.tasks import EASY_ONLY, MAKERS
from engine.training.evaluation.decode import GreedyDecoder, Reply

CHUNK = 250
FIRST_TOKENS = 24
"""Number of tokens of each answer whose log probabilities are written."""


def training_set(seed: int, samples: int, tasks: Sequence[str] = tuple(MAKERS)) -> list[Example]:
    """Return `samples` prompts of each task and difficulty in wordings of the training split.

    Some end a longer conversation. Of those about a passage, half contain their first question in the same message.
    """
    rng = random.Random(f"outcomes:{seed}")
    found: dict[str, Example] = {}
    for task in tasks:
        make = MAKERS[task]
        for difficulty in DIFFICULTIES[:1] if task in EASY_ONLY else DIFFICULTIES:
            for _ in range(samples):
                example = make(rng, "train", difficulty)
                if task == "passage" and rng.random() < 0.5:
                    example = _first_question(example)
                if rng.random() < 0.1 and len(example.prompt) < 400:
                    other = rng.choice(list(MAKERS.values()))(rng, "train", "easy")
                    example = join([other], example)
                if rng.random() < 0.25:
                    example = with_system(rng, "train", example)
                found.setdefault(repr(example.messages), example)
    return list(found.values())


def _first_question(example: Example) -> Example:
    """Return the example cut after its first question."""
    if len(example.messages) < 3:
        return example
    question, answered = example.messages[:2]
    return replace(example, messages=(question,), answer=answered["content"])


def outcomes(examples: Sequence[Example], decoders: dict[str, GreedyDecoder]) -> Iterator[dict[str, object]]:
    """Yield one outcome for each example, in order."""
    for start in range(0, len(examples), CHUNK):
        chunk = examples[start : start + CHUNK]
        replies = {name: decoder.replies(chunk) for name, decoder in decoders.items()}
        for index, example in enumerate(chunk):
            yield _outcome(example, {name: found[index] for name, found in replies.items()})


def _outcome(example: Example, replies: dict[str, Reply]) -> dict[str, object]:
    return {
        "messages": list(example.messages),
        "category": f"{example.task} {example.difficulty}",
        "outcomes": {name: float(is_right(reply.text, example.answer)) for name, reply in replies.items()},
        "tokens": {name: len(reply.logprobs) for name, reply in replies.items()},
        "logprobs": {name: _rounded(reply.logprobs) for name, reply in replies.items()},
        "margins": {name: _rounded(reply.margins) for name, reply in replies.items()},
    }


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 4) for value in values][:FIRST_TOKENS]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=("train", "test"), default="train", help="whose wordings")
    parser.add_argument("--samples", type=int, default=150, help="prompts per task and difficulty")
    parser.add_argument("--tasks", nargs="+", choices=MAKERS, default=list(MAKERS), help="only these; training only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="a file that is there already is continued")
    return parser.parse_args()


def main() -> None:
    """Run from the command line."""
    options = _options()
    split: Split = options.split
    if split == "train":
        examples = training_set(options.seed, options.samples, options.tasks)
    else:
        examples = test_set(options.seed, options.samples)
    num_done = len(options.out.read_bytes().splitlines()) if options.out.exists() else 0
    order = random.Random(options.seed)
    order.shuffle(examples)
    decoders = {f"penstock-{name}": GreedyDecoder(model_dir(name)) for name in ("small", "large")}
    with options.out.open("a", encoding="utf-8") as out:
        for number, outcome in enumerate(outcomes(examples[num_done:], decoders), num_done + 1):
            out.write(json.dumps(outcome, ensure_ascii=False) + "\n")
            if number % CHUNK == 0 or number == len(examples):
                out.flush()
                print(f"{number} of {len(examples)} prompts", file=sys.stderr)


if __name__ == "__main__":
    main()

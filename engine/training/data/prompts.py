"""Print held-out prompts of the bundled models' tasks as JSON lines: `python -m engine.training.data.prompts`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from engine.training.data.generator import test_set


def main(argv: Sequence[str] | None = None) -> int:
    """Print `{"task", "difficulty", "messages", "answer"}` for the prompts of each task and difficulty."""
    parser = argparse.ArgumentParser(prog="python -m engine.training.data.prompts", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=4, help="of each task and difficulty (default %(default)s)")
    options = parser.parse_args(argv)
    for example in test_set(options.seed, options.samples):
        told = {"task": example.task, "difficulty": example.difficulty, "messages": example.messages}
        print(json.dumps({**told, "answer": example.answer}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

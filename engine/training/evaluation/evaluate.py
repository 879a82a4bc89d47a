"""Measure accuracy on held-out prompts by task, difficulty and model: `python -m engine.training.evaluation.evaluate`.

Without options the shipped weights run in this process. With `--url` the prompts go to a server
with the OpenAI chat API, once for each name in `--names`.
"""

import argparse
import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from engine.bundled import model_dir
from engine.training.data.example import DIFFICULTIES, Difficulty, Example
from engine.training.data.generator import test_set
from engine.training.data.grade import is_right
from engine.training.evaluation.exhaustive import exhaustive_set

Cell = tuple[str, Difficulty]


class Answerer(Protocol):
    """Source of answers to prompts."""

    def answers(self, examples: Sequence[Example]) -> list[str]:
        """Return one answer for each example, in order."""


class HttpAnswerer:
    """Model behind an OpenAI-compatible HTTP endpoint."""

    def __init__(self, url: str, model: str, api_key: str | None, concurrency: int) -> None:
        self._url = url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._concurrency = concurrency

    def answers(self, examples: Sequence[Example]) -> list[str]:
        """Return one answer for each example, in order; an HTTP error stops the evaluation."""
        return asyncio.run(self._all(examples))

    async def _all(self, examples: Sequence[Example]) -> list[str]:
        import httpx

        gate = asyncio.Semaphore(self._concurrency)
        async with httpx.AsyncClient(headers=self._headers, timeout=120.0) as client:

            async def request_answer(example: Example) -> str:
                body = {"model": self._model, "messages": example.messages, "temperature": 0, "max_tokens": 160}
                async with gate:
                    response = await client.post(self._url, json=body)
                response.raise_for_status()
                return str(response.json()["choices"][0]["message"]["content"] or "")

            return list(await asyncio.gather(*map(request_answer, examples)))


def grade(answerer: Answerer, examples: Sequence[Example], num_failures: int) -> dict[Cell, list[bool]]:
    """Grade every example by task and difficulty, and print some wrong answers."""
    marks: dict[Cell, list[bool]] = defaultdict(list)
    for example, answer in zip(examples, answerer.answers(examples), strict=True):
        cell = marks[example.task, example.difficulty]
        cell.append(is_right(answer, example.answer))
        if not cell[-1] and cell.count(False) <= num_failures:
            where = f"[{example.task}/{example.difficulty}] {example.prompt[-160:]!r}"
            print(f"  {where} -> {answer!r}, not {example.answer!r}")
    return dict(marks)


def percent(marks: Mapping[Cell, Sequence[bool]], difficulty: Difficulty | None = None) -> float:
    """Return the percentage of right answers over all prompts or those of one difficulty."""
    flat = [mark for (_, level), cell in marks.items() if difficulty in (None, level) for mark in cell]
    return round(100 * sum(flat) / len(flat), 1) if flat else 0.0


def table(results: Mapping[str, Mapping[Cell, Sequence[bool]]]) -> str:
    """Return a table with a row for each task and difficulty and a column for each model."""
    cells = list(dict.fromkeys(cell for marks in results.values() for cell in marks))
    lines = ["| task | difficulty | " + " | ".join(results) + " |", "|---|---|" + "---:|" * len(results)]
    for task, difficulty in cells:
        values = (f"{percent({(task, difficulty): marks[task, difficulty]}):.1f}" for marks in results.values())
        lines.append(f"| {task} | {difficulty} | {' | '.join(values)} |")
    for level in (*DIFFICULTIES, None):
        values = (f"{percent(marks, level):.1f}" for marks in results.values())
        lines.append(f"| **all** | {level or 'all'} | {' | '.join(values)} |")
    return "\n".join(lines)


def summary(results: Mapping[str, Mapping[Cell, Sequence[bool]]], samples: int, seed: int) -> dict[str, object]:
    """Return the figures of the last line: overall and per difficulty for each model."""
    figures: dict[str, object] = {"samples_per_cell": samples, "seed": seed}
    for name, marks in results.items():
        short = name.removeprefix("penstock-")
        figures[f"{short}_overall"] = percent(marks)
        for difficulty in DIFFICULTIES:
            figures[f"{short}_{difficulty}"] = percent(marks, difficulty)
    return figures


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=40, help="prompts per task and difficulty")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exhaustive", action="store_true", help="ask for every sum of a digit and the like instead")
    parser.add_argument("--model", type=Path, nargs="+", help="model folders (default: the shipped pair)")
    parser.add_argument("--url", help="base URL of an OpenAI-compatible API, such as http://127.0.0.1:8080/v1")
    names = ["penstock-large", "penstock-small"]
    parser.add_argument("--names", nargs="+", default=names, help="models to call at --url")
    parser.add_argument("--api-key", help="bearer token for --url")
    parser.add_argument("--concurrency", type=int, default=16, help="requests under way at --url")
    parser.add_argument("--failures", type=int, default=0, help="wrong answers to print for each task and difficulty")
    return parser.parse_args()


def _answerers(options: argparse.Namespace) -> dict[str, Answerer]:
    if options.url:
        return {name: HttpAnswerer(options.url, name, options.api_key, options.concurrency) for name in options.names}
    from engine.training.evaluation.decode import GreedyDecoder

    folders = options.model or [model_dir("large"), model_dir("small")]
    return {folder.name: GreedyDecoder(folder) for folder in folders}


def main() -> None:
    """Run the evaluation from the command line."""
    options = _options()
    examples = exhaustive_set(options.seed) if options.exhaustive else test_set(options.seed, options.samples)
    results = {}
    for name, answerer in _answerers(options).items():
        print(f"{name}: {len(examples)} prompts", file=sys.stderr)
        results[name] = grade(answerer, examples, options.failures)
    print(table(results))
    print(json.dumps(summary(results, options.samples, options.seed)))


if __name__ == "__main__":
    main()

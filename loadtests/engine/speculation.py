"""Speculation: decode with drafts on and off, task by task on held-out prompts, the same answers on both sides."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from statistics import median

from loadtests.clients.completions import PlainAnswer, answer_chat
from loadtests.clients.http_client import Address, clock
from loadtests.engine.part import Finding, Results, Setting
from loadtests.harness.bundled_prompts import bundled_prompts
from loadtests.harness.processes import ProcessFailed, Workbench
from loadtests.harness.stack import metric, start_engine

_BATCHES = {1: 1, 8: 4}
"""Sizes, and calls of each in a round: many at once take less time, and vary more by the order of arrival."""
_COPYING_TASKS = ("extraction", "passage")
"""Answers that repeat the question's words; the key of batch 1 is the lower of these."""
_SAMPLES = 24
_MAX_TOKENS = 128
_MIN_REPEATS = 2

Task = Sequence[Sequence[object]]
"""Conversations."""


Seconds = dict[str, dict[int, list[float]]]
"""By side and prompt, of every time that it was called."""

_FLAGS = {
    "on": ("--speculation", "auto"),
    "off": ("--speculation", "off"),
    "control": ("--speculation", "off"),
}
"""Of each side. What two engines without drafts differ by is what a ratio beside one of them may be wrong by."""


@dataclass(slots=True)
class _Cell:
    """One task at one batch size: what every side took for each prompt, for the same answers."""

    decode_s: Seconds = field(default_factory=lambda: {side: defaultdict(list) for side in _FLAGS})
    whole_s: Seconds = field(default_factory=lambda: {side: defaultdict(list) for side in _FLAGS})

    @property
    def ratio(self) -> float:
        """Decode tokens per second, on over both others; the answers are equal, so times are enough."""
        return _ratio(self.decode_s)

    @property
    def whole_ratio(self) -> float:
        """The same with queue and prefill."""
        return _ratio(self.whole_s)

    @property
    def control_ratio(self) -> float:
        """Decode tokens per second of two engines that differ in nothing."""
        return _usual(self.decode_s["off"]) / _usual(self.decode_s["control"])


def _ratio(seconds: Seconds) -> float:
    plain = {prompt: times + seconds["control"][prompt] for prompt, times in seconds["off"].items()}
    return _usual(plain) / _usual(seconds["on"])


def _usual(times_of: Mapping[int, Sequence[float]]) -> float:
    """The usual time for each prompt, all prompts together: a hiccup of the machine does not show."""
    return sum(median(times) for times in times_of.values())


async def measure_speculation(setting: Setting) -> Finding:
    """Engines that differ in nothing else, called in turn."""
    async with Workbench() as bench:
        tasks = await _read_tasks(bench, setting.seed)
        flags = setting.flags("--max-num-seqs", str(max(_BATCHES)))
        engines = {
            side: (await start_engine(bench, setting.model, *flags, *more, name=side)).address
            for side, more in _FLAGS.items()
        }
        cells = await _measure(engines, tasks, setting.seconds)
        drafted = await metric(engines["on"], "engine_speculation_drafted_tokens_total")
        accepted = await metric(engines["on"], "engine_speculation_accepted_tokens_total")
    return _finding(cells, drafted, accepted)


async def _read_tasks(bench: Workbench, seed: int) -> dict[str, Task]:
    """Conversations of every task."""
    tasks: dict[str, list[Sequence[object]]] = defaultdict(list)
    for prompt in await bundled_prompts(bench, seed=seed, samples=_SAMPLES):
        tasks[str(prompt["task"])].append(prompt["messages"])
    return dict(tasks)


async def _measure(
    engines: Mapping[str, Address], tasks: Mapping[str, Task], seconds: float
) -> dict[tuple[str, int], _Cell]:
    """Cells by task and batch size. Each round takes the next prompts of every task."""
    cells: dict[tuple[str, int], _Cell] = {}
    sides, orders = list(engines), Random(0)
    end_at = clock() + seconds
    number = 0
    while number <= _MIN_REPEATS or clock() < end_at:
        for task, prompts in tasks.items():
            first = number * max(_BATCHES) % len(prompts)
            group = list(islice(_from(prompts, first), max(_BATCHES)))
            for batch in (batch for batch, count in _BATCHES.items() for _ in range(count)):
                found = await _compare(engines, group, batch, orders.sample(sides, len(sides)))
                if number:  # in the first round the engines learn what drafts are worth
                    _note(cells.setdefault((task, batch), _Cell()), first, found)
        number += 1
    return cells


def _from(prompts: Task, start: int) -> Task:
    """The prompts in a circle."""
    return [*prompts[start:], *prompts[:start]]


async def _compare(
    engines: Mapping[str, Address], group: Task, batch: int, order: Sequence[str]
) -> dict[str, list[PlainAnswer]]:
    """The same prompts to all sides: one at a time in turn, or so many at once. Raises ProcessFailed."""
    found: dict[str, list[PlainAnswer]] = {name: [] for name in order}
    for start in range(0, len(group), batch):
        for name in order:
            part = group[start : start + batch]
            found[name] += await asyncio.gather(*(answer_chat(engines[name], each, _MAX_TOKENS) for each in part))
    for one, other in zip(found["on"], found["off"], strict=True):
        if one.text != other.text:
            raise ProcessFailed(f"drafts changed an answer: {one.text!r} in place of {other.text!r}")
    return found


def _note(cell: _Cell, first: int, found: Mapping[str, Sequence[PlainAnswer]]) -> None:
    """Enter answers to the prompts from the first on; those of a single token decode nothing."""
    for side, answers in found.items():
        for index, answer in enumerate(answers):
            if answer.decode_s:
                cell.decode_s[side][first + index].append(answer.decode_s)
                cell.whole_s[side][first + index].append(answer.engine_s)


def _finding(cells: Mapping[tuple[str, int], _Cell], drafted: float, accepted: float) -> Finding:
    cells = {key: cell for key, cell in cells.items() if cell.decode_s["on"]}
    worst = min(cells, key=lambda key: cells[key].ratio)
    results: Results = {
        "speculation_b1_ratio": min(cells[task, 1].ratio for task in _COPYING_TASKS),
        "speculation_worst_ratio": cells[worst].ratio,
        "speculation_worst_cell": f"{worst[0]} b{worst[1]}",
        "speculation_worst_whole_ratio": min(cell.whole_ratio for cell in cells.values()),
        "speculation_control_low_ratio": min(cell.control_ratio for cell in cells.values()),
        "speculation_control_high_ratio": max(cell.control_ratio for cell in cells.values()),
        "speculation_drafted_tokens": int(drafted),
        "speculation_accepted_tokens": int(accepted),
    }
    for task in _COPYING_TASKS:
        results[f"speculation_{task}_b1_ratio"] = cells[task, 1].ratio
    times = [len(samples) for cell in cells.values() for samples in cell.decode_s["on"].values()]
    notes = [
        "speculation: decode time of the engine's stage record, off over on, the same greedy answers to held-out "
        f"prompts asked {min(times)} to {max(times)} times in turn, the median of each; whole: queue and prefill too; "
        "control: of two engines without drafts"
    ]
    notes += [
        f"speculation {task:<10} b{batch}: {cell.ratio:.3f} "
        f"(whole {cell.whole_ratio:.3f}, control {cell.control_ratio:.3f})"
        for (task, batch), cell in cells.items()
    ]
    return Finding(results=results, notes=notes)

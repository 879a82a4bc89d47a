"""Predictions: near misses of a support stream with the field and without it, in turn, the same answers on both sides.

Each call has a cache salt of its own, so the engine knows no earlier answer: as after a restart, or where another
replica gave it. In the cell `known` the engine gave the stored answer itself, and its own lookup may use it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from statistics import median
from typing import Final

from loadtests.clients.completions import PlainAnswer, answer_chat
from loadtests.clients.http_client import Address, clock
from loadtests.engine.part import Finding, Results, Setting
from loadtests.engine.prediction.support_stream import SupportQuestion, support_stream
from loadtests.harness.processes import ProcessFailed, Workbench
from loadtests.harness.stack import start_engine

_CELLS: Final = (
    ("detail", 1),
    ("wording", 1),
    ("equal", 1),
    ("unrelated", 1),
    ("known", 1),
    ("seeded", 1),
    ("detail", 4),
    ("unrelated", 4),
)
"""Kind of question and number of requests at once; `known` and `seeded` differ in a detail."""
_MAX_TOKENS: Final = 128
_WARM_UP: Final = 5
"""Rounds in which the engine learns what predictions are worth; they do not count."""
_TEMPERATURE: Final = 0.7

Side = bool
"""True with the prediction."""
Cell = tuple[str, int]


@dataclass(slots=True)
class _Times:
    """Seconds of decoding and in all of each question, by side."""

    decode_s: dict[Side, dict[int, list[float]]] = field(
        default_factory=lambda: {side: defaultdict(list) for side in (False, True)}
    )
    num_steps: dict[Side, int] = field(default_factory=lambda: {False: 0, True: 0})
    """Steps of decoding behind the first token."""
    num_tokens: int = 0
    num_accepted: int = 0
    num_rejected: int = 0

    def usual_s(self, side: Side) -> float:
        """The usual time of each question, all questions together: a hiccup of the machine does not show."""
        return sum(median(times) for times in self.decode_s[side].values())

    @property
    def ratio(self) -> float:
        """Tokens per second with predictions over those without; the answers are equal, so times are enough."""
        return self.usual_s(False) / self.usual_s(True)


async def measure_prediction(setting: Setting) -> Finding:
    """One engine, called with predictions and without in turn."""
    async with Workbench() as bench:
        flags = setting.flags("--speculation", "auto", "--max-num-seqs", "4")
        engine = (await start_engine(bench, setting.model, *flags)).address
        stream = support_stream(setting.seed)
        stored = await _answer_stored(engine, stream)
        cells = await _measure(engine, stream, stored, setting.seconds)
    return _finding(cells)


async def _answer_stored(engine: Address, stream: dict[str, list[SupportQuestion]]) -> dict[str, str]:
    """The answers that a cache has, by question."""
    found: dict[str, str] = {}
    for question in stream["detail"]:
        answer = await answer_chat(engine, question.stored, _MAX_TOKENS, salt="stored")
        found[question.stored[-1]["content"]] = answer.text
    return found


async def _measure(
    engine: Address, stream: dict[str, list[SupportQuestion]], stored: dict[str, str], seconds: float
) -> dict[Cell, _Times]:
    """Times by cell. Each round asks the next questions of every cell."""
    cells: dict[Cell, _Times] = {cell: _Times() for cell in _CELLS}
    orders, salts = Random(0), count()
    end_at, number = clock() + seconds, 0
    size = len(stream["detail"])
    while number < _WARM_UP + size or clock() < end_at:
        for kind, batch in _CELLS:
            questions = stream.get(kind) or stream["detail"]
            places = [(number * batch + offset) % size for offset in range(batch)]
            group = [questions[place] for place in places]
            found = {}
            for side in orders.sample((False, True), 2):
                found[side] = await _answers(engine, kind, group, stored, salts, side=side)
            for one, other in zip(found[False], found[True], strict=True):
                if one.text != other.text:
                    raise ProcessFailed(f"a prediction changed an answer: {other.text!r} in place of {one.text!r}")
            if number >= _WARM_UP:
                _note(cells[kind, batch], places, found)
        number += 1
    return cells


async def _answers(
    engine: Address,
    kind: str,
    group: Sequence[SupportQuestion],
    stored: dict[str, str],
    salts: count[int],
    *,
    side: Side,
) -> list[PlainAnswer]:
    """Send questions at once, with predictions or without."""
    calls = []
    for question in group:
        salt = f"call-{next(salts)}"
        if kind == "known":
            await answer_chat(engine, question.stored, _MAX_TOKENS, salt=salt)
        text = stored[question.stored[-1]["content"]]
        temperature, seed = (_TEMPERATURE, 7) if kind == "seeded" else (0.0, None)
        calls.append(
            answer_chat(
                engine,
                question.sent,
                _MAX_TOKENS,
                salt=salt,
                prediction=text if side else None,
                temperature=temperature,
                seed=seed,
            )
        )
    return await asyncio.gather(*calls)


def _note(times: _Times, places: Sequence[int], found: dict[Side, list[PlainAnswer]]) -> None:
    """Enter a round's answers; those of a single token decode nothing."""
    for side, answers in found.items():
        for place, answer in zip(places, answers, strict=True):
            times.num_steps[side] += max(0, answer.num_tokens - 1 - answer.num_accepted_tokens)
            if answer.decode_s:
                times.decode_s[side][place].append(answer.decode_s)
    for answer in found[True]:
        times.num_tokens += answer.num_tokens
        times.num_accepted += answer.num_accepted_predicted
        times.num_rejected += answer.num_rejected_predicted


def _finding(cells: dict[Cell, _Times]) -> Finding:
    worst = min(cells, key=lambda cell: cells[cell].ratio)
    results: Results = {
        "prediction_worst_ratio": cells[worst].ratio,
        "prediction_worst_cell": f"{worst[0]} b{worst[1]}",
        "prediction_accepted_tokens": sum(times.num_accepted for times in cells.values()),
        "prediction_rejected_tokens": sum(times.num_rejected for times in cells.values()),
    }
    for (kind, batch), times in cells.items():
        results[f"prediction_{kind}_b{batch}_ratio"] = times.ratio
    repeats = [len(samples) for times in cells.values() for samples in times.decode_s[True].values()]
    notes = [
        "prediction: decode time of the engine's stage record, without over with the stored answer as prediction, the "
        f"same answers, each question asked {min(repeats)} to {max(repeats)} times in turn, the median of each; both "
        "sides with --speculation auto"
    ]
    notes += [
        f"prediction {kind:<9} b{batch}: {times.ratio:.3f}; steps {times.num_steps[False]} without and "
        f"{times.num_steps[True]} with, {times.num_tokens} tokens, of predictions {times.num_accepted} accepted and "
        f"{times.num_rejected} rejected"
        for (kind, batch), times in cells.items()
    ]
    return Finding(results=results, notes=notes)

"""Replayer: a recorded answer given again as it was, and the search for the change that changed it."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.replay.answer_text import AnswerText, Difference
from gateway.replay.base import ReplayBase
from gateway.replay.report import FACTORS, Compared, FactorReport, ReplayReport
from gateway.replay.walk import ReplayTools, Walk
from gateway.telemetry.records.answer_record import AnswerRecord
from gateway.telemetry.records.model_state import NOTHING_STATED

_SAMPLED: Final = (
    "The answer was sampled without a seed, so another text shows nothing. Record with the gateway's seeds, or send a "
    "seed or temperature 0."
)


class Replayer:
    """Replays, one at a time: each sends several requests to deployments."""

    def __init__(self, tools: ReplayTools) -> None:
        self._tools = tools
        self._turn = asyncio.Lock()

    async def replay(
        self, record: AnswerRecord, origin: AnswerRecord | None, *, bisect: bool, prompt: str | None = None
    ) -> ReplayReport:
        """Give a recorded answer again and compare it; with `bisect`, find the changes that change it.

        Args:
            record: The recorded answer.
            origin: Record of the request that made the cached response of `record`; None without one.
            bisect: Whether to search.
            prompt: Prompt for the last factor, as in `with_prompt`; None keeps the record's.

        Raises:
            InvalidRequest: The record or the prompt holds no valid request.
            ValueError: The record holds no valid answer.
        """
        async with self._turn:
            tools, snapshot = self._tools, self._tools.policy()
            base = await ReplayBase.of(record, origin, snapshot, tools.parser, tools.sender)
            compared, now = self._compared(base)
            factors: list[FactorReport] = []
            if bisect and (base.is_repeatable or base.has_same_text):
                walk = Walk(tools, snapshot, base)
                await walk.run(prompt)
                factors = sorted(walk.factors, key=lambda one: FACTORS.index(one.factor))
            return _report(base, compared, now, factors)

    def _compared(self, base: ReplayBase) -> tuple[Compared, AnswerText | None]:
        """Return what the record is compared with, and its text; None without one."""
        if base.answer is not None:
            return ("origin" if base.record.is_cached else "deployment"), base.answer.text
        stored = self._tools.cache.stored(base.record.cache_entry) if base.record.is_cached else None
        return ("nothing", None) if stored is None else ("stored", AnswerText.of(stored))


def _report(base: ReplayBase, compared: Compared, now: AnswerText | None, factors: list[FactorReport]) -> ReplayReport:
    record, source, answer = base.record, base.source, base.answer
    difference = None if now is None else base.then.difference(now)
    is_equal = None if now is None or (difference and not base.is_repeatable) else difference is None
    changing = [one.factor for one in factors if one.verdict == "changes"]
    return ReplayReport(
        id=record.id,
        at=record.at,
        model=record.model,
        route=record.route,
        policy=record.policy,
        deployment=record.deployment,
        cache=record.cache,
        seed=record.seed if source is None else source.seed,
        num_bytes=base.then.num_bytes,
        state=NOTHING_STATED if source is None else source.state,
        compared=compared,
        replayed_by="" if answer is None or base.live is None else base.live.id,
        state_now=NOTHING_STATED if answer is None else answer.state,
        is_equal=is_equal,
        difference=difference,
        summary=" ".join([_comparison(base, compared, difference), *_found(factors)]),
        factors=tuple(factors),
        first=changing[0] if changing else None,
        also=tuple(changing[1:]),
    )


def _comparison(base: ReplayBase, compared: Compared, difference: Difference | None) -> str:
    if compared == "nothing":
        return f"There is nothing to compare with: {base.why_not}."
    if difference is not None and not base.is_repeatable:
        return _SAMPLED
    by = f"'{base.live.id}'" if base.live is not None else ""
    whose = {
        "deployment": f"the new answer of {by}",
        "origin": f"the new answer of {by} to the request that made the cached response",
        "stored": f"the cached response {base.record.cache_entry}",
    }[compared]
    if difference is None:
        return f"Byte-equal: {whose} has the same {base.then.num_bytes} bytes."
    return f"Not equal: {whose} differs at byte {difference.at}."


def _found(factors: list[FactorReport]) -> list[str]:
    """Return the result of a search as sentences; none without a search."""
    if not factors:
        return []
    changing = [one.factor for one in factors if one.verdict == "changes"]
    if changing:
        also = f"; so do {', '.join(changing[1:])}" if changing[1:] else ""
        return [f"The first change that changes the text is {changing[0]}{also}."]
    if any(one.verdict == "unknown" for one in factors):
        return ["No change that can be compared changes the text; some cannot be compared."]
    return ["No change since then changes the text."]

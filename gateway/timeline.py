"""A request's id, the time in each stage, and the outcome."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import IntEnum, StrEnum

Clock = Callable[[], float]
"""Monotonic seconds."""


class RequestIds:
    """Source of unguessable ids like `req_1f0c…` (96 random bits), if nobody can predict `rng`."""

    __slots__ = ("_getrandbits",)

    def __init__(self, rng: random.Random) -> None:
        self._getrandbits = rng.getrandbits

    def next(self) -> str:
        """Return a new id, 28 ASCII characters."""
        return f"req_{self._getrandbits(96):024x}"


class Outcome(StrEnum):
    """Outcome of a request: exactly one for each request, from a closed set of metric labels."""

    COMPLETED = "completed"
    CACHED = "cached"
    SHED = "shed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UPSTREAM_FAILED = "upstream_failed"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    FAILED = "failed"


class Stage(IntEnum):
    """Stages in the order of the request's way; the value indexes `Timeline.spent`."""

    READ = 0
    ADMIT = 1
    TRIM = 2
    EMBED = 3
    CACHE = 4
    ROUTE = 5
    QUEUE = 6
    CONNECT = 7
    UPSTREAM_FIRST_BYTE = 8
    RELAY = 9


STAGE_LABELS: tuple[str, ...] = tuple(stage.name.lower() for stage in Stage)


class Timeline:
    """Seconds spent in each stage; `mark(stage, now)` charges the time since the last mark to `stage`."""

    __slots__ = ("first_token_at", "last_at", "spent", "started_at")

    def __init__(self, now: float) -> None:
        self.started_at = now
        self.last_at = now
        self.first_token_at: float | None = None
        self.spent: list[float | None] = [None] * len(STAGE_LABELS)
        """Seconds by stage; None for a stage that the request never entered."""

    def mark(self, stage: int, now: float) -> None:
        """Charge the time since the last mark to `stage`; a second visit (a retry) adds up."""
        before = self.spent[stage]
        elapsed = now - self.last_at
        self.spent[stage] = elapsed if before is None else before + elapsed
        self.last_at = now

    def charge(self, stage: int, seconds: float) -> None:
        """Give `seconds` measured elsewhere to `stage`, taking them out of what the next mark will charge."""
        before = self.spent[stage]
        self.spent[stage] = seconds if before is None else before + seconds
        self.last_at += seconds

    def total_s(self) -> float:
        """Return the seconds from receipt to the last mark."""
        return self.last_at - self.started_at

    def stages_ms(self) -> dict[str, float]:
        """Return the milliseconds by stage name, entered stages only, rounded to a microsecond."""
        return {
            label: int(seconds * 1e6 + 0.5) / 1000  # a third of round()'s price, at ten stages a request
            for label, seconds in zip(STAGE_LABELS, self.spent, strict=True)
            if seconds is not None
        }


def upstream_request_id(request_id: str) -> bytes:
    """Return a request id as upstreams get it: its unique part as 32 hexadecimal digits.

    Servers that check `x-request-id` accept a UUID and nothing else, as llama.cpp's Python server does.
    """
    return request_id.removeprefix("req_").ljust(32, "0").encode("ascii")

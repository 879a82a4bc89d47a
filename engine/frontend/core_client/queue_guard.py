"""Load shedding at the core's queue: by its length, its forecast wait and the request's deadline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from engine.frontend.request.errors import overloaded_error
from engine.protocol import Lane, Load

MAX_RETRY_AFTER_S = 60
_HEAD_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Limits of the core's queue."""

    max_waiting: int
    """Maximum number of waiting sequences."""
    max_wait_s: float = 30.0
    """Maximum forecast wait of interactive and long requests, in seconds."""
    max_batch_wait_s: float = 600.0
    """Maximum forecast wait of batch requests, in seconds."""


class QueueGuard:
    """Admission check by the core's last reported load and the prompts sent since."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._num_tokens_since = 0
        self._heads_since: set[tuple[bytes, str | None, tuple[int, ...]]] = set()

    def reported(self) -> None:
        """Reset the tokens sent since the last load, because a new load has arrived."""
        self._num_tokens_since = 0
        self._heads_since.clear()

    def sent(self, prompt_token_ids: list[int], cache_salt: bytes, adapter: str | None = None) -> None:
        """Count the prompt of a sequence that no reported load includes yet.

        Of prompts that begin alike only the first counts, because the prefix cache will hold most of the others.
        The core's next load has the exact number.
        """
        head = (cache_salt, adapter, tuple(prompt_token_ids[:_HEAD_TOKENS]))
        if head not in self._heads_since:
            self._heads_since.add(head)
            self._num_tokens_since += len(prompt_token_ids)

    def check(self, load: Load, *, num_open: int, num_new: int, lane: Lane, deadline_s: float | None) -> None:
        """Refuse a request that would wait too long.

        Raises:
            ApiError: The queue is full, or the forecast wait exceeds the limit or the deadline (503). A missed
                deadline has no `retry-after`.
        """
        num_waiting = num_open - load.num_running
        wait_s = self._forecast_wait_s(load, lane)
        shed = partial(overloaded_error, lane=lane, queue_depth=max(0, num_waiting), predicted_wait_s=wait_s)
        num_over = num_waiting + num_new - self._limits.max_waiting
        if num_over > 0:
            raise shed(
                f"{num_waiting} sequences are waiting; the limit is {self._limits.max_waiting}.",
                reason="queue_full",
                retry_after_s=_retry_after_s(wait_s * num_over / max(1, num_waiting)),
            )
        limit_s = self._limits.max_batch_wait_s if lane == "batch" else self._limits.max_wait_s
        if wait_s > limit_s:
            raise shed(
                f"The forecast wait in the {lane} lane is {wait_s:.1f} s; the limit is {limit_s:g} s.",
                reason="overload",
                retry_after_s=_retry_after_s(wait_s - limit_s),
            )
        if deadline_s is not None and wait_s > deadline_s:
            raise shed(
                f"The forecast wait in the {lane} lane is {wait_s:.1f} s; the deadline is in {deadline_s:.1f} s.",
                reason="deadline",
                retry_after_s=None,
            )

    def _forecast_wait_s(self, load: Load, lane: Lane) -> float:
        lane_load = load.lanes.get(lane)
        wait_s = lane_load.forecast_wait_s if lane_load is not None else load.forecast_wait_s
        if load.drain_tokens_per_s > 0:
            wait_s += self._num_tokens_since / load.drain_tokens_per_s
        return wait_s


def _retry_after_s(seconds: float) -> int:
    """Return the excess wait in whole seconds, from 1 to `MAX_RETRY_AFTER_S`, as the queue drains while time passes."""
    return max(1, min(MAX_RETRY_AFTER_S, math.ceil(seconds)))

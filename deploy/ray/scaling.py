"""QueueWaitPolicy: how many replicas the engines' own queue wait calls for. Pure; Serve's controller calls it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Protocol

WAIT: Final = "queue_wait_s"
SEQS: Final = "num_seqs"
ROOM: Final = "max_num_seqs"
"""Names of the figures that each replica reports."""
GROWTH: Final = 2.0
"""Largest factor by which one decision adds replicas."""
CALM: Final = 0.1
"""Share of the target below which the wait lets a replica go."""
FULL: Final = 0.7
"""Share of the remaining replicas' sequences that may be in use after one has gone."""


class ScalingContext(Protocol):
    """The part of Serve's AutoscalingContext that the decision reads."""

    @property
    def current_num_replicas(self) -> int:
        """Running replicas."""
        ...

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """Figures by name and replica, averaged over the look-back time."""
        ...

    @property
    def total_queued_requests(self) -> float | None:
        """Requests that wait at the proxies."""
        ...

    @property
    def capacity_adjusted_min_replicas(self) -> int:
        """Least number of replicas."""
        ...

    @property
    def capacity_adjusted_max_replicas(self) -> int:
        """Largest number of replicas."""
        ...

    @property
    def policy_state(self) -> dict[str, Any]:
        """State that Serve keeps for the policy."""
        ...


class QueueWaitPolicy:
    """Adds replicas while prompts wait longer than the target, and removes one while the others have room."""

    def __init__(self, target_wait_s: float = 0.5) -> None:
        self._target_wait_s = target_wait_s

    def __call__(self, ctx: ScalingContext) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas within the deployment's bounds, and the unchanged state."""
        wanted = self._wanted(ctx)
        bounded = min(max(wanted, ctx.capacity_adjusted_min_replicas), ctx.capacity_adjusted_max_replicas)
        return bounded, dict(ctx.policy_state)

    def _wanted(self, ctx: ScalingContext) -> int:
        num, found = ctx.current_num_replicas, ctx.aggregated_metrics or {}
        queued = ctx.total_queued_requests or 0.0
        waits = list(found.get(WAIT, {}).values())
        if num == 0:
            return 1 if queued > 0 else 0
        if not waits:  # replicas that start report nothing yet
            return num
        wait_s = sum(waits) / len(waits)
        if wait_s > self._target_wait_s:
            return math.ceil(num * min(wait_s / self._target_wait_s, GROWTH))
        seqs, room = sum(found.get(SEQS, {}).values()), sum(found.get(ROOM, {}).values()) / len(waits)
        is_calm = wait_s <= CALM * self._target_wait_s and queued < 1.0
        if is_calm and len(waits) == num and (num == 1 or seqs <= FULL * room * (num - 1)):
            return num - 1 if num > 1 or seqs == 0 else num
        return num

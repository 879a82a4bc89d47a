"""How many replicas the engines' queue wait calls for, on literal figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy.ray.scaling import ROOM, SEQS, WAIT, QueueWaitPolicy, ScalingContext


def context(
    num: int, *replicas: tuple[float, float], queued: float | None = 0.0, low: int = 1, high: int = 8
) -> ScalingContext:
    """Each replica's wait and sequences, of ten that it has room for."""
    figures: dict[str, dict[Any, float]] = {
        WAIT: {number: wait for number, (wait, _) in enumerate(replicas)},
        SEQS: {number: seqs for number, (_, seqs) in enumerate(replicas)},
        ROOM: dict.fromkeys(range(len(replicas)), 10.0),
    }
    return cast(
        ScalingContext,
        SimpleNamespace(
            current_num_replicas=num,
            aggregated_metrics=figures if replicas else None,
            total_queued_requests=queued,
            capacity_adjusted_min_replicas=low,
            capacity_adjusted_max_replicas=high,
            policy_state={"kept": 1},
        ),
    )


@pytest.mark.parametrize(
    ("ctx", "wanted"),
    [
        (context(2, (0.2, 5), (0.2, 5)), 2),
        (context(2, (0.6, 10), (0.6, 10)), 3),
        (context(2, (9.0, 10), (9.0, 10)), 4),
        (context(1, (9.0, 10)), 2),
        (context(5, *[(9.0, 10.0)] * 5), 8),
        (context(3, (0.0, 4), (0.0, 4), (0.0, 4)), 2),
        (context(3, (0.0, 5), (0.0, 5), (0.0, 5)), 3),
        (context(3, (0.2, 0), (0.2, 0), (0.2, 0)), 3),
        (context(3, (0.0, 0), (0.0, 0), (0.0, 0), queued=2.0), 3),
        (context(3, (0.0, 0), (0.0, 0)), 3),
        (context(1, (0.0, 0)), 1),
        (context(1, (0.0, 0), low=0), 0),
        (context(1, (0.0, 1), low=0), 1),
        (context(0, low=0), 0),
        (context(0, queued=1.0, low=0), 1),
        (context(2), 2),
        (context(2, queued=None), 2),
    ],
)
def test_the_wait_decides(ctx: ScalingContext, wanted: int) -> None:
    assert QueueWaitPolicy(0.5)(ctx) == (wanted, {"kept": 1})

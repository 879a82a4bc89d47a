"""Memory that is reserved before more of a body is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.errors import RequestTooLarge
from gateway.http.asgi import read_body
from gateway.limits.body_budget import BodyBudget, BodyReservation


@contextmanager
def held_by(budget: BodyBudget) -> Iterator[BodyReservation]:
    """A reservation for one body, given back at the end."""
    held = budget.open("shop")
    try:
        yield held
    finally:
        held.release()


def pieces(num: int, size: int) -> Any:
    """What a server passes on of a body in so many pieces, and how many were read."""
    requested: list[int] = []

    async def receive() -> dict[str, Any]:
        requested.append(len(requested))
        return {"type": "http.request", "body": b"x" * size, "more_body": len(requested) < num}

    return receive, requested


async def test_a_body_is_read_no_further_than_it_may_be_held() -> None:
    budget = BodyBudget(10_000, wait_s=0.0)
    receive, requested = pieces(100, 1_000)
    with held_by(budget) as held, pytest.raises(RequestTooLarge):
        await read_body(receive, 1_000_000, room=held)
    assert len(requested) < 20
    assert budget.used_bytes == 0


async def test_what_fits_is_read_whole_and_counted() -> None:
    budget = BodyBudget(100_000)
    receive, _ = pieces(3, 1_000)
    with held_by(budget) as held:
        assert len(await read_body(receive, 1_000_000, room=held)) == 3_000
        assert budget.used_bytes >= 3_000
    assert budget.used_bytes == 0

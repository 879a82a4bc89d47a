"""PrimaryFinder: the library's Sentinel client, which consults all Sentinels at the same time.

The library consults one after the other, so that one which is frozen or cut off costs its whole timeout, and one that
is cut off from the others may still name the old primary. Here the answer with the newest configuration counts, once
more than half of the Sentinels have answered. Of equally new ones, one that a quorum shares ("objectively down") counts
first, then one that reaches the primary. So a Sentinel that alone fails to reach it for a moment does not decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from redis import exceptions
from redis.asyncio import Redis, Sentinel
from redis.asyncio.sentinel import MasterNotFoundError

SENTINEL_TIMEOUT_S: Final = 0.5
"""Least time for a Sentinel's answer."""
REST_S: Final = 0.1
"""Wait for each further answer once more than half of the Sentinels have answered that the primary is down."""


class PrimaryFinder(Sentinel):
    """Finds the primary of a service."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._late: set[asyncio.Task[Any]] = set()
        """Calls that are not needed any more; the library ends one at a frozen Sentinel only at its timeout."""

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the primary's host and port.

        Raises:
            MasterNotFoundError: No Sentinel knows one that is up.
        """
        answers = [asyncio.ensure_future(self._state_at(each, service_name)) for each in self.sentinels]
        try:
            newest = await self._newest(answers, service_name)
        finally:
            for answer in answers:
                self._leave(answer)
        if newest is None:
            raise MasterNotFoundError(f"none of {len(answers)} Sentinels answers about {service_name!r}")
        if not self.check_master_state(newest, service_name):
            raise MasterNotFoundError(f"the primary of {service_name!r} is down, and no other is elected yet")
        return str(newest["ip"]), int(newest["port"])

    async def _newest(
        self, answers: Sequence[asyncio.Task[dict[str, Any] | None]], service_name: str
    ) -> dict[str, Any] | None:
        """Return the newest state; where that is down, of all Sentinels that answer soon.

        One of them learns first of a new primary.
        """
        newest: dict[str, Any] | None = None
        num, pending = 0, set(answers)
        while pending:
            has_majority = num > len(answers) // 2
            if newest is not None and has_majority and self.check_master_state(newest, service_name):
                break
            timeout_s = REST_S if has_majority else None
            done, pending = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for state in filter(None, (answer.result() for answer in done)):
                num += 1
                if newest is None or self._weight(state, service_name) > self._weight(newest, service_name):
                    newest = state
        return newest

    def _leave(self, answer: asyncio.Task[Any]) -> None:
        if answer.cancel():
            self._late.add(answer)
            answer.add_done_callback(self._late.discard)

    def _weight(self, state: dict[str, Any], service_name: str) -> tuple[int, bool, bool]:
        return int(state["config-epoch"]), bool(state["is_odown"]), self.check_master_state(state, service_name)

    async def _state_at(self, sentinel: Redis, service_name: str) -> dict[str, Any] | None:
        try:
            state: Any = await sentinel.sentinel_master(service_name)
        except (exceptions.RedisError, OSError):
            return None  # the others decide; with none of them left the caller raises
        return dict(state)

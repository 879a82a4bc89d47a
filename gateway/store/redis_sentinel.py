"""PrimaryFinder: the library's Sentinel client, which consults all Sentinels at the same time.

The library consults one after the other, so that one which is frozen or cut off costs its whole timeout, and one that
is cut off from the others may still name the old primary. Here the answer with the newest configuration counts, as soon
as more than half of the Sentinels have answered.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from redis import exceptions
from redis.asyncio import Redis, Sentinel
from redis.asyncio.sentinel import MasterNotFoundError

SENTINEL_TIMEOUT_S: Final = 0.5
"""Least time for a Sentinel's answer."""


class PrimaryFinder(Sentinel):
    """Finds the primary of a service."""

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the primary's host and port.

        Raises:
            MasterNotFoundError: No Sentinel knows one that is up.
        """
        states: list[dict[str, Any]] = []
        looks = [asyncio.ensure_future(self._look(each, service_name)) for each in self.sentinels]
        try:
            for next_state in asyncio.as_completed(looks):
                state = await next_state
                if state is not None:
                    states.append(state)
                if len(states) > len(looks) // 2:
                    break
        finally:
            for look in looks:
                look.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
        newest = max(states, key=lambda state: int(state["config-epoch"]), default=None)
        if newest is None:
            raise MasterNotFoundError(f"none of {len(looks)} Sentinels answers about {service_name!r}")
        if not self.check_master_state(newest, service_name):
            raise MasterNotFoundError(f"the primary of {service_name!r} is down, and no other is elected yet")
        return str(newest["ip"]), int(newest["port"])

    async def _look(self, sentinel: Redis, service_name: str) -> dict[str, Any] | None:
        try:
            state: dict[str, Any] = await sentinel.sentinel_master(service_name)
        except (exceptions.RedisError, OSError):
            return None  # the others decide; with none of them left the caller says so
        return state

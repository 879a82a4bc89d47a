"""Canaries of a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.policies.canaries import Canaries
from tests.gateway.admin.handlers.test_policy import in_force
from tests.gateway.policies.test_canary import CANARY, gateway, start, to_the_other, until_ended


async def test_a_check_in_the_moment_of_a_promotion_does_not_call_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Canaries._end
    checks: list[str] = []

    async def inspected_first(self: Canaries, state: Any, *more: Any) -> Any:
        if not checks:
            checks.append(state)
            await self.watch()  # as every replica does twice a second
        return await end(self, state, *more)

    monkeypatch.setattr(Canaries, "_end", inspected_first)
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        await start(stack, to_the_other(seed["document"]))
        await stack.call({"reason": "it is good"}, admin=True, path=f"{CANARY}/promote")
        ended = await until_ended(stack)
        assert (checks, ended["state"], ended["ended_by"], ended["why"]) == (
            ["promoted"],
            "promoted",
            "local",
            "it is good",
        )

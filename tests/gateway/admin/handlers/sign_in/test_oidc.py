"""Logins with the provider at the admin API."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.admin.handlers.sign_in.oidc import STARTS
from tests.gateway.access.sign_in import test_oidc


async def test_logins_with_the_provider_are_limited_by_source(tmp_path: Path) -> None:
    async with test_oidc.gateway(tmp_path) as (stack, _):
        statuses = [(await stack.get("/admin/api/oidc/start", admin=True)).status for _ in range(STARTS + 5)]
        assert statuses[:STARTS] == [303] * STARTS
        assert set(statuses[STARTS + 1 :]) == {429}


async def test_of_too_many_logins_with_the_provider_the_oldest_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.access.sign_in.oidc.MAX_PENDING", 3)
    async with test_oidc.gateway(tmp_path) as (stack, provider):
        store = stack.gateway._stores.control
        for _ in range(10):
            assert (await stack.get("/admin/api/oidc/start", admin=True)).status == 303
        assert len(await store.keys("oidc")) == 3
        done, _ = await test_oidc.come_back(stack, provider)
        assert done.status == 200
        assert len(await store.keys("oidc")) == 2

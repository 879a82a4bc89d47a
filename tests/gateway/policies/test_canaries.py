"""Canaries of a gateway."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.policies.canaries import KEY, MAX_PAST, PAST, Canaries
from gateway.policies.canary import CanaryTrial
from gateway.policies.history import SPACE, RevisionHistory
from gateway.policies.local_copy import COPY_FILE
from gateway.policies.policy_file import PolicyFileError
from gateway.store.embedded import EmbeddedStore
from tests.gateway.admin.handlers.test_policy import apply, in_force
from tests.gateway.policies.test_canary import CANARY, call, gateway, start, to_the_other, until_ended
from tests.gateway.stack import Stack


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


async def try_once(stack: Stack, reason: str) -> None:
    """Start a canary and stop it again."""
    seed = await in_force(stack)
    assert (await start(stack, to_the_other(seed["document"]), reason=reason)).status == 201
    assert (await stack.call({"reason": "seen enough"}, admin=True, path=f"{CANARY}/stop")).status == 200


def keyed(document: str) -> str:
    return document.replace("model: tiny,", "model: tiny, auth: {bearer_env: TEST_UPSTREAM_KEY},")


async def test_after_a_canary_a_start_with_a_refused_revision_still_serves_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        await try_once(stack, "one")
    saved = (tmp_path / COPY_FILE).read_bytes()
    monkeypatch.setenv("TEST_UPSTREAM_KEY", "secret")
    async with gateway(tmp_path) as stack:
        applied = (await apply(stack, keyed(seed["document"]), etag=seed["etag"])).json
    newest = (tmp_path / COPY_FILE).read_bytes()
    (tmp_path / COPY_FILE).write_bytes(saved)
    monkeypatch.delenv("TEST_UPSTREAM_KEY")
    async with gateway(tmp_path) as stack:
        now = await in_force(stack)
        assert (now["etag"], now["status"]["revision"]) == (applied["etag"], seed["revision"]["revision"])
        assert "TEST_UPSTREAM_KEY" in now["status"]["error"]
        assert "started on the last good one, revision 1" in now["status"]["error"]
        assert (await call(stack)).headers["x-penstock-policy"] == seed["revision"]["revision"]
    (tmp_path / COPY_FILE).write_bytes(newest)
    with pytest.raises(PolicyFileError, match=r"revision 2.*TEST_UPSTREAM_KEY"):
        async with gateway(tmp_path):
            pass


@pytest.mark.parametrize("damage", [None, b"", b"{", b"\xff"])
async def test_a_running_canary_outlives_a_start_on_the_last_good_revision(
    tmp_path: Path, damage: bytes | None
) -> None:
    async with gateway(tmp_path) as stack:
        seed = await in_force(stack)
        started = (await start(stack, to_the_other(seed["document"]), percent=100)).json["canary"]
    store = EmbeddedStore(tmp_path / "store.sqlite3", wall=time.time)
    first = await RevisionHistory(store).get(1)
    assert first is not None
    refused = msgspec.structs.replace(first, number=2, document=first.document.replace("version: 1", "version: 99"))
    await store.put(SPACE, "revision/00000002", msgspec.json.encode(refused) if damage is None else damage)
    entry = await store.get(SPACE, KEY)
    assert entry is not None
    beside = msgspec.structs.replace(msgspec.json.decode(entry.value, type=CanaryTrial), base=refused.as_line())
    await store.put(SPACE, KEY, msgspec.json.encode(beside if damage is None else started))
    await store.aclose()
    async with gateway(tmp_path) as stack:
        now = await in_force(stack)
        assert "started on the last good one, revision 1" in now["status"]["error"]
        assert now["canary"]["id"] == started["id"]
        assert (await call(stack)).headers["x-penstock-policy"] == started["revision"]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"id": 1}'])
async def test_a_canary_that_cannot_be_read_is_none_and_the_next_one_starts(tmp_path: Path, damage: bytes) -> None:
    async with gateway(tmp_path) as stack:
        await try_once(stack, "one")
    store = EmbeddedStore(tmp_path / "store.sqlite3", wall=time.time)
    await store.put(SPACE, KEY, damage)
    await store.aclose()
    async with gateway(tmp_path) as stack:
        assert (await call(stack)).status == 200
        assert (await in_force(stack))["canary"] is None
        await try_once(stack, "two")


async def test_only_the_latest_canaries_are_stored_and_the_last_one_stays_it_when_the_clock_is_set_back(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as stack:
        await try_once(stack, "first")
        ended = msgspec.convert(await until_ended(stack), CanaryTrial)
    store = EmbeddedStore(tmp_path / "store.sqlite3", wall=time.time)
    for number in range(1_005):
        old = msgspec.structs.replace(ended, id=f"old-{number}", at=ended.at + number)
        await store.put(SPACE, f"{PAST}{old.at:015.3f}", msgspec.json.encode(old))
    await store.aclose()
    async with gateway(tmp_path) as stack:
        found = (await stack.get(CANARY, admin=True)).json["past"]
        assert [one["id"] for one in found] == [f"old-{number}" for number in range(1_004, 1_004 - MAX_PAST, -1)]
        for reason in ("second", "third"):
            await try_once(stack, reason)  # long before the others, by this machine's clock
        found = (await stack.get(CANARY, admin=True)).json["past"]
        assert [one["reason"] for one in found[:2]] == ["third", "second"]
        assert (found[2]["id"], len(found)) == ("old-1004", MAX_PAST)
    store = EmbeddedStore(tmp_path / "store.sqlite3", wall=time.time)
    keys = [key for key in await store.keys(SPACE) if key.startswith(PAST)]
    assert len(keys) == MAX_PAST
    await store.aclose()

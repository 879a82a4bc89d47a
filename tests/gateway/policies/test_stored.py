"""The policy in a store that is lost at a start and comes back in one state or another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gateway.policies.history import RevisionHistory
from gateway.policies.local_copy import PolicyCopy
from gateway.policies.policy_file import PolicyRevision, PolicyStatus
from gateway.policies.reading import DocumentReader, PolicyChecks, PolicyHooks
from gateway.policies.revision import Revision
from gateway.policies.seed import Seed
from gateway.policies.stored import StoredPolicy
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.embedded import EmbeddedStore
from gateway.store.forwarding import ForwardingStore

GOOD = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"


class Switched(ForwardingStore):
    """A store that can be away."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.is_away = False

    async def _forward(self, operation: str, *arguments: Any, **options: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable(StoreLoss.DOWN, "away", was_sent=False)
        return await getattr(self.inner, operation)(*arguments, **options)

    async def aclose(self) -> None:
        await self.inner.aclose()


class Replica:
    """One gateway's policy, with all that it reported."""

    def __init__(self, folder: Path, store: Switched, at: float) -> None:
        self.restored: list[Revision] = []
        self.statuses: list[PolicyStatus] = []
        self.served: list[PolicyRevision] = []
        self.policy = StoredPolicy(
            store,
            reader=DocumentReader(PolicyChecks()),
            seed=Seed(path=folder / "policy.yaml", is_bundled=False),
            copy=PolicyCopy(folder / "policy.last.json"),
            hooks=PolicyHooks(
                on_revision=self.served.append, on_status=self.statuses.append, on_restored=self.restored.append
            ),
            wall=lambda: at,
        )

    async def apply(self, note: str) -> Revision:
        return await self.policy.apply(f"{GOOD}# {note}\n", author="anna", reason="test", if_match="*")


def fresh_store(folder: Path, name: str) -> Switched:
    return Switched(EmbeddedStore(folder / name, wall=time.time))


async def started_without_store(folder: Path) -> tuple[Replica, Switched, Revision]:
    """A replica that served revision 2, and starts again while the store is away."""
    (folder / "policy.yaml").write_text(GOOD)
    store = fresh_store(folder, "one")
    first = Replica(folder, store, at=1_000.0)
    await first.policy.load()
    newest = await first.apply("two")
    store.is_away = True
    again = Replica(folder, store, at=2_000.0)
    await again.policy.load()
    assert (again.policy.head, again.policy.status.is_current) == (newest, False)
    return again, store, newest


async def test_a_store_that_comes_back_empty_gets_the_revision_of_a_replica_that_started_without_it(
    tmp_path: Path,
) -> None:
    replica, store, newest = await started_without_store(tmp_path)
    await store.inner.aclose()
    store.inner, store.is_away = EmbeddedStore(tmp_path / "two", wall=time.time), False
    await replica.policy.catch_up()
    assert await RevisionHistory(store).get(2) == newest
    assert (replica.restored, replica.policy.status.is_current) == ([newest], True)
    await replica.policy.catch_up()
    assert replica.restored == [newest]
    await store.aclose()


async def test_a_store_that_comes_back_whole_makes_the_policy_current_again(tmp_path: Path) -> None:
    replica, store, newest = await started_without_store(tmp_path)
    store.is_away = False
    await replica.policy.catch_up()
    assert (replica.policy.status.is_current, replica.policy.status.error) == (True, None)
    assert (replica.policy.head, replica.restored) == (newest, [])
    await store.aclose()


async def test_a_damaged_newest_revision_is_still_reported_after_a_start_without_the_store(tmp_path: Path) -> None:
    replica, store, newest = await started_without_store(tmp_path)
    store.is_away = False
    await store.inner.put("policy", "revision/00000003", b"\xff")
    await replica.policy.catch_up()
    assert (replica.policy.head, replica.policy.status.is_current) == (newest, False)
    assert "revision 3 cannot be read" in str(replica.policy.status.error)
    await store.aclose()


async def test_a_store_with_a_newer_revision_is_followed_after_a_start_without_it(tmp_path: Path) -> None:
    replica, store, _ = await started_without_store(tmp_path)
    store.is_away = False
    other = Replica(tmp_path / "other", store, at=3_000.0)
    await other.policy.load()
    third = await other.apply("three")
    await replica.policy.catch_up()
    assert (replica.policy.head, replica.policy.status.is_current) == (third, True)
    await store.aclose()


async def test_a_store_that_an_operator_began_anew_is_followed_after_a_start_without_it(tmp_path: Path) -> None:
    replica, store, _ = await started_without_store(tmp_path)
    await store.inner.aclose()
    store.inner, store.is_away = EmbeddedStore(tmp_path / "two", wall=time.time), False
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "policy.yaml").write_text(GOOD + "# anew\n")
    other = Replica(tmp_path / "other", store, at=3_000.0)
    await other.policy.load()
    await replica.policy.catch_up()
    assert (replica.policy.head, replica.restored) == (other.policy.head, [])
    assert replica.policy.status.is_current
    assert (await replica.apply("next")).number == 2
    assert replica.policy.head.number == 2
    await store.aclose()

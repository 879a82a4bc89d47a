"""The policy in a store that is lost at a start and comes back in one state or another."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.policies.errors import InvalidPolicy, NoSuchRevision, RevisionConflict
from gateway.policies.history import RevisionHistory
from gateway.policies.local_copy import PolicyCopy
from gateway.policies.policy_file import PolicyFileError, PolicyRevision, PolicyStatus
from gateway.policies.reading import DocumentReader, PolicyChecks, PolicyHooks
from gateway.policies.revision import Revision
from gateway.policies.seed import Seed
from gateway.policies.stored import StoredPolicy
from gateway.store.base import Store
from gateway.store.embedded import EmbeddedStore
from tests.gateway.policies.replica import Lost, PolicyReplica, changed
from tests.gateway.store.wrapped_store import SwitchedStore

GOOD = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"


class Replica:
    """One gateway's policy, with all that it reported."""

    def __init__(self, folder: Path, store: SwitchedStore, at: float) -> None:
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


def fresh_store(folder: Path, name: str) -> SwitchedStore:
    return SwitchedStore(EmbeddedStore(folder / name, wall=time.time))


async def started_without_store(folder: Path) -> tuple[Replica, SwitchedStore, Revision]:
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
    await store.store.aclose()
    store.store, store.is_away = EmbeddedStore(tmp_path / "two", wall=time.time), False
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
    await store.store.put("policy", "revision/00000003", b"\xff")
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
    await store.store.aclose()
    store.store, store.is_away = EmbeddedStore(tmp_path / "two", wall=time.time), False
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


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Store]:
    opened = EmbeddedStore(tmp_path / "shared.sqlite3", wall=lambda: 1000.0)
    yield opened
    await opened.aclose()


async def test_the_first_replica_plants_the_seed_and_the_next_finds_it(shared: Store, tmp_path: Path) -> None:
    first, second = PolicyReplica(shared, tmp_path / "a"), PolicyReplica(shared, tmp_path / "b")
    await first.policy.load()
    await second.policy.load()
    assert (second.policy.head.number, second.policy.head.kind) == (1, "seed")
    assert second.policy.head == first.policy.head
    assert second.policy.status.is_current


async def test_an_apply_is_in_force_here_at_once_and_elsewhere_with_the_next_look(
    shared: Store, tmp_path: Path
) -> None:
    first, second = PolicyReplica(shared, tmp_path / "a"), PolicyReplica(shared, tmp_path / "b")
    await first.policy.load()
    await second.policy.load()
    made = await first.apply(changed(1))
    assert (first.policy.head, made.parent, made.author) == (made, 1, "anna")
    assert second.policy.head.number == 1
    await second.policy.catch_up()
    assert second.policy.head == made


async def test_nobody_overwrites_what_they_have_not_seen_and_an_equal_document_is_no_revision(
    shared: Store, tmp_path: Path
) -> None:
    replica = PolicyReplica(shared, tmp_path / "a")
    await replica.policy.load()
    seen = replica.policy.head.etag
    made = await replica.apply(changed(1), seen)
    with pytest.raises(RevisionConflict) as caught:
        await replica.apply(changed(2), seen)
    assert caught.value.theirs == made
    assert await replica.apply(changed(1), made.etag) == made


async def test_a_bad_document_changes_nothing(shared: Store, tmp_path: Path) -> None:
    replica = PolicyReplica(shared, tmp_path / "a")
    await replica.policy.load()
    with pytest.raises(InvalidPolicy):
        await replica.apply("schema_version: 1\n")
    assert (replica.policy.newest.number, len(replica.served)) == (1, 1)


async def test_beyond_the_maximum_the_oldest_revisions_go(shared: Store, tmp_path: Path) -> None:
    replica = PolicyReplica(shared, tmp_path / "a", num_saved=2)
    await replica.policy.load()
    for number in range(3):
        await replica.apply(changed(number))
    assert (await replica.policy.revision(3)).document == changed(1)
    with pytest.raises(NoSuchRevision, match="the newest is 4"):
        await replica.policy.revision(2)


async def test_a_store_that_lost_the_newest_revision_gets_it_back(tmp_path: Path) -> None:
    first = EmbeddedStore(tmp_path / "first.sqlite3", wall=lambda: 1000.0)
    replica = PolicyReplica(first, tmp_path / "a")
    await replica.policy.load()
    made = await replica.apply(changed(1))
    await first.aclose()
    empty = EmbeddedStore(tmp_path / "empty.sqlite3", wall=lambda: 1000.0)
    again = PolicyReplica(empty, tmp_path / "a")
    await again.policy.load()
    assert (again.policy.head, again.restored) == (made, [made])
    await empty.aclose()


async def test_without_the_store_the_copy_serves_and_reports_it_and_without_a_copy_nothing_does(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "shared.sqlite3", wall=lambda: 1000.0)
    before = PolicyReplica(store, tmp_path / "a")
    await before.policy.load()
    await store.aclose()
    lost = Lost(tmp_path / "none.sqlite3", wall=lambda: 1000.0)
    replica = PolicyReplica(lost, tmp_path / "a")
    await replica.policy.load()
    assert replica.policy.head == before.policy.head
    assert "may not be the newest" in (replica.policy.status.error or "")
    with pytest.raises(PolicyFileError, match="the store cannot be used"):
        await PolicyReplica(lost, tmp_path / "b").policy.load()
    bundled = PolicyReplica(lost, tmp_path / "c", is_bundled=True)
    await bundled.policy.load()
    assert bundled.policy.head.number == 0

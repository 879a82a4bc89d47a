"""The policy in the store: seeded once, applied by one of several editors, and given back where it was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.policies.errors import InvalidPolicy, NoSuchRevision, RevisionConflict
from gateway.policies.local_copy import COPY_FILE, PolicyCopy
from gateway.policies.policy_file import PolicyFileError, PolicyRevision, PolicyStatus
from gateway.policies.reading import DocumentReader, PolicyChecks, PolicyHooks
from gateway.policies.revision import Revision
from gateway.policies.seed import Seed
from gateway.policies.stored import ANY, StoredPolicy
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.embedded import EmbeddedStore

GOOD = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"


def changed(number: int) -> str:
    return f"{GOOD}# {number}\n"


class Replica:
    """One gateway process that serves the policy of a store."""

    def __init__(self, store: Store, folder: Path, *, is_bundled: bool = False, num_kept: int = 1000) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "seed.yaml").write_text(GOOD)
        self.served: list[PolicyRevision] = []
        self.statuses: list[PolicyStatus] = []
        self.restored: list[Revision] = []
        self.policy = StoredPolicy(
            store,
            reader=DocumentReader(PolicyChecks()),
            seed=Seed(path=folder / "seed.yaml", is_bundled=is_bundled),
            copy=PolicyCopy(folder / COPY_FILE, wall=lambda: 1000.0),
            hooks=PolicyHooks(
                on_revision=self.served.append, on_status=self.statuses.append, on_restored=self.restored.append
            ),
            wall=lambda: 1000.0,
            num_kept=num_kept,
        )

    async def apply(self, document: str, if_match: str = ANY) -> Revision:
        return await self.policy.apply(document, author="anna", reason="why not", if_match=if_match)


class Lost(EmbeddedStore):
    """A store that nobody reaches."""

    async def _forward(self, operation: str, *arguments: object, **options: object) -> object:
        raise StoreUnavailable(StoreLoss.DOWN, "not there", was_sent=False)


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Store]:
    opened = EmbeddedStore(tmp_path / "shared.sqlite3", wall=lambda: 1000.0)
    yield opened
    await opened.aclose()


async def test_the_first_replica_plants_the_seed_and_the_next_finds_it(shared: Store, tmp_path: Path) -> None:
    first, second = Replica(shared, tmp_path / "a"), Replica(shared, tmp_path / "b")
    await first.policy.load()
    await second.policy.load()
    assert (second.policy.head.number, second.policy.head.kind) == (1, "seed")
    assert second.policy.head == first.policy.head
    assert second.policy.status.is_current


async def test_an_apply_is_in_force_here_at_once_and_elsewhere_with_the_next_look(
    shared: Store, tmp_path: Path
) -> None:
    first, second = Replica(shared, tmp_path / "a"), Replica(shared, tmp_path / "b")
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
    replica = Replica(shared, tmp_path / "a")
    await replica.policy.load()
    seen = replica.policy.head.etag
    made = await replica.apply(changed(1), seen)
    with pytest.raises(RevisionConflict) as caught:
        await replica.apply(changed(2), seen)
    assert caught.value.theirs == made
    assert await replica.apply(changed(1), made.etag) == made


async def test_a_bad_document_changes_nothing(shared: Store, tmp_path: Path) -> None:
    replica = Replica(shared, tmp_path / "a")
    await replica.policy.load()
    with pytest.raises(InvalidPolicy):
        await replica.apply("schema_version: 1\n")
    assert (replica.policy.newest.number, len(replica.served)) == (1, 1)


async def test_of_more_revisions_than_are_kept_the_oldest_go(shared: Store, tmp_path: Path) -> None:
    replica = Replica(shared, tmp_path / "a", num_kept=2)
    await replica.policy.load()
    for number in range(3):
        await replica.apply(changed(number))
    assert (await replica.policy.revision(3)).document == changed(1)
    with pytest.raises(NoSuchRevision, match="the newest is 4"):
        await replica.policy.revision(2)


async def test_a_store_that_lost_the_newest_revision_gets_it_back(tmp_path: Path) -> None:
    first = EmbeddedStore(tmp_path / "first.sqlite3", wall=lambda: 1000.0)
    replica = Replica(first, tmp_path / "a")
    await replica.policy.load()
    made = await replica.apply(changed(1))
    await first.aclose()
    empty = EmbeddedStore(tmp_path / "empty.sqlite3", wall=lambda: 1000.0)
    again = Replica(empty, tmp_path / "a")
    await again.policy.load()
    assert (again.policy.head, again.restored) == (made, [made])
    await empty.aclose()


async def test_without_the_store_the_copy_serves_and_says_so_and_without_a_copy_nothing_does(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "shared.sqlite3", wall=lambda: 1000.0)
    before = Replica(store, tmp_path / "a")
    await before.policy.load()
    await store.aclose()
    lost = Lost(tmp_path / "none.sqlite3", wall=lambda: 1000.0)
    replica = Replica(lost, tmp_path / "a")
    await replica.policy.load()
    assert replica.policy.head == before.policy.head
    assert "may not be the newest" in (replica.policy.status.error or "")
    with pytest.raises(PolicyFileError, match="the store cannot be used"):
        await Replica(lost, tmp_path / "b").policy.load()
    bundled = Replica(lost, tmp_path / "c", is_bundled=True)
    await bundled.policy.load()
    assert bundled.policy.head.number == 0

"""Labels are known to every process that shares a store, outlive them, and are bounded in number and in age."""

from __future__ import annotations

import msgspec
import pytest

from gateway.background.cascade_calibrator import CalibrationRestart
from gateway.background.label_store import SPACE, LabelJournal
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from routing_policies.quality.training.label import Label
from routing_policies.quality.training.learning import LabelBuffer
from tests.routing_policies.quality.labels import labels

RETENTION_S = 3600.0


class Process:
    """What one gateway process knows of one pair."""

    def __init__(self, store: Store, name: str, *, max_labels: int = 100) -> None:
        self.now = 1000.0
        self.buffer = LabelBuffer(max_labels=max_labels)
        self.restarts: list[CalibrationRestart] = []
        self.journal = LabelJournal(store, self, holder=name, retention_s=RETENTION_S, wall=lambda: self.now)

    def take(self, key: str, label: Label) -> list[str]:
        return self.buffer.add(key, label)

    def drop(self, key: str) -> None:
        self.buffer.remove(key)

    def restart(self, restart: CalibrationRestart) -> None:
        self.restarts.append(restart)

    def known(self) -> list[Label]:
        return [label for _, label in self.buffer.all()]

    async def follow(self) -> None:
        await self.journal._follower.catch_up()


async def test_what_one_process_was_taught_another_one_learns_from_after_its_death(store: Store) -> None:
    first, notified = Process(store, "a"), labels(1, 5)
    for label in notified:
        first.journal.record(label)
    assert first.known() == notified, "who was told need not wait for the store"
    await first.journal.flush()

    second = Process(store, "b")
    await second.follow()
    assert second.known() == notified
    await first.follow()
    assert first.known() == notified


async def test_of_more_labels_than_there_is_room_for_the_oldest_go_everywhere(store: Store) -> None:
    one, other = Process(store, "a", max_labels=4), Process(store, "b", max_labels=4)
    early, late = labels(1, 4), labels(2, 3, at=2000.0)
    for label in early:
        one.journal.record(label)
    await one.journal.flush()
    await other.follow()
    for label in late:
        other.journal.record(label)
    await other.journal.flush()
    await one.follow()
    assert one.known() == other.known() == [early[3], *late]
    assert len(await store.keys(SPACE)) == 4


async def test_labels_past_their_time_are_not_stored(store: Store) -> None:
    process = Process(store, "a")
    old, young = labels(1, 2)
    process.journal.record(old)
    process.journal.record(young)
    process.now = old.at + RETENTION_S + 0.5
    await process.journal.flush()
    assert len(await store.keys(SPACE)) == 1


async def test_what_cannot_be_read_is_passed_over(store: Store) -> None:
    (label,) = labels(1, 1)
    process = Process(store, "a")
    process.journal.record(label)
    await process.journal.flush()
    await store.put(SPACE, "0.damaged.1", b"no label at all")
    other = Process(store, "b")
    await other.follow()
    assert other.known() == [label]


class Lost:
    """A store that is not there."""

    is_there = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        if not self.is_there:
            raise StoreUnavailable(StoreLoss.DOWN, "nobody answers")
        return getattr(self._store, name)


async def test_without_the_store_labels_wait_for_it(store: Store) -> None:
    lost = Lost(store)
    process, (label,) = Process(lost, "a"), labels(1, 1)  # type: ignore[arg-type]
    process.journal.record(label)
    with pytest.raises(StoreUnavailable):
        await process.journal.write_pending()
    await process.journal.flush()
    assert process.known() == [label]
    lost.is_there = True
    await process.journal.flush()
    assert len(await store.keys(SPACE)) == 1


async def test_one_tenants_flood_displaces_no_label_of_another(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.background.label_store.MAX_WAITING", 20)
    one, other = Process(store, "a", max_labels=20), Process(store, "b", max_labels=20)
    calm = [msgspec.structs.replace(label, tenant="calm") for label in labels(1, 5)]
    flood = [msgspec.structs.replace(label, tenant="flood") for label in labels(2, 100, at=2000.0)]
    for label in calm + flood:
        one.journal.record(label)
    assert [label for label in one.known() if label.tenant == "calm"] == calm
    assert len(one.known()) == 20
    await one.journal.flush()
    await other.follow()
    assert [label for label in other.known() if label.tenant == "calm"] == calm

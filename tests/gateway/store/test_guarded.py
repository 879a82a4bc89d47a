"""Timeouts, the breaker and what an observer learns, over a store that does as the test states."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from gateway.store.base import StoreEntry, StoreLoss, StoreUnavailable
from gateway.store.guarded import GuardedStore


class Heard:
    """An observer."""

    def __init__(self) -> None:
        self.took_s: list[tuple[str, float]] = []
        self.failures: list[tuple[str, StoreLoss]] = []
        self.states: list[bool] = []

    def took(self, operation: str, seconds: float) -> None:
        self.took_s.append((operation, seconds))

    def failed(self, operation: str, reason: StoreLoss) -> None:
        self.failures.append((operation, reason))

    def is_up(self, is_up: bool, reason: str) -> None:
        self.states.append(is_up)


class Moody:
    """A store whose `get` and `ping` take `delay_s` or raise `error`."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.error: Exception | None = None
        self.num_calls = 0
        self.num_cancelled = 0
        self.is_closed = False
        self.lost: str | None = None
        """The server, of the servers `a` and `b`, that is lost."""

    async def get(self, space: str, key: str) -> StoreEntry | None:
        self.num_calls += 1
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if self.error is not None and (self.lost is None or space == f"on {self.lost}"):
            raise self.error
        return StoreEntry(key.encode(), 1)

    def nodes(self) -> tuple[str, ...]:
        return ("a", "b") if self.lost else ("",)

    def node_of(self, space: str) -> str:
        return {"on a": "a", "on b": "b"}.get(space, "")

    async def ping(self, node: str = "") -> None:
        await self.get(f"on {node}", "ping")

    async def aclose(self) -> None:
        self.is_closed = True


def guarded(timeout_s: float = 0.03) -> tuple[GuardedStore, Any, Heard]:
    moody, heard = Moody(), Heard()
    store: Any = moody
    return GuardedStore(store, timeout_s=timeout_s, clock=time.monotonic, observer=heard), moody, heard


async def test_an_answer_passes_through_and_is_timed() -> None:
    store, _, heard = guarded()
    assert await store.get("s", "k") == StoreEntry(b"k", 1)
    assert [name for name, _ in heard.took_s] == ["get"]
    assert heard.states == [True]
    assert store.is_up


async def test_a_late_answer_is_given_up_and_its_command_broken_off() -> None:
    store, moody, heard = guarded()
    moody.delay_s = 5.0
    with pytest.raises(StoreUnavailable) as lost:
        await store.get("s", "k")
    assert (lost.value.reason, lost.value.was_sent) == (StoreLoss.SLOW, True)
    await asyncio.sleep(0)
    assert moody.num_cancelled == 1
    assert heard.failures == [("get", StoreLoss.SLOW)]
    assert heard.states == []  # one late answer is no loss


async def test_an_open_breaker_tries_nothing_and_reports_it_at_once() -> None:
    store, moody, heard = guarded()
    moody.error = StoreUnavailable(StoreLoss.DOWN, "refused")
    with pytest.raises(StoreUnavailable):
        await store.get("s", "k")
    assert heard.states == [False]
    for _ in range(100):
        with pytest.raises(StoreUnavailable) as lost:
            await store.get("s", "k")
        assert not lost.value.was_sent
    assert moody.num_calls == 1


async def test_a_store_that_is_back_is_found_by_the_watch_alone() -> None:
    store, moody, heard = guarded()
    moody.error = StoreUnavailable(StoreLoss.READ_ONLY, "replica")
    with pytest.raises(StoreUnavailable):
        await store.get("s", "k")
    watch = asyncio.create_task(store.watch())
    await asyncio.sleep(0.15)
    moody.error = None
    async with asyncio.timeout(30):
        while not store.is_up:
            await asyncio.sleep(0.01)
    assert heard.states == [False, True]
    assert await store.get("s", "k") is not None
    watch.cancel()


async def test_a_lost_server_of_several_leaves_the_others_in_use() -> None:
    store, moody, heard = guarded()
    moody.lost, moody.error = "a", StoreUnavailable(StoreLoss.DOWN, "refused")
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.get("on a", "k")
        assert await store.get("on b", "k") is not None
    assert moody.num_calls == 3
    assert (heard.states, store.is_up) == ([False], False)
    watch = asyncio.create_task(store.watch())
    moody.error = None
    async with asyncio.timeout(3):
        while not store.is_up:
            await asyncio.sleep(0.01)
    assert await store.get("on a", "k") is not None
    watch.cancel()


async def test_a_server_that_is_replaced_is_no_loss_any_more() -> None:
    store, moody, heard = guarded()
    moody.lost, moody.error = "a", StoreUnavailable(StoreLoss.DOWN, "refused")
    with pytest.raises(StoreUnavailable):
        await store.get("on a", "k")
    moody.lost, moody.error = None, None  # one server is left, which has every space
    watch = asyncio.create_task(store.watch())
    async with asyncio.timeout(3):
        while not store.is_up:
            await asyncio.sleep(0.01)
    assert heard.states == [False, True]
    watch.cancel()


async def test_what_hangs_at_a_server_that_is_replaced_is_no_loss() -> None:
    store, moody, heard = guarded(timeout_s=0.1)
    moody.lost, moody.delay_s = "a", 5.0
    hanging = [asyncio.create_task(store.get("on a", "k")) for _ in range(3)]
    await asyncio.sleep(0.01)
    moody.lost, moody.delay_s = None, 0.0  # one server is left, which has every space
    for outcome in await asyncio.gather(*hanging, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailable)
    assert heard.states == []


async def test_refusals_count_however_many_answers_came_meanwhile() -> None:
    store, moody, heard = guarded(timeout_s=0.5)
    moody.lost, moody.error, moody.delay_s = "a", StoreUnavailable(StoreLoss.READ_ONLY, "no"), 0.02
    refused = asyncio.create_task(store.get("on a", "k"))
    await asyncio.sleep(0)
    store._breaker("a").note_success(time.monotonic() + 0.01)
    with pytest.raises(StoreUnavailable):
        await refused
    assert heard.states == [False]


@pytest.mark.parametrize("reason", [StoreLoss.FULL, StoreLoss.MOVING])
async def test_a_refusal_of_one_operation_leaves_the_store_in_use(reason: StoreLoss) -> None:
    store, moody, heard = guarded()
    moody.error = StoreUnavailable(reason, "no")
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=reason):
            await store.get("s", "k")
    assert (moody.num_calls, heard.states) == (3, [True])


async def test_a_trial_that_hangs_does_not_delay_the_next() -> None:
    store, moody, _ = guarded()
    moody.error = StoreUnavailable(StoreLoss.DOWN, "refused")
    with pytest.raises(StoreUnavailable):
        await store.get("s", "k")
    moody.delay_s = 0.9  # the primary hangs, and is then replaced
    watch = asyncio.create_task(store.watch())
    async with asyncio.timeout(3):
        while moody.num_calls < 2:
            await asyncio.sleep(0.01)
    moody.delay_s, moody.error = 0.0, None
    async with asyncio.timeout(0.8):
        while not store.is_up:
            await asyncio.sleep(0.01)
    watch.cancel()
    await store.aclose()


async def test_operations_that_hang_at_a_replaced_primary_do_not_lose_the_new_one() -> None:
    """Not one of them has failed yet when the first answer of the new one comes."""
    store, moody, heard = guarded(timeout_s=0.3)
    moody.delay_s = 5.0
    hanging = [asyncio.create_task(store.get("s", "k")) for _ in range(3)]
    await asyncio.sleep(0.01)
    moody.delay_s = 0.0
    assert await store.get("s", "k") is not None
    for outcome in await asyncio.gather(*hanging, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailable)
    assert heard.states == [True]
    assert await store.get("s", "k") is not None


async def test_trials_that_hang_at_a_replaced_primary_do_not_lose_the_new_one() -> None:
    store, moody, heard = guarded(timeout_s=0.3)
    moody.error = StoreUnavailable(StoreLoss.DOWN, "refused")
    with pytest.raises(StoreUnavailable):
        await store.get("s", "k")
    moody.delay_s, moody.error = 5.0, None  # the primary is frozen
    trials = [asyncio.create_task(store.ping()) for _ in range(3)]
    await asyncio.sleep(0.01)
    moody.delay_s = 0.0  # another one is the primary now
    await store.ping()
    assert heard.states == [False, True]
    for outcome in await asyncio.gather(*trials, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailable)
    assert heard.states == [False, True]
    assert await store.get("s", "k") is not None


async def test_a_store_that_stays_slow_stays_lost() -> None:
    store, moody, heard = guarded(timeout_s=0.02)
    moody.delay_s = 0.1  # answers, but never in time
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.get("s", "k")
    watch = asyncio.create_task(store.watch())
    await asyncio.sleep(1.0)
    assert heard.states == [False]
    watch.cancel()
    await store.aclose()


async def test_who_leaves_does_not_break_off_the_command() -> None:
    store, moody, heard = guarded(timeout_s=1.0)
    moody.delay_s = 0.03
    task = asyncio.create_task(store.get("s", "k"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.06)
    assert (moody.num_cancelled, len(heard.took_s)) == (0, 1)


async def test_a_busy_event_loop_is_not_taken_for_a_slow_store() -> None:
    store, moody, heard = guarded(timeout_s=0.03)
    moody.delay_s = 0.02
    asyncio.get_running_loop().call_later(0.01, time.sleep, 0.1)
    assert await store.get("s", "k") is not None
    assert heard.failures == []


async def test_closing_leaves_nothing_running() -> None:
    store, moody, _ = guarded(timeout_s=5.0)
    moody.delay_s = 5.0
    task = asyncio.create_task(store.get("s", "k"))
    await asyncio.sleep(0.01)
    await store.aclose()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert moody.is_closed
    assert moody.num_cancelled == 1


async def test_a_store_that_is_back_has_the_others_tried_at_once() -> None:
    """The clock stands, so no trial comes due by its time."""
    stores: list[GuardedStore] = []

    def tell() -> None:
        for each in stores:
            each.expect_back()

    moods = [Moody(), Moody()]
    for mood in moods:
        raw: Any = mood
        stores.append(GuardedStore(raw, timeout_s=0.5, clock=lambda: 0.0, observer=Heard(), on_back=tell))
        mood.error = StoreUnavailable(StoreLoss.DOWN, "refused")
    for store in stores:
        with pytest.raises(StoreUnavailable):
            await store.get("s", "k")
    watch = asyncio.create_task(stores[1].watch())
    for mood in moods:
        mood.error = None
    await asyncio.sleep(0.2)  # several looks of the watch
    assert not stores[1].is_up
    await stores[0].ping()
    async with asyncio.timeout(3):
        while not stores[1].is_up:
            await asyncio.sleep(0.01)
    watch.cancel()
    for store in stores:
        await store.aclose()

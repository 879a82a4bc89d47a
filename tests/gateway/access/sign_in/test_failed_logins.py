"""Failed logins: counted together by everybody who shares a store."""

from __future__ import annotations

import asyncio

import pytest

from gateway.access.sign_in.failed_logins import (
    FIRST_DELAY_S,
    MAX_DELAY_S,
    MAX_FAILED_LOGINS,
    RESET_AFTER_S,
    SPACE,
    FailedLogins,
)
from gateway.store.base import Store


class Wall:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall() -> Wall:
    return Wall()


async def test_replicas_allow_no_more_attempts_together_than_one_does(store: Store, wall: Wall) -> None:
    replicas = [FailedLogins(store, wall) for _ in range(3)]
    waits = [await replicas[number % 3].take("name anna") for number in range(MAX_FAILED_LOGINS + 3)]
    assert waits == [0.0] * MAX_FAILED_LOGINS + [FIRST_DELAY_S] * 3
    assert await replicas[0].take("name bert") == 0.0
    wall.now += FIRST_DELAY_S + 1
    assert await replicas[1].take("name anna") == 0.0


async def test_attempts_that_come_at_once_are_counted_one_by_one(store: Store, wall: Wall) -> None:
    replicas = [FailedLogins(store, wall) for _ in range(4)]
    waits = await asyncio.gather(*(replica.take("name anna") for replica in replicas for _ in range(3)))
    assert sorted(waits) == [0.0] * MAX_FAILED_LOGINS + [FIRST_DELAY_S] * (12 - MAX_FAILED_LOGINS)


async def test_the_right_password_clears_a_name_and_gives_back_one_of_the_address(store: Store, wall: Wall) -> None:
    failed_logins = FailedLogins(store, wall)
    for _ in range(MAX_FAILED_LOGINS):
        assert await failed_logins.take("host h", "name anna") == 0.0
    await failed_logins.forget("name anna")
    await failed_logins.give_back("host h")
    assert await failed_logins.take("host h", "name anna") == 0.0
    assert await failed_logins.take("host h", "name bert") > 0.0
    assert await failed_logins.take("name bert") == 0.0, "who is refused by address has used nothing of the name"


async def test_what_cannot_be_read_counts_as_nothing(store: Store, wall: Wall) -> None:
    failed_logins = FailedLogins(store, wall)
    assert await failed_logins.take("n" * 2000) == 0.0
    (key,) = await store.keys(SPACE)
    await store.put(SPACE, key, b"\xc1")
    assert await failed_logins.take("n" * 2000) == 0.0


async def test_each_further_attempt_doubles_the_delay_up_to_a_bound(store: Store, wall: Wall) -> None:
    failed_logins, delays = FailedLogins(store, wall), []
    for _ in range(MAX_FAILED_LOGINS):
        assert await failed_logins.take("name anna") == 0.0
    for _ in range(10):
        delays.append(await failed_logins.take("name anna"))
        wall.now += delays[-1]
        assert await failed_logins.take("name anna") == 0.0
    assert delays == [min(FIRST_DELAY_S * 2**number, MAX_DELAY_S) for number in range(10)]
    assert delays[-1] == MAX_DELAY_S


async def test_after_an_idle_hour_the_count_begins_anew(store: Store, wall: Wall) -> None:
    failed_logins = FailedLogins(store, wall)
    for _ in range(MAX_FAILED_LOGINS):
        await failed_logins.take("name anna")
    wall.now += RESET_AFTER_S + 1
    assert [await failed_logins.take("name anna") for _ in range(MAX_FAILED_LOGINS + 1)] == [
        0.0
    ] * MAX_FAILED_LOGINS + [FIRST_DELAY_S]


async def test_a_right_password_after_a_delay_opens_the_way_for_the_next(store: Store, wall: Wall) -> None:
    failed_logins = FailedLogins(store, wall)
    for _ in range(MAX_FAILED_LOGINS + 2):
        wall.now += await failed_logins.take("host h")
        await failed_logins.take("host h")
    wall.now += MAX_DELAY_S
    assert await failed_logins.take("host h") == 0.0
    await failed_logins.give_back("host h")
    assert await failed_logins.take("host h") == 0.0


async def test_a_clock_that_went_back_locks_nobody_out_for_longer(store: Store, wall: Wall) -> None:
    failed_logins = FailedLogins(store, wall)
    for _ in range(MAX_FAILED_LOGINS):
        await failed_logins.take("name anna")
    wall.now -= 1_000.0
    assert await failed_logins.take("name anna") == FIRST_DELAY_S


async def test_a_burst_of_wrong_passwords_delays_the_owner_for_seconds(store: Store, wall: Wall) -> None:
    failed_logins = FailedLogins(store, wall)
    waits = [await failed_logins.take("host h", "account h anna") for _ in range(200)]
    assert max(waits) == FIRST_DELAY_S <= 5.0
    wall.now += FIRST_DELAY_S
    assert await failed_logins.take("host h", "account h anna") == 0.0


async def test_steady_attempts_get_few_tries_an_hour(store: Store, wall: Wall) -> None:
    failed_logins, num_tries, end = FailedLogins(store, wall), 0, wall.now + 24 * 3600.0
    while wall.now < end:
        wait_s = await failed_logins.take("host h", "account h anna")
        num_tries += wait_s == 0.0
        wall.now += wait_s
    assert num_tries <= 24 * 5

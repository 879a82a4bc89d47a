"""Connections by client address count for the machine, whichever process has them, and go with a process that ends."""

from __future__ import annotations

import random

from gateway.machine.shared_addresses import WINDOW, SharedAddresses
from gateway.machine.shared_counts import NUM_ADDRESSES, CountsRow, SharedCounts, create_table

NUM = 3


def tables(num: int = NUM) -> list[SharedCounts]:
    table = create_table(num)
    return [SharedCounts(table, num_columns=num, column=column) for column in range(num)]


def test_the_bound_holds_over_processes_and_frees_with_each_connection() -> None:
    one, two, _ = (SharedAddresses(counts) for counts in tables())
    assert [each.enter("10.0.0.1", 3) for each in (one, two, one, two, one)] == [True, True, True, False, False]
    assert two.enter("10.0.0.2", 3)
    two.leave("10.0.0.1")
    assert one.enter("10.0.0.1", 3)
    assert not two.enter("10.0.0.1", 3)


def test_what_a_process_counted_goes_with_it_and_its_next_life_counts_anew() -> None:
    counts = tables()
    one, two = SharedAddresses(counts[1]), SharedAddresses(counts[2])
    assert one.enter("10.0.0.1", 2)
    assert one.enter("10.0.0.1", 2)
    assert not two.enter("10.0.0.1", 2)
    counts[0].clear(1)
    assert two.enter("10.0.0.1", 2)
    again = SharedAddresses(counts[1])
    assert again.enter("10.0.0.1", 2)
    assert not again.enter("10.0.0.1", 2)


def test_rows_and_addresses_have_nothing_in_common() -> None:
    counts = tables()
    row = CountsRow(counts[1], "deployment a")
    row.held[1] += 5
    addresses = SharedAddresses(counts[1])
    for number in range(2_000):
        assert addresses.enter(f"10.1.{number >> 8}.{number & 255}", 1)
    assert (row.num_held, CountsRow(counts[2], "deployment a").num_held) == (5, 5)
    counts[0].clear(1)
    assert row.num_held == 0


def test_thousands_of_addresses_come_and_go_and_every_count_stays_exact() -> None:
    rng = random.Random(7)
    processes = [SharedAddresses(counts) for counts in tables()]
    held: dict[str, list[int]] = {}
    for _ in range(40_000):
        address = f"10.{rng.randrange(40)}.{rng.randrange(100)}.1"
        own = held.setdefault(address, [])
        if own and rng.random() < 0.55:
            processes[own.pop()].leave(address)
            continue
        process = rng.randrange(NUM)
        assert processes[process].enter(address, 3) == (len(own) < 3)
        if len(own) < 3:
            own.append(process)


def test_a_full_window_refuses_and_counts_nothing() -> None:
    (counts,) = tables(1)
    addresses = SharedAddresses(counts)
    name = addresses._name_of("10.0.0.1")
    for step in range(WINDOW):
        place = (name + step) % NUM_ADDRESSES
        counts.words[counts.addresses_begin + place] = name + 1
        counts.words[counts.addresses_begin + NUM_ADDRESSES + place] = 1
    assert not addresses.enter("10.0.0.1", 5)
    counts.words[counts.addresses_begin + NUM_ADDRESSES + name % NUM_ADDRESSES] = 0
    assert addresses.enter("10.0.0.1", 5)


def test_each_table_has_a_key_of_its_own() -> None:
    assert tables()[0].address_key != tables()[0].address_key
    one, two, _ = tables()
    assert one.address_key == two.address_key

"""SharedCounts: rows by name, what each process counts, turns, locks, and the death of a process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.machine.shared_counts import NUM_ROWS, Cell, CountsRow, RowLock, SharedCounts, TableFull, create_table

NUM_COLUMNS = 3


@pytest.fixture
def table() -> Iterator[list[SharedCounts]]:
    descriptor = create_table(NUM_COLUMNS)
    yield [SharedCounts(descriptor, num_columns=NUM_COLUMNS, column=column) for column in range(NUM_COLUMNS)]
    os.close(descriptor)


def rows(table: list[SharedCounts], name: str = "deployment a") -> list[CountsRow]:
    return [CountsRow(counts, name) for counts in table]


def hold(row: CountsRow, num: int) -> None:
    row.held[row.column] += num


def test_being_short_changes_no_count_of_permits(table: list[SharedCounts]) -> None:
    first, second, _ = rows(table)
    hold(first, 5)
    for is_short in (True, True, False, False, True):
        second.is_short = is_short
        hold(second, 2)
        assert (second.is_short, first.is_short) == (is_short, False)
        assert first.is_any_short == is_short
        assert (first.held_elsewhere, second.held_elsewhere) == (first.num_held - 5, 5)
    assert first.num_held == 15
    hold(second, -10)
    assert (first.num_held, second.is_short) == (5, True)


def test_what_each_process_counts_adds_up(table: list[SharedCounts]) -> None:
    first, second, _ = rows(table)
    hold(first, 2)
    hold(second, 3)
    second.wait(1)
    hold(first, -1)

    assert (first.num_held, second.num_held) == (4, 4)
    assert (first.held_elsewhere, second.held_elsewhere) == (3, 1)
    assert first.num_waiting == 1


def test_names_have_rows_of_their_own(table: list[SharedCounts]) -> None:
    found = [CountsRow(table[0], f"deployment {number}") for number in range(100)]
    for number, row in enumerate(found):
        hold(row, number)
    again = [CountsRow(table[1], f"deployment {number}") for number in range(100)]

    assert [row.num_held for row in again] == list(range(100))


def test_processes_take_turns_oldest_grant_first(table: list[SharedCounts]) -> None:
    first, second, third = rows(table)
    assert first.next_short() is None
    first.is_short = second.is_short = True
    first.note_granted()

    assert first.next_short() == 1
    assert (first.num_before(), second.num_before()) == (1, 0)
    assert third.num_before() == 2  # it waits for nothing: a newcomer comes after all that wait
    second.note_granted()
    assert (first.next_short(), first.num_before(), second.num_before()) == (0, 0, 1)


def test_a_dead_process_leaves_nothing(table: list[SharedCounts]) -> None:
    first, second, _ = rows(table)
    hold(first, 2)
    hold(second, 3)
    second.wait(4)
    second.is_short = True
    table[0].clear(1)

    assert (first.num_held, first.num_waiting, first.is_any_short) == (2, 0, False)


def test_a_row_that_nobody_uses_may_have_another_name(table: list[SharedCounts]) -> None:
    counts = table[0]
    for number in range(NUM_ROWS + 10):
        row = CountsRow(counts, f"deployment {number}")
        del row
        gc.collect(0)
    used = [CountsRow(counts, f"lane {number}") for number in range(NUM_ROWS)]
    with pytest.raises(TableFull):
        CountsRow(counts, "one more")
    assert len(used) == NUM_ROWS


_HOLD = """
import sys
from gateway.machine.shared_counts import RowLock
lock = RowLock(int(sys.argv[1]), int(sys.argv[2]))
assert lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(descriptor: int, row: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the lock of a row."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(descriptor), str(row)],
        pass_fds=[descriptor],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder
    finally:
        holder.kill()
        holder.wait()
        for stream in (holder.stdin, holder.stdout):
            assert stream is not None
            stream.close()


def test_a_new_name_waits_longer_for_the_lock_than_a_grant(
    table: list[SharedCounts], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with held_elsewhere(table[0].descriptor, 0) as holder:

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if sum(pauses) > 0.05 and holder.poll() is None:
                holder.kill()
                os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)

        monkeypatch.setattr(time, "sleep", pause)
        hold(CountsRow(table[0], "deployment a"), 1)
    assert 0.05 < sum(pauses) < 0.1


def test_a_lock_is_one_processs_and_ends_with_it(table: list[SharedCounts]) -> None:
    descriptor = table[0].descriptor
    mine = RowLock(descriptor, 7)
    with held_elsewhere(descriptor, 7):
        assert not mine.acquire()
        assert RowLock(descriptor, 8).acquire()
    assert mine.acquire()
    assert mine.acquire()  # again by its holder
    mine.release()
    mine.release()


def test_cells_of_a_row_do_not_overlap(table: list[SharedCounts]) -> None:
    counts = table[0]
    places = {counts.cell(row, kind, column) for row in (0, 1) for kind in Cell for column in range(NUM_COLUMNS)}
    assert len(places) == 2 * len(Cell) * NUM_COLUMNS
    assert min(places) == 2

"""SharedCounts: one table of numbers in memory that all processes of a gateway map.

A row belongs to a name, such as a deployment's. It has a cell of each kind for every process. A process writes its own
cells only and reads all of them, so a read costs no call to anybody. A decision that must be exact is made under the
row's lock, which the kernel releases when its holder dies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import time
import weakref
from array import array
from enum import IntEnum
from hashlib import blake2b
from typing import Final

NUM_ROWS: Final = 4096
"""Names in use at the same time: deployments and lanes of all policies in force."""
NUM_ADDRESSES: Final = 1 << 15
"""Places of client addresses with connections; memory is taken for those in use alone."""
WORD: Final = 8
_KEY_BYTES: Final = 2 * WORD
_NAME_WORDS: Final = 2
_LOCK_TRIES: Final = 100
_NAME_LOCK_TRIES: Final = 2000
"""Tries for the lock of the names, which all processes want at once when a policy or members come into force."""
_LOCK_PAUSE_S: Final = 0.00005


class Cell(IntEnum):
    """A kind of number that every process has in a row."""

    USES = 0
    """Objects of the process that count in this row; a row without uses may be given to another name."""
    HELD = 1
    """Permits in use, and SHORT while requests of the process wait for want of one."""
    WAITING = 2
    GRANTED_AT = 3
    """Monotonic nanoseconds of the process's last grant."""
    CLOSED = 4
    """Connections that were handed to the process and have closed."""


SHORT: Final = 1 << 40
"""What a process that is short of permits adds to its cell HELD, beyond any number of permits.

One sum over the cells then tells both how many permits are in use and whether any process is short.
"""
HELD_MASK: Final = SHORT - 1


class TableFull(ValueError):
    """Error for more names than the table has rows."""


class SharedCounts:
    """The table, as one of `num_columns` processes sees it; `column` is this process's."""

    def __init__(self, descriptor: int, *, num_columns: int, column: int) -> None:
        """Map the table behind a descriptor of `create_table`, which stays open."""
        self.num_columns = num_columns
        self.column = column
        self.descriptor = descriptor
        self.row_words = _row_words(num_columns)
        self.words = memoryview(mmap.mmap(descriptor, _table_bytes(num_columns))).cast("q")
        self.addresses_begin = NUM_ROWS * self.row_words
        """Index of the part of `SharedAddresses`: the names of the places, then each process's counts."""
        self.address_key = os.pread(descriptor, _KEY_BYTES, _rows_bytes(num_columns) + _addresses_bytes(num_columns))
        """Key of the addresses' digests, in no other table."""

    def row_of(self, name: str) -> int:
        """Return the row of a name, given to it now if it has none, with one more use of this process.

        Raises:
            TableFull: Every row is in use.
        """
        high, low = _name_words(name)
        lock = RowLock(self.descriptor, 0)
        if not lock.acquire(_NAME_LOCK_TRIES):
            raise TableFull("the table of shared counts is locked")
        try:
            row = self._find(high, low)
            begin = row * self.row_words
            self.words[begin], self.words[begin + 1] = high, low
            self.words[self.cell(row, Cell.USES, self.column)] += 1
        finally:
            lock.release()
        return row

    def leave(self, row: int) -> None:
        """Take back one use of a row."""
        self.words[self.cell(row, Cell.USES, self.column)] -= 1

    def cell(self, row: int, kind: Cell, column: int) -> int:
        """Return the index of a cell in `words`."""
        return row * self.row_words + _NAME_WORDS + kind * self.num_columns + column

    def cells(self, row: int, kind: Cell) -> memoryview:
        """Return the cells of one kind of all processes."""
        begin = self.cell(row, kind, 0)
        return self.words[begin : begin + self.num_columns]

    def clear(self, column: int) -> None:
        """Void everything that a process counted; for one that has ended."""
        for row in range(NUM_ROWS):
            if self.words[row * self.row_words] or self.words[row * self.row_words + 1]:
                for kind in Cell:
                    self.words[self.cell(row, kind, column)] = 0
        begin = self.addresses_begin + NUM_ADDRESSES * (1 + column)
        self.words[begin : begin + NUM_ADDRESSES] = array("q", bytes(NUM_ADDRESSES * WORD))

    def _find(self, high: int, low: int) -> int:
        """Return the row of a name, else one to give to it."""
        unused = None
        first = high % NUM_ROWS
        for step in range(NUM_ROWS):
            row = (first + step) % NUM_ROWS
            begin = row * self.row_words
            known = self.words[begin], self.words[begin + 1]
            if known == (high, low):
                return row
            if known == (0, 0):
                return row if unused is None else unused
            if unused is None and not any(self.cells(row, Cell.USES)):
                unused = row
        if unused is None:
            raise TableFull(f"more than {NUM_ROWS} deployments and lanes are in use at once")
        return unused


class RowLock:
    """Lock of one row between processes; within a process it may be taken again by its holder."""

    __slots__ = ("_depth", "_descriptor", "_place")

    def __init__(self, descriptor: int, row: int) -> None:
        self._descriptor = descriptor
        self._place = row
        self._depth = 0

    def acquire(self, num_tries: int = _LOCK_TRIES) -> bool:
        """Take the lock; False when another process has had it for milliseconds, such as one that is stopped."""
        if self._depth:
            self._depth += 1
            return True
        for _ in range(num_tries):
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._place)
            except OSError:  # BlockingIOError or PermissionError, by the system
                time.sleep(_LOCK_PAUSE_S)
            else:
                self._depth = 1
                return True
        return False

    def release(self) -> None:
        """Give one `acquire` back."""
        self._depth -= 1
        if not self._depth:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, self._place)


class CountsRow:
    """One row as one process sees it: what it counts itself, and what all count together.

    `held` is for decisions on every request, which read the cells without a call for each question.
    """

    __slots__ = ("__weakref__", "_granted_at", "column", "held", "lock", "num_columns", "waiting")

    def __init__(self, counts: SharedCounts, name: str) -> None:
        row = counts.row_of(name)
        weakref.finalize(self, counts.leave, row)
        self.column = counts.column
        self.num_columns = counts.num_columns
        self.held = counts.cells(row, Cell.HELD)
        """Cells HELD of all processes; a process changes its own, `column`, only."""
        self.waiting = counts.cells(row, Cell.WAITING)
        """Waiting requests of each process."""
        self._granted_at = counts.cells(row, Cell.GRANTED_AT)
        self.lock = RowLock(counts.descriptor, row + 1)

    @property
    def num_held(self) -> int:
        """Permits in use, of all processes."""
        return sum(self.held) & HELD_MASK

    @property
    def held_elsewhere(self) -> int:
        """Permits in use by other processes."""
        return (sum(self.held) - self.held[self.column]) & HELD_MASK

    @property
    def num_waiting(self) -> int:
        """Waiting requests of all processes."""
        return sum(self.waiting)

    def num_waiting_elsewhere(self, most: float) -> float:
        """Return the waiting requests of other processes, at most `most` of each."""
        column = self.column
        return sum(min(num, most) for other, num in enumerate(self.waiting) if other != column)

    @property
    def is_any_short(self) -> bool:
        """True if requests of any process wait for want of a permit."""
        return sum(self.held) >= SHORT

    @property
    def is_short(self) -> bool:
        """True if requests of this process do."""
        return self.held[self.column] >= SHORT

    @is_short.setter
    def is_short(self, value: bool) -> None:
        self.held[self.column] += SHORT * (value - self.is_short)

    def wait(self, num: int) -> None:
        """Count `num` more waiting requests of this process, or fewer when negative."""
        self.waiting[self.column] += num

    def note_granted(self) -> None:
        """Put this process behind the others: of those that are short, the one whose last grant is oldest is next."""
        self._granted_at[self.column] = time.monotonic_ns()

    def num_before(self) -> int:
        """Return how many other processes have a turn before this one, each with a right to one permit."""
        column, granted_at = self.column, self._granted_at
        own = (granted_at[column], column) if self.is_short else None
        return sum(
            1
            for other, held in enumerate(self.held)
            if held >= SHORT and other != column and (own is None or (granted_at[other], other) < own)
        )

    def next_short(self) -> int | None:
        """Return the process whose turn is next; None when none is short."""
        short = [column for column, held in enumerate(self.held) if held >= SHORT]
        return min(short, key=lambda column: (self._granted_at[column], column), default=None)


def create_table(num_columns: int) -> int:
    """Return the descriptor of a new table without a name, for processes to inherit."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("penstock-counts")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _table_bytes(num_columns))
    os.pwrite(descriptor, os.urandom(_KEY_BYTES), _rows_bytes(num_columns) + _addresses_bytes(num_columns))
    return descriptor


def _row_words(num_columns: int) -> int:
    return _NAME_WORDS + len(Cell) * num_columns


def _table_bytes(num_columns: int) -> int:
    return _rows_bytes(num_columns) + _addresses_bytes(num_columns) + _KEY_BYTES


def _rows_bytes(num_columns: int) -> int:
    return NUM_ROWS * _row_words(num_columns) * WORD


def _addresses_bytes(num_columns: int) -> int:
    return NUM_ADDRESSES * (1 + num_columns) * WORD


def _name_words(name: str) -> tuple[int, int]:
    digest = blake2b(name.encode(), digest_size=2 * WORD).digest()
    return (
        int.from_bytes(digest[:WORD], "little", signed=True),
        int.from_bytes(digest[WORD:], "little", signed=True),
    )

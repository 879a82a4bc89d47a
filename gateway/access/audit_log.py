"""AuditLog: a log of every change, in which each line holds the hash of the line before it.

A line is written before its change. A change that fails afterwards adds a second line that withdraws the first. Editing
or removing a line breaks the chain at the next one. Removing lines from the end does not, so the newest hash also goes
into the gateway's own log. A process that notices a missing end records it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any, Final

import msgspec

from gateway.access.identity import SYSTEM, Identity
from gateway.store.base import LogEntry, Store, StoreUnavailable

SPACE: Final = "audit"
LOG: Final = "changes"
FIRST: Final = "0" * 64
_PAGE: Final = 500
_TRIES: Final = 20
_CUT: Final = "the log went up to this line, and its end is not in the store any more"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log; `hash` is the SHA-256 of all other members, as JSON with sorted keys."""

    at: float
    author: str
    role: str
    action: str
    target: str
    reason: str
    detail: dict[str, Any]
    previous: str
    hash: str = ""

    def sealed(self) -> AuditEntry:
        """Return the entry with its hash."""
        return msgspec.structs.replace(self, hash=_digest(msgspec.to_builtins(self)))


class ChainCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Result of verifying the chain."""

    ok: bool
    num_entries: int
    broken_at: int | None
    """Number of the first line that was changed or does not follow the line before it."""
    head: str
    """Hash of the last valid line."""


class AuditBroken(Exception):
    """Error for a log whose last line cannot be read or extended."""


class AuditLog:
    """The store's log of changes; methods raise StoreUnavailable."""

    def __init__(
        self,
        store: Store,
        *,
        wall: Callable[[], float],
        on_append: Callable[[int, AuditEntry], None] = lambda seq, entry: None,
    ) -> None:
        """Open the log; the callback `on_append` runs for each line that this process writes."""
        self._store = store
        self._wall = wall
        self._on_append = on_append
        self._last = (0, FIRST)
        """Number and hash of the newest line that this process has seen."""
        self._cut: tuple[int, str] | None = None
        """Newest line seen before the log lost its end; None once a line records the loss."""

    async def record(
        self, who: Identity, action: str, target: str = "", *, reason: str = "", detail: dict[str, Any] | None = None
    ) -> int:
        """Append one line and return its number.

        Raises:
            AuditBroken: The last line is unreadable, or other writers were faster on every try.
        """
        for _ in range(_TRIES):
            seq, previous = await self._tail()
            if self._cut is not None:
                await self._note_cut()
                continue
            entry = AuditEntry(
                at=self._wall(),
                author=who.name,
                role=who.role.label,
                action=action,
                target=target,
                reason=reason,
                detail=detail or {},
                previous=previous,
            ).sealed()
            written = await self._store.append(SPACE, LOG, msgspec.json.encode(entry), after=seq)
            if written is not None:
                self._last = (written, entry.hash)
                self._on_append(written, entry)
                return written
        raise AuditBroken(f"{_TRIES} others wrote at the same time; try again")

    @asynccontextmanager
    async def announced(
        self, who: Identity, action: str, target: str = "", *, reason: str = "", detail: dict[str, Any] | None = None
    ) -> AsyncIterator[int]:
        """Append one line before the block makes its change; withdraw it if the store surely did not take that.

        Yields the line's number. Raises AuditBroken, as `record` does; then the block does not run.
        """
        line = await self.record(who, action, target, reason=reason, detail=detail)
        try:
            yield line
        except StoreUnavailable as error:
            if not error.was_sent:
                with suppress(StoreUnavailable, AuditBroken):  # the caller learns of the first loss
                    await self.withdraw(who, line, action, target)
            raise

    async def withdraw(self, who: Identity, line: int, action: str, target: str = "") -> None:
        """Record that the change announced in `line` did not happen."""
        await self.record(who, f"{action}.withdrawn", target, detail={"line": line})

    async def entries(self, *, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return up to `limit` lines behind number `after`, oldest first."""
        return [_shown(line) for line in await self._store.read_log(SPACE, LOG, after=after, limit=limit)]

    async def last(self) -> int:
        """Return the number of the newest line, even of an unreadable one; 0 for an empty log."""
        newest = await self._unseen()
        if newest is not None:
            self._see(newest)
        return self._last[0] if newest is None else newest.seq

    async def verify(self) -> ChainCheck:
        """Verify the whole chain."""
        seq, head = 0, FIRST
        known = self._cut or self._last
        while lines := await self._store.read_log(SPACE, LOG, after=seq, limit=_PAGE):
            for line in lines:
                entry = _read(line)
                if entry is None or entry.previous != head or not _is_whole(line) or line.seq != seq + 1:
                    return ChainCheck(ok=False, num_entries=seq, broken_at=line.seq, head=head)
                seq, head = line.seq, entry.hash
                if seq == known[0] and head != known[1]:
                    return ChainCheck(ok=False, num_entries=seq - 1, broken_at=seq, head=entry.previous)
        if seq < known[0]:
            return ChainCheck(ok=False, num_entries=seq, broken_at=seq + 1, head=head)
        return ChainCheck(ok=True, num_entries=seq, broken_at=None, head=head)

    async def _note_cut(self) -> None:
        """Append a line which records that the end of the log is missing."""
        assert self._cut is not None
        known, self._cut = self._cut, None
        detail = {"num_lines": known[0], "hash": known[1]}
        try:
            await self.record(SYSTEM, "audit.cut_off", f"line {known[0]}", reason=_CUT, detail=detail)
        except BaseException:
            self._cut = known
            raise

    async def _tail(self) -> tuple[int, str]:
        """Return number and hash of the newest line. Raises AuditBroken where it cannot be read."""
        newest = await self._unseen()
        if newest is not None and not self._see(newest):
            raise AuditBroken(f"line {newest.seq} of the audit log cannot be read")
        return self._last

    async def _unseen(self) -> LogEntry | None:
        """Return the newest line behind the last one seen, or None.

        The last line seen is read again, because another may have replaced it.
        """
        seq, head = self._last
        lines = await self._store.read_log(SPACE, LOG, after=max(seq - 1, 0), limit=_PAGE)
        if seq and (not lines or (first := _read(lines[0])) is None or first.hash != head):
            self._cut, self._last = self._last, (0, FIRST)
            return await self._unseen()
        newest: LogEntry | None = None
        while lines and lines[-1].seq != seq:
            newest = lines[-1]
            seq = newest.seq
            lines = await self._store.read_log(SPACE, LOG, after=seq, limit=_PAGE)
        return newest

    def _see(self, newest: LogEntry) -> bool:
        """Take a line as the last one seen; return False for one that cannot be read."""
        entry = _read(newest)
        if entry is not None:
            self._last = (newest.seq, entry.hash)
        return entry is not None


def _is_whole(line: LogEntry) -> bool:
    """Return whether a line is as it was sealed, the members that a later version added included."""
    content: dict[str, Any] = msgspec.json.decode(line.payload)
    return bool(content.get("hash") == _digest(content))


def _digest(content: dict[str, Any]) -> str:
    return sha256(msgspec.json.encode({**content, "hash": None}, order="sorted")).hexdigest()


def _read(line: LogEntry) -> AuditEntry | None:
    try:
        return msgspec.json.decode(line.payload, type=AuditEntry)
    except msgspec.DecodeError:
        return None


def _shown(line: LogEntry) -> dict[str, Any]:
    entry = _read(line)
    return {"seq": line.seq, **(msgspec.to_builtins(entry) if entry is not None else {"action": "unreadable"})}

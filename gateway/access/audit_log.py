"""AuditLog: every change, each line holding the hash of the one before it.

An entry is written before the change it is about; one that then does not happen is followed by a line that says so.
Changing or removing a line breaks the chain at the next one. Removing lines from the end does not, so the newest hash
also goes into the gateway's own log, which is kept elsewhere, and whoever knew a line that is gone writes that down.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import msgspec

from gateway.access.identity import SYSTEM, Identity
from gateway.store.base import LogEntry, Store

SPACE: Final = "audit"
LOG: Final = "changes"
FIRST: Final = "0" * 64
_PAGE: Final = 500
_TRIES: Final = 20
_CUT: Final = "the log went up to this line, and its end is not in the store any more"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `hash` is the sha256 of everything else in it, as JSON with the keys in order."""

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
        """The same with its hash."""
        return msgspec.structs.replace(self, hash=self._digest())

    @property
    def is_whole(self) -> bool:
        """Whether nobody has changed it since it was sealed."""
        return self.hash == self._digest()

    def _digest(self) -> str:
        content = {**msgspec.to_builtins(self), "hash": None}
        return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


class ChainCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk along the chain found."""

    ok: bool
    num_entries: int
    broken_at: int | None
    """The first line that does not fit the one before it, or was changed."""
    head: str
    """Hash of the last good line."""


class AuditBroken(Exception):
    """The last line of the log cannot be read, so nothing can be chained to it."""


class AuditLog:
    """Methods raise StoreUnavailable."""

    def __init__(
        self,
        store: Store,
        *,
        wall: Callable[[], float],
        told: Callable[[int, AuditEntry], None] = lambda seq, entry: None,
    ) -> None:
        """`told` hears of each line that this process wrote."""
        self._store = store
        self._wall = wall
        self._told = told
        self._last = (0, FIRST)
        """The newest line that this process knows, and its hash."""
        self._cut: tuple[int, str] | None = None
        """The one it knew when the log turned out to have lost it, until a line says so."""

    async def record(
        self, who: Identity, action: str, target: str = "", *, reason: str = "", detail: dict[str, Any] | None = None
    ) -> int:
        """Write one line; its number."""
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
                self._told(written, entry)
                return written
        raise AuditBroken(f"{_TRIES} others wrote at the same time; try again")

    async def withdraw(self, who: Identity, line: int, action: str, target: str = "") -> None:
        """What that line announced did not happen."""
        await self.record(who, f"{action}.withdrawn", target, detail={"line": line})

    async def entries(self, *, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Lines behind number `after`, oldest first."""
        return [_shown(line) for line in await self._store.read_log(SPACE, LOG, after=after, limit=limit)]

    async def last(self) -> int:
        """Number of the newest line, 0 without any."""
        return (await self._tail())[0]

    async def verify(self) -> ChainCheck:
        """Walk the whole chain."""
        seq, head = 0, FIRST
        known = self._cut or self._last
        while lines := await self._store.read_log(SPACE, LOG, after=seq, limit=_PAGE):
            for line in lines:
                entry = _read(line)
                if entry is None or entry.previous != head or not entry.is_whole or line.seq != seq + 1:
                    return ChainCheck(ok=False, num_entries=seq, broken_at=line.seq, head=head)
                seq, head = line.seq, entry.hash
                if seq == known[0] and head != known[1]:
                    return ChainCheck(ok=False, num_entries=seq - 1, broken_at=seq, head=entry.previous)
        if seq < known[0]:
            return ChainCheck(ok=False, num_entries=seq, broken_at=seq + 1, head=head)
        return ChainCheck(ok=True, num_entries=seq, broken_at=None, head=head)

    async def _note_cut(self) -> None:
        """The store lost the end of the log, or somebody cut it. It goes on with a line about that."""
        assert self._cut is not None
        known, self._cut = self._cut, None
        detail = {"num_lines": known[0], "hash": known[1]}
        try:
            await self.record(SYSTEM, "audit.cut_off", f"line {known[0]}", reason=_CUT, detail=detail)
        except BaseException:
            self._cut = known
            raise

    async def _tail(self) -> tuple[int, str]:
        """The newest line there is. One that was known is looked at again: by now another may stand in its place."""
        seq, head = self._last
        lines = await self._store.read_log(SPACE, LOG, after=max(seq - 1, 0), limit=_PAGE)
        if seq and (not lines or (first := _read(lines[0])) is None or first.hash != head):
            self._cut, self._last = self._last, (0, FIRST)
            return await self._tail()
        while lines and lines[-1].seq != seq:
            entry = _read(lines[-1])
            if entry is None:
                raise AuditBroken(f"line {lines[-1].seq} of the audit log cannot be read")
            seq, head = lines[-1].seq, entry.hash
            lines = await self._store.read_log(SPACE, LOG, after=seq, limit=_PAGE)
        self._last = (seq, head)
        return self._last


def _read(line: LogEntry) -> AuditEntry | None:
    try:
        return msgspec.json.decode(line.payload, type=AuditEntry)
    except msgspec.DecodeError:
        return None


def _shown(line: LogEntry) -> dict[str, Any]:
    entry = _read(line)
    return {"seq": line.seq, **(msgspec.to_builtins(entry) if entry is not None else {"action": "unreadable"})}

"""RevisionHistory: all revisions of the policy, in the store.

Revision N is one entry, written once and only when absent. A writer of N+1 has therefore seen N, and of two concurrent
writers one fails. The entry with the highest number is in force. No other state must stay consistent with it, so a
crash cannot leave half an apply. The oldest revisions are pruned.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.policies.revision import Revision
from gateway.store.base import Store

SPACE: Final = "policy"
_PREFIX: Final = "revision/"
_PAGE: Final = 1000

_decode = msgspec.json.Decoder(Revision).decode


class RevisionHistory:
    """Revisions in the store; methods raise StoreUnavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(self, revision: Revision) -> bool:
        """Append a revision; return False when its number is taken."""
        written = await self._store.put(SPACE, _key(revision.number), msgspec.json.encode(revision), expect=0)
        return written is not None

    async def get(self, number: int) -> Revision | None:
        """Return the revision of this number, or None."""
        entry = await self._store.get(SPACE, _key(number)) if 0 < number < 100_000_000 else None
        return None if entry is None else _decode(entry.value)

    async def newest_number(self, *, after: int = 0) -> int:
        """Return the highest revision number, at least `after`."""
        number = after
        while True:
            keys = await self._store.keys(SPACE, after=_key(number), limit=_PAGE)
            found = [found for key in keys if (found := revision_number(key)) is not None]
            if not found:
                return number
            number = found[-1]

    async def prune(self, below: int) -> None:
        """Delete the revisions before number `below`."""
        while True:
            keys = await self._store.keys(SPACE, after=_PREFIX, limit=_PAGE)
            old = [key for key in keys if (number := revision_number(key)) is not None and number < below]
            for key in old:
                await self._store.delete(SPACE, key)
            if len(old) < _PAGE:
                return

    async def before(self, number: int, limit: int) -> list[Revision]:
        """Return up to `limit` revisions below `number`, newest first."""
        found = []
        for wanted in range(number - 1, max(number - 1 - limit, 0), -1):
            revision = await self.get(wanted)
            if revision is not None:
                found.append(revision)
        return found


def revision_number(key: str) -> int | None:
    """Return the revision number in a key of the space, or None for other keys."""
    digits = key.removeprefix(_PREFIX)
    return int(digits) if digits != key and digits.isdigit() else None


def _key(number: int) -> str:
    return f"{_PREFIX}{number:08d}"

"""RevisionHistory: all revisions of the policy, in the store.

Revision N is one entry that is written once, and only when it is absent: whoever writes N+1 has seen N, and of two who
try at the same time one is told so. The entry with the highest number is in force. Nothing else has to be kept in step
with it, so there is no moment at which a crash leaves half an apply behind. The oldest ones go when there are too many.
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
    """Every method raises StoreUnavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(self, revision: Revision) -> bool:
        """Whether it is the newest one now; False when there is one of this number already."""
        written = await self._store.put(SPACE, _key(revision.number), msgspec.json.encode(revision), expect=0)
        return written is not None

    async def get(self, number: int) -> Revision | None:
        """One revision, None when there is none of this number."""
        entry = await self._store.get(SPACE, _key(number)) if 0 < number < 100_000_000 else None
        return None if entry is None else _decode(entry.value)

    async def newest_number(self, *, after: int = 0) -> int:
        """The highest number there is, at least `after`."""
        number = after
        while True:
            keys = await self._store.keys(SPACE, after=_key(number), limit=_PAGE)
            found = [found for key in keys if (found := number_of(key)) is not None]
            if not found:
                return number
            number = found[-1]

    async def prune(self, below: int) -> None:
        """Throw away the revisions before number `below`."""
        while True:
            keys = await self._store.keys(SPACE, after=_PREFIX, limit=_PAGE)
            old = [key for key in keys if (number := number_of(key)) is not None and number < below]
            for key in old:
                await self._store.delete(SPACE, key)
            if len(old) < _PAGE:
                return

    async def before(self, number: int, limit: int) -> list[Revision]:
        """Revisions below `number`, newest first."""
        found = []
        for wanted in range(number - 1, max(number - 1 - limit, 0), -1):
            revision = await self.get(wanted)
            if revision is not None:
                found.append(revision)
        return found


def number_of(key: str) -> int | None:
    """The number of the revision that a key of the space names, None for other keys."""
    digits = key.removeprefix(_PREFIX)
    return int(digits) if digits != key and digits.isdigit() else None


def _key(number: int) -> str:
    return f"{_PREFIX}{number:08d}"

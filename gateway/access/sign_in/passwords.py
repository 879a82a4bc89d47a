"""Passwords: argon2id, off the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_PASSWORD_CHARS: Final = 10
MAX_PASSWORD_CHARS: Final = 256


MAX_WAITING: Final = 32
"""Checks that may wait at a time, for strangers and for known devices each: a few seconds of work."""


class PasswordsBusy(Exception):
    """Too many checks wait already; this one was not made."""


class Passwords:
    """One hash at a time: each takes 64 MiB and a core for a moment, and nobody may have more of that by asking."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._turn = asyncio.Lock()
        self._decoy: str | None = None
        self._num_waiting = {False: 0, True: 0}
        """By whether a known device asks: strangers cannot take the places of those."""

    async def hash(self, password: str) -> str:
        """What is kept of it."""
        async with self._turn:
            return await asyncio.to_thread(self._hasher.hash, password)

    def is_full(self, *, is_known: bool = False) -> bool:
        """Whether a check would be refused now."""
        return self._num_waiting[is_known] >= MAX_WAITING

    async def is_right(self, kept: str | None, password: str, *, is_known: bool = False) -> bool:
        """Whether it is the password; takes as long for an admin who does not exist. Raises PasswordsBusy."""
        if self.is_full(is_known=is_known):
            raise PasswordsBusy
        self._num_waiting[is_known] += 1
        check = asyncio.create_task(self._check(kept, password, is_known), name="password")
        return await asyncio.shield(check)  # a caller that leaves cannot let the next check begin beside this one

    async def _check(self, kept: str | None, password: str, is_known: bool) -> bool:
        try:
            async with self._turn:
                return await asyncio.to_thread(self._verify, kept, password)
        finally:
            self._num_waiting[is_known] -= 1

    def _verify(self, kept: str | None, password: str) -> bool:
        if kept is None:
            self._decoy = self._decoy or self._hasher.hash("nobody has this password")
        try:
            return self._hasher.verify(kept or self._decoy or "", password) and kept is not None
        except (VerificationError, InvalidHashError):
            return False

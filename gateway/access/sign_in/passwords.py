"""Passwords: hashing and checking by argon2id, off the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_PASSWORD_CHARS: Final = 10
MAX_PASSWORD_CHARS: Final = 256


MAX_WAITING: Final = 32
"""Number of checks that may wait, for strangers and for known devices each; a few seconds of work."""


class PasswordsBusy(Exception):
    """Error for a check that was not made because too many wait."""


class Passwords:
    """Hasher of one password at a time, because each hash takes 64 MiB and a core."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._turn = asyncio.Lock()
        self._decoy: str | None = None
        self._num_waiting = {False: 0, True: 0}
        """Number of waiting checks by whether the device is known, so strangers cannot use up its share."""

    async def hash(self, password: str) -> str:
        """Return the hash to store for a password."""
        async with self._turn:
            return await asyncio.to_thread(self._hasher.hash, password)

    def is_full(self, *, is_known: bool = False) -> bool:
        """Return whether a check would be refused now."""
        return self._num_waiting[is_known] >= MAX_WAITING

    async def is_right(self, stored_hash: str | None, password: str, *, is_known: bool = False) -> bool:
        """Return whether the password matches the hash `stored_hash`; None takes equally long and never matches.

        Raises:
            PasswordsBusy: Too many checks wait.
        """
        if self.is_full(is_known=is_known):
            raise PasswordsBusy
        self._num_waiting[is_known] += 1
        check = asyncio.create_task(self._check(stored_hash, password, is_known), name="password")
        return await asyncio.shield(check)  # a cancelled caller must not let a second check run beside this one

    async def _check(self, stored_hash: str | None, password: str, is_known: bool) -> bool:
        try:
            async with self._turn:
                return await asyncio.to_thread(self._verify, stored_hash, password)
        finally:
            self._num_waiting[is_known] -= 1

    def _verify(self, stored_hash: str | None, password: str) -> bool:
        if stored_hash is None:
            self._decoy = self._decoy or self._hasher.hash("nobody has this password")
        try:
            return self._hasher.verify(stored_hash or self._decoy or "", password) and stored_hash is not None
        except (VerificationError, InvalidHashError):
            return False

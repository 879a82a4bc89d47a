"""Passwords: argon2id off the event loop, and as many guesses as a person needs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_PASSWORD_CHARS: Final = 10
MAX_PASSWORD_CHARS: Final = 256
MAX_GUESSES: Final = 5
WINDOW_S: Final = 60.0
_MAX_NAMES: Final = 1_000


class Passwords:
    """One hash at a time: each takes 64 MiB and a core for a moment, and nobody may have more of that by asking."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._turn = asyncio.Lock()
        self._decoy: str | None = None

    async def hash(self, password: str) -> str:
        """What is kept of it."""
        async with self._turn:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def is_right(self, kept: str | None, password: str) -> bool:
        """Whether it is the password; takes as long for an admin who does not exist."""
        async with self._turn:
            return await asyncio.to_thread(self._verify, kept, password)

    def _verify(self, kept: str | None, password: str) -> bool:
        if kept is None:
            self._decoy = self._decoy or self._hasher.hash("nobody has this password")
        try:
            return self._hasher.verify(kept or self._decoy or "", password) and kept is not None
        except (VerificationError, InvalidHashError):
            return False


class Guesses:
    """Counts failed logins of a name and of an address; `wait_s` is 0 while another try is allowed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: dict[str, deque[float]] = {}

    def wait_s(self, *whose: str) -> float:
        """Seconds until each of them may try again."""
        now = self._clock()
        return max((self._wait_s(name, now) for name in whose), default=0.0)

    def note_failure(self, *whose: str) -> None:
        """A wrong password."""
        now = self._clock()
        for name in whose:
            if name not in self._failed and len(self._failed) >= _MAX_NAMES:
                del self._failed[next(iter(self._failed))]
            self._failed.setdefault(name, deque(maxlen=MAX_GUESSES)).append(now)

    def forget(self, name: str) -> None:
        """The right one."""
        self._failed.pop(name, None)

    def _wait_s(self, name: str, now: float) -> float:
        failed = self._failed.get(name)
        if failed is None or len(failed) < MAX_GUESSES:
            return 0.0
        return max(failed[0] + WINDOW_S - now, 0.0)

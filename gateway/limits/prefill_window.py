"""PrefillWindow: how much of a lane's prompts a deployment may hold unread.

What was sent stands in the deployment's own queue, where nobody is fair: a tenant's backlog is read before the one
request of another. So a lane sends about what one step can read, and the rest waits here, where turns and targets
count. Each first token lets the next ones go. Short prompts and long ones are counted apart, as they stand apart in an
engine with lanes. A tenant above a fair part of a lane that others use as well has a part of the room only, and sends
neither kind while it is used, so that whoever asks rarely finds next to nothing ahead.

It never stops a lane: one request may always be unread, and one that shows no first token for long is not waited for.
"""

from __future__ import annotations

import math
from typing import Final

MAX_PART: Final = 0.5
"""Of the room, what one prompt counts at most: behind a long one, another can wait its turn there."""
CROWDED_ROOM: Final = 0.1
"""Of the room, what tenants above a fair part use where several use the lane."""
PATIENCE_S: Final = 0.5
"""After so long without any request sent, the next goes whatever is unread."""
_KEPT: Final = 0.97
"""Of what was learned of the speed, what is kept with each first token."""


class PrefillWindow:
    """In prompt tokens. It is told the time and what happened; the Ledger enforces."""

    __slots__ = ("_begun_at", "_busy_s", "_num", "num_unread", "room", "sent_at", "unread")

    def __init__(self) -> None:
        self.room: int | None = None
        """What one step reads; None: nobody knows, and nothing is held back."""
        self.unread = 0
        """Tokens sent without a first token, as far as they count."""
        self.num_unread = 0
        self.sent_at = -math.inf
        self._begun_at = 0.0
        self._num = 0.0
        self._busy_s = 0.0

    def is_open(self, now: float, *, is_crowding: bool) -> bool:
        """Whether one more may be sent."""
        if self.room is None or self.num_unread == 0:
            return True
        room = CROWDED_ROOM * self.room if is_crowding else self.room
        return self.unread < room or now - self.sent_at >= PATIENCE_S

    def send(self, now: float, prompt_tokens: int) -> int:
        """One goes out; what it counts, to be given back with `read` or `drop`."""
        self.sent_at = now
        if prompt_tokens <= 0:
            return 0
        counted = prompt_tokens if self.room is None else max(min(prompt_tokens, int(MAX_PART * self.room)), 1)
        if self.num_unread == 0:
            self._begun_at = now
        self.num_unread += 1
        self.unread += counted
        return counted

    def read(self, now: float, counted: int) -> None:
        """Its first token came: learn how fast they follow each other."""
        self._busy_s = _KEPT * self._busy_s + now - self._begun_at
        self._num = _KEPT * self._num + 1.0
        self._begun_at = now
        self.drop(counted)

    def drop(self, counted: int) -> None:
        """It is over."""
        self.num_unread -= 1
        self.unread -= counted
        assert self.num_unread >= 0 <= self.unread, "a prompt was read twice"

    @property
    def per_s(self) -> float | None:
        """First tokens a second while any is awaited; None before the first."""
        return self._num / max(self._busy_s, 1e-6) if self._num else None

"""PrefillWindow: a bound on the prompt tokens that a deployment holds without a first token.

Prompts that were sent wait in the deployment's own queue, which is not fair: it computes one tenant's backlog before
another's single request. A lane therefore sends about as much as one step computes. The rest waits here, where turns
and targets count. Each first token releases the next prompts.

Short and long prompts are counted apart, as an engine with lanes queues them apart. A tenant above a fair part of a
shared lane may use only a part of the room. While that part is used, it sends neither kind. Tenants below their fair
part thus find little ahead of them.

The window never stops a lane. One request may always be outstanding, and one without a first token for long is ignored.
"""

from __future__ import annotations

import math
from typing import Final

MAX_PART: Final = 0.5
"""Largest share of the room that one prompt counts; behind a long one, another may wait in the deployment."""
CROWDED_ROOM: Final = 0.1
"""Share of the room for tenants above a fair part of a shared lane."""
PATIENCE_S: Final = 0.5
"""Seconds without any request sent after which the next one goes regardless."""
_KEPT: Final = 0.97
"""Share of the learned speed that each first token keeps."""


class PrefillWindow:
    """Window in prompt tokens; time and events are passed in, and the Ledger enforces it."""

    __slots__ = ("_begun_at", "_busy_s", "_num", "num_unread", "room", "sent_at", "unread")

    def __init__(self) -> None:
        self.room: int | None = None
        """Prompt tokens that one step computes; None when unknown, and nothing is held back."""
        self.unread = 0
        """Counted tokens of prompts without a first token."""
        self.num_unread = 0
        self.sent_at = -math.inf
        self._begun_at = 0.0
        self._num = 0.0
        self._busy_s = 0.0

    def is_open(self, now: float, *, is_crowding: bool) -> bool:
        """Return whether one more prompt may be sent."""
        if self.room is None or self.num_unread == 0:
            return True
        room = CROWDED_ROOM * self.room if is_crowding else self.room
        return self.unread < room or now - self.sent_at >= PATIENCE_S

    def send(self, now: float, prompt_tokens: int) -> int:
        """Count a prompt that is sent; return its tokens, to be given back by `read` or `drop`."""
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
        """Uncount a prompt whose first token came, and learn the rate of first tokens."""
        self._busy_s = _KEPT * self._busy_s + now - self._begun_at
        self._num = _KEPT * self._num + 1.0
        self._begun_at = now
        self.drop(counted)

    def drop(self, counted: int) -> None:
        """Uncount a prompt that is over."""
        self.num_unread -= 1
        self.unread -= counted
        assert self.num_unread >= 0 <= self.unread, "a prompt was read twice"

    @property
    def per_s(self) -> float | None:
        """First tokens per second while any is awaited; None before the first."""
        return self._num / max(self._busy_s, 1e-6) if self._num else None

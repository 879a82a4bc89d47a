"""Permits: a request's admission request, its waiter, its permit, and the pace of long prompts."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Final, Protocol

import msgspec

from gateway.errors import Shed
from gateway.limits.lane import LiveLane

NEVER: Final = math.inf
LONG_PROMPT_TOKENS: Final = 1024
"""Number of prompt tokens above which a prompt is long.

The bundled engine lets longer interactive prompts wait for each other and not for short ones. Nothing is assumed
of a server without lanes: the effect of one lane's queue on another is learned.
"""


class AdmissionRequest(msgspec.Struct, frozen=True, gc=False):
    """Admission request: a request's work in tokens, its tenant, and how long it may wait; instants are monotonic."""

    lane: LiveLane
    tenant: str = ""
    tokens: int = 1
    """Work tokens of the request's price, at least 1."""
    deadline_at: float | None = None
    """Instant after which the client no longer waits for a first byte."""
    ttft_by: float | None = None
    """Instant after which a first token misses the latency target; None without a target."""
    is_retry: bool = False
    """True if the client marks the request as a retry."""
    arrived_at: float = 0.0
    service_s: float = 0.0
    """Forecast of the deployment's own part of the time up to `deadline_at`: to the first byte for the client."""
    prompt_tokens: int = 0
    """Prompt tokens that the deployment computes before the first token, if it is observed; 0: without pacing."""
    first_token_s: float = 0.0
    """Forecast of the deployment's own part of the time up to `ttft_by`."""

    @property
    def is_long(self) -> bool:
        """Return whether the request is in the deployment's lane of long prompts."""
        return self.prompt_tokens > LONG_PROMPT_TOKENS

    def with_service(self, service_s: float, prompt_tokens: int = 0, *, first_token_s: float) -> AdmissionRequest:
        """Return a copy with the deployment's forecast times to the first byte and to the first token."""
        return AdmissionRequest(
            self.lane,
            self.tenant,
            self.tokens,
            self.deadline_at,
            self.ttft_by,
            self.is_retry,
            self.arrived_at,
            service_s,
            prompt_tokens,
            first_token_s,
        )

    @property
    def start_by(self) -> float:
        """Return the last instant at which a start is still of use; `NEVER` when it always is."""
        by = NEVER if self.deadline_at is None else self.deadline_at - self.service_s
        return by if self.ttft_by is None else min(by, self.ttft_by - self.first_token_s)


class PermitOwner(Protocol):
    """Limiter that counts the permits in use."""

    def take_back(self, permit: Permit) -> None:
        """Return a permit whose work is over."""
        ...

    def drop(self, permit: Permit) -> None:
        """Return a permit that no work used."""
        ...

    def resize(self, permit: Permit, tokens: int) -> None:
        """Correct the work counted for a permit to `tokens`."""
        ...

    def note_ttft(self, permit: Permit, measured_s: float, expected_s: float) -> None:
        """Learn from the permit's first token."""
        ...


class Permit(msgspec.Struct, eq=False):
    """One unit of concurrency.

    Leaving the `with` block or calling `release` returns it; a second release does nothing.
    """

    _owner: PermitOwner | None
    admission_request: AdmissionRequest
    tokens: int
    """Work tokens counted for the permit now."""
    granted_at: float = 0.0
    unread: int = 0
    """Tokens that its prompt counts until its first token; 0 once it came, or when it is not awaited."""
    waited_s: float = 0.0
    """Seconds that the request waited in the queue."""

    @property
    def is_released(self) -> bool:
        """True if the permit has been returned."""
        return self._owner is None

    def settle(self, tokens: int) -> None:
        """Correct the work counted for the permit to `tokens`; does nothing after the release."""
        if self._owner is not None and tokens != self.tokens:
            self._owner.resize(self, max(tokens, 1))

    def note_ttft(self, measured_s: float, expected_s: float) -> None:
        """Report the TTFT, measured and as expected without a queue, to the adaptive limit."""
        if self._owner is not None:
            self._owner.note_ttft(self, measured_s, expected_s)

    def release(self) -> None:
        """Return the permit. Idempotent."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.take_back(self)

    def cancel(self) -> None:
        """Return a permit that no work used, so that nothing is learned from it. Idempotent."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.drop(self)

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Waiter:
    """A waiting request; `granted` ends with None and the permit's work counted, or with the refusal to raise."""

    __slots__ = (
        "admission_request",
        "due_at",
        "granted",
        "is_lane_short",
        "is_long",
        "is_tenant_short",
        "is_waiting",
        "since",
        "tokens",
        "unread",
    )

    def __init__(self, admission_request: AdmissionRequest, since: float, granted: asyncio.Future[Shed | None]) -> None:
        self.admission_request = admission_request
        self.tokens = admission_request.tokens
        self.is_long = admission_request.is_long
        self.since = since
        self.due_at = admission_request.start_by
        """Instant after which it is no longer worth starting; `admission_request.NEVER` when it always is."""
        self.granted = granted
        self.is_lane_short = False
        """True if it has to wait although its lane holds less than its weight's part of the permits."""
        self.is_tenant_short = False
        """True if it has to wait although its tenant holds less than a fair part of the lane's permits."""
        self.unread = 0
        """Tokens that its prompt counts until its first token, once granted."""
        self.is_waiting = False
        """True while it is in a queue; set by the queue."""


MAX_PART: Final = 0.5
"""Share of the room that one prompt counts at most: behind a long one, another can wait its turn there."""
CROWDED_ROOM: Final = 0.1
"""Share of the room for tenants above a fair part, where several tenants use the lane."""
PATIENCE_S: Final = 0.5
"""Seconds without any request sent after which the next goes, however many tokens are unread."""
_RETAINED: Final = 0.97
"""Share of the learned speed that remains after each first token."""


class PrefillWindow:
    """Window of prompt tokens sent without a first token. It reads no clock and only computes; the Ledger enforces."""

    __slots__ = ("_begun_at", "_busy_s", "_num", "num_unread", "room", "sent_at", "unread")

    def __init__(self) -> None:
        self.room: int | None = None
        """Number of prompt tokens that one step computes; None if unknown, and then nothing is held back."""
        self.unread = 0
        """Number of counted prompt tokens sent without a first token."""
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
        """Count a prompt that is sent; return the tokens to pass to `read` or `drop`."""
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
        """Note the first token of a prompt, and learn how fast first tokens follow each other."""
        self._busy_s = _RETAINED * self._busy_s + now - self._begun_at
        self._num = _RETAINED * self._num + 1.0
        self._begun_at = now
        self.drop(counted)

    def drop(self, counted: int) -> None:
        """Uncount a prompt of `counted` tokens."""
        self.num_unread -= 1
        self.unread -= counted
        assert self.num_unread >= 0 <= self.unread, "a prompt was read twice"

    @property
    def per_s(self) -> float | None:
        """Return the first tokens a second while any is awaited; None before the first."""
        return self._num / max(self._busy_s, 1e-6) if self._num else None

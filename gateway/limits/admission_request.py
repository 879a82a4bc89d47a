"""AdmissionRequest: a request's demand on a limiter, and the time by which it must start."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from gateway.limits.lane import LiveLane

NEVER: Final = math.inf
LONG_PROMPT_TOKENS: Final = 1024
"""Prompt length beyond which the bundled engine queues interactive requests in a lane of their own.

For a server without lanes nothing is assumed: the effect of one lane's queue on another is learned.
"""


class AdmissionRequest(msgspec.Struct, frozen=True, gc=False):
    """Work in tokens, its tenant and its deadlines; instants are monotonic."""

    lane: LiveLane
    tenant: str = ""
    tokens: int = 1
    """Work tokens of the request's price, at least 1."""
    deadline_at: float | None = None
    """Instant after which the client no longer waits for a first byte."""
    ttft_by: float | None = None
    """Instant after which a first token misses the latency target; None without one."""
    is_retry: bool = False
    """True if the client marks the request as a retry."""
    arrived_at: float = 0.0
    service_s: float = 0.0
    """Forecast seconds that the deployment itself needs of the time up to `ttft_by` or `deadline_at`."""
    prompt_tokens: int = 0
    """Prompt tokens to compute before a first token that will be observed; 0 for a request that is not paced."""

    @property
    def is_long(self) -> bool:
        """True if it waits in the deployment's lane of long prompts."""
        return self.prompt_tokens > LONG_PROMPT_TOKENS

    def with_service(self, service_s: float, prompt_tokens: int = 0) -> AdmissionRequest:
        """Return the request with the forecast of the deployment's need."""
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
        )

    @property
    def start_by(self) -> float:
        """Last instant at which starting it is of use; `NEVER` without a deadline."""
        if self.ttft_by is None:
            return NEVER if self.deadline_at is None else self.deadline_at - self.service_s
        by = self.ttft_by if self.deadline_at is None or self.ttft_by < self.deadline_at else self.deadline_at
        return by - self.service_s

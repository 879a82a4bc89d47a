"""AdmissionRequest: what one request asks of a limiter, and until when an answer is of use to it."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from gateway.limits.lane import LiveLane

NEVER: Final = math.inf
LONG_PROMPT_TOKENS: Final = 1024
"""The bundled engine lets longer interactive prompts wait for each other and not for short ones. Of a server without
lanes nothing is assumed: what one lane's queue means for another is learned."""


class AdmissionRequest(msgspec.Struct, frozen=True, gc=False):
    """Work in tokens, whose it is, and how long it may wait; instants are monotonic."""

    lane: LiveLane
    tenant: str = ""
    tokens: int = 1
    """Work tokens of the request's price, at least 1."""
    deadline_at: float | None = None
    """The client no longer waits for a first byte after this."""
    ttft_by: float | None = None
    """A first token after this misses the latency target; None: there is no target."""
    is_retry: bool = False
    """The client says that it asked before."""
    arrived_at: float = 0.0
    service_s: float = 0.0
    """Of the time up to `ttft_by` or `deadline_at`, what the deployment itself is forecast to need."""
    prompt_tokens: int = 0
    """What the deployment has to read before the first token, where that token will be seen; 0: not to be paced."""

    @property
    def is_long(self) -> bool:
        """Whether it stands in the deployment's lane of long prompts."""
        return self.prompt_tokens > LONG_PROMPT_TOKENS

    def with_service(self, service_s: float, prompt_tokens: int = 0) -> AdmissionRequest:
        """The same, knowing what the deployment will need."""
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
        """The last instant at which starting it is still of use; `NEVER` when it always is."""
        if self.ttft_by is None:
            return NEVER if self.deadline_at is None else self.deadline_at - self.service_s
        by = self.ttft_by if self.deadline_at is None or self.ttft_by < self.deadline_at else self.deadline_at
        return by - self.service_s

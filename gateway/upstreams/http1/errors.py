"""Errors between the gateway and one upstream.

    UpstreamError
    ├── ConnectError            refused, unreachable, no such socket
    │   ├── ResolveError        the name has no address
    │   └── TlsError            handshake or verification failed; there is no fallback to plain text
    ├── PoolFull                every connection this deployment may have is busy
    ├── UpstreamTimeout
    │   ├── ConnectTimeout
    │   ├── FirstByteTimeout    no head, or no first piece of the body, in time
    │   ├── InterChunkTimeout   the body stalled
    │   └── TotalTimeout
    ├── ProtocolError           not HTTP/1.1 as RFC 9112 frames it
    │   ├── HeadTooLarge
    │   ├── CodingError         a compressed body that cannot be read
    │   └── UpstreamBodyTooLarge        more than read() was allowed to keep
    ├── ClosedEarly             the peer closed or reset before the response was whole
    └── ResponseClosed          our own side closed the response or the client
        ├── Stalled             the deployment has gone silent while it holds requests
        ├── Overtaken           another deployment answered the same request first
        ├── OtherAnswer         the response does not continue the answer that it should
        └── Displaced           the deployment takes no requests any more, and another continues the answer

Every error carries the phase in which it occurred.
"""

from __future__ import annotations

from enum import Enum


class ExchangePhase(Enum):
    """Phase of an exchange when it failed."""

    CONNECT = "connect"
    HEAD = "head"
    """Request sent, wholly or in part, without a whole response head."""
    BODY = "body"


class UpstreamError(Exception):
    """Failure of one exchange, at its `phase`; `error_mapping.is_retryable` decides on a retry by the type."""

    def __init__(self, message: str, *, phase: ExchangePhase, response_started: bool = False) -> None:
        super().__init__(message)
        self.phase = phase
        self.response_started = response_started
        """True if at least one byte of the response has arrived."""


class ConnectError(UpstreamError):
    """Error for a connection that could not be made; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, phase=ExchangePhase.CONNECT)


class ResolveError(ConnectError):
    """Error for a host name without a usable address."""


class TlsError(ConnectError):
    """Error for a failed TLS handshake or server verification."""


class PoolFull(UpstreamError):
    """Error for a pool whose connections are all busy; the deployment's permit limit should be below the pool's."""

    def __init__(self, message: str) -> None:
        super().__init__(message, phase=ExchangePhase.CONNECT)


class UpstreamTimeout(UpstreamError):
    """Error for a passed deadline; the connection was closed."""


class ConnectTimeout(UpstreamTimeout):
    """Error for a connection that was not made in time."""


class FirstByteTimeout(UpstreamTimeout):
    """Error for a head or first piece of the body that did not come in time."""


class InterChunkTimeout(UpstreamTimeout):
    """Error for a body that stalled for too long."""


class TotalTimeout(UpstreamTimeout):
    """Error for an exchange that took too long."""


class ProtocolError(UpstreamError):
    """Error for an upstream that broke HTTP/1.1; its connection was dropped."""


class HeadTooLarge(ProtocolError):
    """Error for a response head beyond its limit."""


class CodingError(ProtocolError):
    """Error for a body whose compression is unknown, malformed or beyond the limits."""


class UpstreamBodyTooLarge(ProtocolError):
    """Error for a body larger than its reader accepts."""


class ClosedEarly(UpstreamError):
    """Error for a connection that the upstream closed or reset during an exchange."""


class ResponseClosed(UpstreamError):
    """Error for a response that the gateway closed before it was whole."""


class Stalled(ResponseClosed):
    """Error for a deployment that holds requests, none of which had a token for far longer than forecast."""


class Overtaken(ResponseClosed):
    """Error for the attempt that lost a hedge, because another deployment responded first."""


class OtherAnswer(ResponseClosed):
    """Error for a response that should continue an answer and is another one."""


class Displaced(ResponseClosed):
    """Error for a response that another deployment continues, because its own is taken out of service."""

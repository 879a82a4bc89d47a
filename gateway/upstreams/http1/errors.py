"""What can go wrong between the gateway and one upstream.

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
    └── Overtaken           another deployment answered the same request first
"""

from __future__ import annotations

from enum import Enum


class ExchangePhase(Enum):
    """How far a request had come when it failed."""

    CONNECT = "connect"
    HEAD = "head"
    """Sent, wholly or in part; no whole response head yet."""
    BODY = "body"


class UpstreamError(Exception):
    """One request to one upstream failed; `phase` says where, the properties what may be done about it."""

    def __init__(self, message: str, *, phase: ExchangePhase, response_started: bool = False) -> None:
        super().__init__(message)
        self.phase = phase
        self.response_started = response_started
        """Whether at least one byte of the response had arrived."""

    @property
    def request_sent(self) -> bool:
        """Whether the upstream may have begun to work on the request."""
        return self.phase is not ExchangePhase.CONNECT

    @property
    def is_safe_to_resend(self) -> bool:
        """No byte of an answer exists, so sending again cannot repeat text (it may repeat the upstream's work)."""
        return not self.response_started


class ConnectError(UpstreamError):
    """No connection could be made; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, phase=ExchangePhase.CONNECT)


class ResolveError(ConnectError):
    """The host name has no usable address."""


class TlsError(ConnectError):
    """The TLS handshake or the verification of the server failed."""


class PoolFull(UpstreamError):
    """Every connection is busy; the deployment's permit limit should be below the pool's."""

    def __init__(self, message: str) -> None:
        super().__init__(message, phase=ExchangePhase.CONNECT)


class UpstreamTimeout(UpstreamError):
    """A deadline passed; the connection was closed."""


class ConnectTimeout(UpstreamTimeout):
    """The connection was not there in time."""


class FirstByteTimeout(UpstreamTimeout):
    """The head or the first piece of the body did not come in time."""


class InterChunkTimeout(UpstreamTimeout):
    """The body stalled for too long."""


class TotalTimeout(UpstreamTimeout):
    """The whole exchange took too long."""


class ProtocolError(UpstreamError):
    """The upstream broke HTTP/1.1; its connection was dropped."""


class HeadTooLarge(ProtocolError):
    """The response head passed its limit."""


class CodingError(ProtocolError):
    """The body is compressed in a way that is not known here, wrongly, or to far too little."""


class UpstreamBodyTooLarge(ProtocolError):
    """The body is larger than the reader accepts."""


class ClosedEarly(UpstreamError):
    """The upstream closed or reset the connection in the middle of an exchange."""


class ResponseClosed(UpstreamError):
    """The response was closed on our side before it was whole."""


class Stalled(ResponseClosed):
    """The deployment holds requests and none of them has seen a token for far longer than was forecast."""


class Overtaken(ResponseClosed):
    """A hedge: another deployment answered the same request first, so this answer is not wanted any more."""

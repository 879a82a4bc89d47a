"""ResumeOrder: what the gateway sends to an engine so that a stream can be continued, or is continued.

The header `x-penstock-resume` is `PAYLOAD.SIGNATURE`: base64url of a JSON object, and the hexadecimal HMAC-SHA256 of
that text under the deployment's `resume_key_env`. The choices of a stream that goes on are a member of the body with
their tokens, and the payload has the member's SHA-256. Engines without the key, and servers of other kinds, ignore
the header.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from typing import Any, Final

import msgspec

from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.chat.schema import UserMessage
from gateway.errors import InvalidRequest
from gateway.forwarding.resume.text_channel import TextChannel
from gateway.forwarding.resume.token_channel import TokenChannel
from gateway.http.asgi import Header
from routing_policies.policy.values import Continuation, ResumeRule

RESUME_HEADER: Final = b"x-penstock-resume"
_CHOICES_MEMBER: Final = "penstock_choices"
_EXACT: Final = "exact;"
"""Beginning of what an engine states that continues a stream with the same bits: `NUMBERS;DIGEST;PROCESSOR`."""
_NUM_SEPARATORS: Final = 2

_PLAIN_MEMBERS: Final = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "stop", "seed"),
        *("temperature", "top_p", "top_k", "user", "metadata", "store", "service_tier", "safety_identifier"),
        "prompt_cache_key",
    }
)
"""Members with which an answer is plain text, and that mean the same to a server that continues it."""
_NEUTRAL_VALUES: Final[dict[str, Any]] = {
    "n": 1,
    "tools": [],
    "logprobs": False,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "response_format": {"type": "text"},
}
"""Values with which further members change nothing."""

_encode: Final = msgspec.json.Encoder().encode


class ResumeOrder(msgspec.Struct, frozen=True):
    """Order for one stream, the same for each deployment that may begin it."""

    rule: ResumeRule
    seed: int
    """Seed of the sampler where the client gave none."""
    begun: TokenChannel | TextChannel | None = None
    """Stream that goes on; None for one that begins."""
    is_greedy_text: bool = False
    """True if servers without a key may continue it, from its text."""
    can_move: bool = False
    """True if another deployment could continue it, so that an engine that drains may hand it over at once."""

    def header(self, key: bytes) -> Header:
        """Return the signed header of a stream that begins, or of one whose tokens are known."""
        payload: dict[str, object] = {"seed": self.seed, "can_move": self.can_move}
        if isinstance(self.begun, TokenChannel):
            payload |= {
                "choices_digest": hashlib.sha256(_encode(self.begun.choices)).hexdigest(),
                "id": self.begun.id,
                "created": self.begun.created,
                "digest": self.begun.digest,
            }
        text = urlsafe_b64encode(_encode(payload))
        signature = hmac.new(key, text, hashlib.sha256).hexdigest().encode("ascii")
        return RESUME_HEADER, b"%b.%b" % (text, signature)

    def in_body(self, body: bytes) -> bytes:
        """Return the body, a JSON object with members, with the choices of the stream that goes on."""
        if not isinstance(self.begun, TokenChannel):
            return body
        return b'%b,"%b":%b}' % (body.rstrip()[:-1], _CHOICES_MEMBER.encode(), _encode(self.begun.choices))

    def channel(
        self, headers: list[Header], continuation: Continuation | None = None
    ) -> TokenChannel | TextChannel | None:
        """Return the channel of a response, by its headers and by the way in which its server continues messages.

        None where its stream cannot be continued as required.
        """
        if isinstance(self.begun, TextChannel):
            return None if continuation is None else TextChannel(self.begun)
        digest = next((value.decode("latin-1") for name, value in headers if name == RESUME_HEADER), None)
        if digest is None and self.begun is None and continuation is not None and self.is_greedy_text:
            return TextChannel()
        if digest is None or (self.rule == "exact" and not digest.startswith(_EXACT)):
            return None
        if digest.count(";") != _NUM_SEPARATORS:  # an engine of another version, whose reports are of another form
            return None
        if self.begun is None:
            return TokenChannel(digest)
        if digest != self.begun.digest and (self.rule == "exact" or _model_of(digest) != _model_of(self.begun.digest)):
            return None
        return TokenChannel(digest, self.begun)


def can_resume(request: ChatRequest) -> bool:
    """Return whether a stream of this request could be continued."""
    return request.stream and _CHOICES_MEMBER not in request.document  # an engine would find the member twice


def is_greedy_text(request: ChatRequest) -> bool:
    """Return whether the most likely tokens of plain text answer a request behind a user's message.

    Such a text goes on behind its own beginning as it would have without a break, as far as the server's numbers are
    the same.
    """
    if request.operation is not CHAT:
        return False
    projection = request.projection
    try:
        document = request.document if projection is None else projection.plain(request.document)
    except InvalidRequest:  # servers of chat completions cannot serve it
        return False
    if document.get("temperature") != 0 and document.get("top_k") != 1:
        return False
    if any(
        name not in _PLAIN_MEMBERS and value is not None and _NEUTRAL_VALUES.get(name) != value
        for name, value in document.items()
    ):
        return False
    return isinstance(request.messages[-1], UserMessage)


def _model_of(digest: str) -> str:
    """Return the part of what an engine states that covers model and prompt, but not what processors add up first."""
    return digest.partition(";")[2].partition(";")[0]

"""ResumeRequest: the gateway's order for a stream that can be continued elsewhere, or that continues another.

The header `x-penstock-resume` holds the order, `PAYLOAD.SIGNATURE`: base64url of a JSON object, and the hexadecimal
HMAC-SHA256 of that text under the key that gateway and engine share. The tokens of a stream that goes on stand in the
body, and the order has their digest. Without a valid signature neither has any effect.
"""

from __future__ import annotations

import hashlib
import hmac
from array import array
from base64 import urlsafe_b64decode
from typing import Final

import msgspec

from engine.frontend.request.asgi import Headers
from engine.frontend.request.errors import invalid_value

HEADER: Final = "x-penstock-resume"
RESUMED_TOKENS: Final = "penstock_token_ids"
"""Member of the body with the tokens that the client has received."""
DIGEST_CHARS: Final = 32
MIN_KEY_CHARS: Final = 32
"""Shortest key that signs orders."""


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Order of the gateway for one stream."""

    seed: int
    """Seed of the sampler where the client gave none."""
    token_ids: tuple[int, ...] = ()
    """Tokens of the answer that the client has received."""
    id: str | None = None
    """Id of the answer; None for a stream that begins here."""
    created: int | None = None
    """Unix time of the answer, in seconds; None for a stream that begins here."""
    digest: str | None = None
    """Digest of model and prompt on the engine that began the stream; None for a stream that begins here."""
    can_move: bool = False
    """True if the gateway has another engine for the stream, so that a drain need not wait for its end."""


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of the header."""

    seed: int
    tokens_digest: str = ""
    """SHA-256 of the tokens as 64-bit little-endian integers, in hexadecimal; empty: there are none."""
    id: str | None = None
    created: int | None = None
    digest: str | None = None
    can_move: bool = False


class _Tokens(msgspec.Struct, frozen=True):
    """The member of the body that the order refers to."""

    penstock_token_ids: tuple[int, ...] = ()


_decode_order: Final = msgspec.json.Decoder(_Order).decode
_decode_tokens: Final = msgspec.json.Decoder(_Tokens).decode


def read_resume(headers: Headers, body: bytes, key: bytes | None) -> ResumeRequest | None:
    """Return the gateway's order; None without one, without a key, or where the signature is not the gateway's.

    Raises:
        ApiError: The body's tokens are not those of the order (400).
    """
    sealed = headers.get(HEADER)
    if sealed is None or key is None:
        return None
    payload, _, signature = sealed.encode("latin-1").rpartition(b".")
    expected = hmac.new(key, payload, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature, expected.encode("ascii")):
        return None
    order = _decode_order(urlsafe_b64decode(payload))
    if not order.tokens_digest:
        return ResumeRequest(seed=order.seed, can_move=order.can_move)
    try:
        token_ids = _decode_tokens(body).penstock_token_ids
        digest = hashlib.sha256(array("q", token_ids).tobytes()).hexdigest()
    except (msgspec.MsgspecError, OverflowError):
        digest, token_ids = "", ()
    if not hmac.compare_digest(digest, order.tokens_digest):
        raise invalid_value(RESUMED_TOKENS, f"`{RESUMED_TOKENS}` must be the tokens that `{HEADER}` is signed for.")
    return ResumeRequest(
        seed=order.seed,
        token_ids=token_ids,
        id=order.id,
        created=order.created,
        digest=order.digest,
        can_move=order.can_move,
    )

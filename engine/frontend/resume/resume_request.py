"""ResumeRequest: the gateway's order for a stream that can be continued elsewhere, or that continues another.

The header `x-penstock-resume` holds the order, `PAYLOAD.SIGNATURE`: base64url of a JSON object, and the hexadecimal
HMAC-SHA256 of that text under the key that gateway and engine share. The choices of a stream that goes on stand in the
body with their tokens, and the order has the digest of that text. Without a valid signature neither has any effect.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode
from typing import Final, Literal

import msgspec

from engine.frontend.request.asgi import Headers
from engine.frontend.request.errors import invalid_value, resume_mismatch

HEADER: Final = "x-penstock-resume"
BEGUN_CHOICES: Final = "penstock_choices"
"""Member of the body with what the client has received of each choice."""
DIGEST_CHARS: Final = 32
MIN_KEY_CHARS: Final = 32
"""Shortest key that signs orders."""


class BegunChoice(msgspec.Struct, frozen=True):
    """Tokens of one choice of a stream that the client has received, and the end of the choice if it had come."""

    token_ids: tuple[int, ...] = ()
    """Tokens in order."""
    finish: Literal["stop", "length"] | None = None
    """Reason for which the model ended it; None for one that goes on, or that its own text ended."""


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Order of the gateway for one stream."""

    seed: int
    """Seed of the sampler where the client gave none."""
    choices: dict[int, BegunChoice] = {}
    """Choices that the client has received something of, by index."""
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
    choices_digest: str = ""
    """SHA-256 of the body's member as it is written, in hexadecimal; empty: there is none."""
    id: str | None = None
    created: int | None = None
    digest: str | None = None
    can_move: bool = False


class _Body(msgspec.Struct, frozen=True):
    """The member of the body that the order refers to."""

    penstock_choices: msgspec.Raw = msgspec.Raw(b"")


_decode_order: Final = msgspec.json.Decoder(_Order).decode
_decode_body: Final = msgspec.json.Decoder(_Body).decode
_decode_choices: Final = msgspec.json.Decoder(dict[int, BegunChoice]).decode


def read_resume(headers: Headers, body: bytes, key: bytes | None) -> ResumeRequest | None:
    """Return the gateway's order; None without one, without a key, or where the signature is not the gateway's.

    Raises:
        ApiError: The body's choices are not those of the order (400), or the order has them in another form (409).
    """
    sealed = headers.get(HEADER)
    if sealed is None or key is None:
        return None
    payload, _, signature = sealed.encode("latin-1").rpartition(b".")
    expected = hmac.new(key, payload, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature, expected.encode("ascii")):
        return None
    order = _decode_order(urlsafe_b64decode(payload))
    if not order.choices_digest:
        if order.digest is not None:  # a gateway of another version, whose tokens are elsewhere
            raise resume_mismatch()
        return ResumeRequest(seed=order.seed, can_move=order.can_move)
    try:
        choices = _decode_body(body).penstock_choices
    except msgspec.MsgspecError:
        choices = msgspec.Raw(b"")
    if not hmac.compare_digest(hashlib.sha256(choices).hexdigest(), order.choices_digest):
        raise invalid_value(BEGUN_CHOICES, f"`{BEGUN_CHOICES}` must be the choices that `{HEADER}` is signed for.")
    return ResumeRequest(
        seed=order.seed,
        choices=_decode_choices(choices),
        id=order.id,
        created=order.created,
        digest=order.digest,
        can_move=order.can_move,
    )

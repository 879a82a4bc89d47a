"""The records of recalls: who received which cache entry, which entry proved wrong, and the notice of it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Literal

import msgspec

RecallReason = Literal["audit", "review", "feedback"]
"""The source of a finding: an audit, a person's verdict on the admin page, or a product's feedback."""

RecallBasis = Literal["response", "entry"]
"""`response`: this request's own response was found wrong; `entry`: another response from the same entry was."""

_ID_BYTES: Final = 12


class ReceivedAnswer(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A similar answer that a request was served. `served_at` is in seconds since 1970."""

    tenant: str
    """The tenant of the request, which may differ from the entry's."""
    request_id: str
    entry_id: str
    entry_tenant: str
    route: str
    served_at: float
    is_recalled: bool = False

    @property
    def entry_name(self) -> str:
        """Return the entry's id for the tenant that made it; another tenant gets a digest that names nobody."""
        return self.entry_id if self.entry_tenant == self.tenant else f"shared_{_digest(self.entry_id)}"


class WrongAnswer(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The finding that an entry was served wrongly. `at` is in seconds since 1970."""

    entry_id: str
    reason: RecallReason
    at: float
    tenant: str
    """The tenant of the request that shows it."""
    request_id: str
    route: str


class RecallNotice(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The notice that one request's answer is recalled; it has no text of any prompt. Instants are since 1970."""

    position: int
    """Place in the order of its tenant's notices: larger than that of all earlier ones."""
    request_id: str
    served_at: float
    entry: str
    route: str
    reason: RecallReason
    basis: RecallBasis
    recalled_at: float

    @property
    def id(self) -> str:
        """Return the notice's id, the same for every notice of one request."""
        return recall_id(self.request_id)


def recall_id(request_id: str) -> str:
    """Return the id of the notice of a request."""
    return f"rcl_{_digest(request_id)}"


def notice_of(answer: ReceivedAnswer, wrong: WrongAnswer, position: int) -> RecallNotice:
    """Return the notice for one receiver of an entry that proved wrong."""
    is_own = (answer.tenant, answer.request_id) == (wrong.tenant, wrong.request_id)
    return RecallNotice(
        position=position,
        request_id=answer.request_id,
        served_at=answer.served_at,
        entry=answer.entry_name,
        route=answer.route,
        reason=wrong.reason,
        basis="response" if is_own else "entry",
        recalled_at=wrong.at,
    )


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """A recall notice as clients read it. Instants are in whole seconds since 1970."""

    id: str
    object: Literal["recall"] = "recall"
    request_id: str
    """The `x-request-id` of the response that is recalled."""
    served_at: int
    entry: str
    """The cache entry that the response came from."""
    route: str
    reason: RecallReason
    basis: RecallBasis
    recalled_at: int


def shown_notice(notice: RecallNotice) -> Recall:
    """Return a notice in the form that clients read."""
    return Recall(
        id=notice.id,
        request_id=notice.request_id,
        served_at=int(notice.served_at),
        entry=notice.entry,
        route=notice.route,
        reason=notice.reason,
        basis=notice.basis,
        recalled_at=int(notice.recalled_at),
    )


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_ID_BYTES, person=b"penstock-recall").hexdigest()

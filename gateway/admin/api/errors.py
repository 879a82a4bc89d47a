"""Errors of the admin API beyond those of every listener; the envelope is the same, some add fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.errors import (
    MIN_RETRY_AFTER_S,
    ErrorDetail,
    ErrorType,
    GatewayError,
    Header,
    RejectedRequest,
    retry_after,
)
from routing_policies.policy.problems import Problem

_STORE_WAIT_S: Final = 2.0


class _Explained(ErrorDetail, frozen=True, kw_only=True):
    problems: tuple[Problem, ...] | msgspec.UnsetType = msgspec.UNSET
    conflict: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class NotLoggedIn(RejectedRequest):
    """401: no login, or a session or token that has ended."""

    status = 401
    code = "not_logged_in"

    def __init__(self, remedy: str, *, code: str | None = None) -> None:
        """Set up the error; `code` names a sign-in that failed, for which `remedy` is the whole message."""
        super().__init__(remedy if code else f"This needs somebody who is signed in. {remedy}", code=code)

    def headers(self) -> Sequence[Header]:
        """Return the `www-authenticate` header."""
        return ((b"www-authenticate", b'Bearer realm="penstock-admin"'),)


class BadLogin(RejectedRequest):
    """401: the same message for an unknown name and a wrong password."""

    status = 401
    code = "bad_login"

    def __init__(self) -> None:
        super().__init__("Name and password do not belong together.")


class RoleTooLow(RejectedRequest):
    """403: the role is too low for this request."""

    status = 403
    code = "role_too_low"


class CsrfFailed(RejectedRequest):
    """403: the request came from a browser, but not from our page."""

    status = 403
    code = "csrf_failed"


class ForeignHost(RejectedRequest):
    """403: the request names a host that is not this listener; a page may have let its own name point here."""

    status = 403
    code = "foreign_host"

    def __init__(self) -> None:
        super().__init__(
            "The Host header does not name this machine. Call the admin listener as localhost or by its address, send "
            "'Authorization: Bearer' with a token, or set admin.allow_remote = true where a proxy stands before it."
        )


class TooManyLogins(GatewayError):
    """429: too many wrong passwords or begun logins from one source."""

    status = 429
    type: ErrorType = "rate_limit_error"
    code = "too_many_logins"

    def __init__(self, wait_s: float, reason: str = "There were too many wrong passwords from here.") -> None:
        super().__init__(f"{reason} Wait a moment.")
        self.wait_s = wait_s

    def headers(self) -> Sequence[Header]:
        """Return the `retry-after` header."""
        return retry_after(max(self.wait_s, MIN_RETRY_AFTER_S))


class IfMatchRequired(RejectedRequest):
    """428: a change needs the etag of the policy that it replaces."""

    status = 428
    code = "if_match_required"

    def __init__(self) -> None:
        super().__init__("Send 'If-Match' with the etag of the changed policy; GET /admin/api/policy returns it.")


class Conflict(RejectedRequest):
    """409: the request conflicts with the present state; `code` names the conflict."""

    status = 409

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message, code=code)


class Outdated(RejectedRequest):
    """412: the policy has changed since the caller read it; the message names both sides."""

    status = 412
    code = "revision_conflict"

    def __init__(self, message: str, conflict: dict[str, Any]) -> None:
        super().__init__(message, param="if-match")
        self.conflict = conflict

    def detail(self) -> ErrorDetail:
        """Return the envelope's error with both sides of the conflict."""
        return _Explained(**self.common(), conflict=self.conflict)


class BadPolicy(RejectedRequest):
    """400: the document is invalid; every reason with its line."""

    code = "invalid_policy"

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0].render("policy") if problems else "it cannot be loaded"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"The policy is no good, and nothing was changed: {first}{more}", param="document")
        self.problems = tuple(problems)

    def detail(self) -> ErrorDetail:
        """Return the envelope's error with every problem of the document."""
        return _Explained(**self.common(), problems=self.problems)


class AuditUnreadable(RejectedRequest):
    """409: nothing can be chained to the audit log's end, so nothing is changed."""

    status = 409
    code = "audit_broken"

    def __init__(self, why: str) -> None:
        remedy = "penstock audit verify shows where the log is broken; restore the store from a backup, or try again"
        super().__init__(f"This was not done, since it cannot be written down: {why}. {remedy}.")


class StoreLost(GatewayError):
    """503: the store is lost, so the audit log cannot be written."""

    status = 503
    type: ErrorType = "service_unavailable_error"
    code = "store_unavailable"

    def __init__(self) -> None:
        super().__init__("The store cannot be used right now, so this was not done. Try again when it is back.")

    def headers(self) -> Sequence[Header]:
        """Return the `retry-after` header."""
        return retry_after(_STORE_WAIT_S)

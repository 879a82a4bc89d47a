"""Errors of the admin API: status, code, and what each adds to the envelope."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.admin.api.errors import (
    AuditUnreadable,
    BadLogin,
    BadPolicy,
    Conflict,
    CsrfFailed,
    ForeignHost,
    IfMatchRequired,
    NotLoggedIn,
    Outdated,
    RoleTooLow,
    StoreLost,
    TooManyLogins,
)
from gateway.errors import GatewayError
from routing_policies.loading import load_policy
from routing_policies.policy.problems import PolicyError, Problem


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(PolicyError) as caught:
        load_policy(text, source="policy")
    return tuple(caught.value.problems)


BAD = problems("schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m, wrong: 1, other: 2}]\n")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotLoggedIn("Log in."), 401, "not_logged_in"),
        (BadLogin(), 401, "bad_login"),
        (RoleTooLow("This needs the role admin."), 403, "role_too_low"),
        (CsrfFailed("From elsewhere."), 403, "csrf_failed"),
        (ForeignHost(), 403, "foreign_host"),
        (TooManyLogins(3.0), 429, "too_many_logins"),
        (IfMatchRequired(), 428, "if_match_required"),
        (Conflict("Twice.", code="admin_exists"), 409, "admin_exists"),
        (Outdated("Changed.", {}), 412, "revision_conflict"),
        (BadPolicy(()), 400, "invalid_policy"),
        (AuditUnreadable("line 3"), 409, "audit_broken"),
        (StoreLost(), 503, "store_unavailable"),
    ],
)
def test_each_error_has_its_status_and_code(error: GatewayError, status: int, code: str) -> None:
    assert (error.status, error.detail().code) == (status, code)


def reported(error: GatewayError) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(error.detail())
    return document


def test_a_bad_document_is_reported_with_every_problem_and_its_line() -> None:
    found = reported(BadPolicy(BAD))
    assert len(found["problems"]) == len(BAD) >= 2
    assert f"(and {len(BAD) - 1} more)" in found["message"]
    assert found["param"] == "document"


def test_a_conflict_shows_both_sides_and_other_errors_show_none() -> None:
    assert reported(Outdated("Changed.", {"yours": "r1", "now": "r2"}))["conflict"] == {"yours": "r1", "now": "r2"}
    assert not {"conflict", "problems"} & reported(BadLogin()).keys()


def test_errors_that_pass_report_when_to_come_back() -> None:
    assert dict(TooManyLogins(7.2).headers())[b"retry-after"] == b"8"
    assert dict(TooManyLogins(0.0).headers())[b"retry-after"] == b"1", "never at once"
    assert b"retry-after" in dict(StoreLost().headers())
    assert b"www-authenticate" in dict(NotLoggedIn("Log in.").headers())

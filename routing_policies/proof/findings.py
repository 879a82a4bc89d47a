"""Proof: what was found about a document, with a request that shows each violation."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from routing_policies.policy.policy_tests import TestRequest
from routing_policies.policy.problems import Path

ViolationKind = Literal[
    "not_total", "unreachable_alias", "unreachable_route", "fallback_cycle", "context", "starvation", "wide_key",
]  # fmt: skip

PROPERTIES: Final[dict[ViolationKind, str]] = {
    "not_total": "every request for a name in `total` has a written route that serves it",
    "unreachable_alias": "every alias is reached by some request",
    "unreachable_route": "every route is reached by some request",
    "fallback_cycle": "no fallback or degradation leads back to its route",
    "context": "every candidate holds the prompts that its route takes",
    "starvation": "no tenant can keep another from every permit",
    "wide_key": "no key reaches more than its tenant",
}
"""Statement of each property."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A property that does not hold, and requests that show it, confirmed by the code that serves requests."""

    kind: ViolationKind
    path: Path
    message: str
    requests: tuple[TestRequest, ...] = ()


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that is neither proven nor refuted."""

    kind: ViolationKind
    path: Path
    message: str


BEYOND_SEARCH: Final = "the search hit its bound, or a condition compares several parts of a request"
"""Reason why a search leaves a statement open."""


def unproven(kind: ViolationKind, path: Path, statement: str, why: str = BEYOND_SEARCH) -> OpenQuestion:
    """Return the open question whether a statement holds, with the reason why it is open."""
    return OpenQuestion(kind=kind, path=path, message=f"{statement}: not proven, {why}")


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one document; a property without a violation and without an open question is proven."""

    violations: tuple[Violation, ...] = ()
    open_questions: tuple[OpenQuestion, ...] = ()
    num_searched: int = 0
    """Branches of all searches."""

    @property
    def proven(self) -> tuple[ViolationKind, ...]:
        """Properties that hold for all requests."""
        violated = {found.kind for found in self.violations}
        is_open = {found.kind for found in self.open_questions}
        return tuple(kind for kind in PROPERTIES if kind not in violated | is_open)


def shown_request(request: TestRequest) -> dict[str, Any]:
    """Return a request as it may stand in a policy's `tests`, without what is usual."""
    usual = msgspec.to_builtins(TestRequest())
    return {
        name: value for name, value in msgspec.to_builtins(request).items() if name == "model" or value != usual[name]
    }

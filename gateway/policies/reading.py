"""DocumentReader: parsing and checking of a policy document's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.policies.errors import InvalidPolicy
from gateway.policies.revision import Revision
from routing_policies.loading import load_document
from routing_policies.policy.document import Policy
from routing_policies.policy.nodes import Document
from routing_policies.policy.problems import PolicyError, Problem
from routing_policies.proof.document_check import check_document
from routing_policies.quality.predictor import Predictors

if TYPE_CHECKING:
    from gateway.policies.policy_file import PolicyRevision, PolicyStatus

SOURCE = "policy"


def _accept_all(policy: Policy) -> None:
    """Refuse nothing."""


def _ignore(revision: Revision) -> None:
    """Ignore the value; the default of a hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChecks:
    """Rules by which this process reads and checks a policy document."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Values of each `${name}` in the document."""
    accept: Callable[[Policy], None] = _accept_all
    """Callback that may refuse a policy with a ValueError."""
    predictors: Predictors | None = None
    """Quality predictors for the tests inside a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyHooks:
    """Callbacks for changes of the policy in force."""

    on_revision: Callable[[PolicyRevision], None]
    """Callback for each new good policy, which it may refuse with a ValueError."""
    on_status: Callable[[PolicyStatus], None]
    """Callback for the result of the last check, after `on_revision`."""
    on_restored: Callable[[Revision], None] = _ignore
    """Callback for a revision that the store had lost and has again."""


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """Result of examining a document; `policy` is None when the document cannot be loaded."""

    policy: Policy | None
    problems: tuple[Problem, ...]
    num_tests: int
    document: Document | None = None
    """Tree that the policy was loaded from; None when it could not be loaded."""


class DocumentReader:
    """Checker of documents with this process' settings; slow for large ones, so callers leave the event loop."""

    def __init__(self, checks: PolicyChecks) -> None:
        self._checks = checks

    def read(self, text: str) -> Policy:
        """Return the policy; raises InvalidPolicy when a check or one of the document's tests fails."""
        reading = self.examine(text)
        if reading.problems or reading.policy is None:
            raise InvalidPolicy(reading.problems)
        return reading.policy

    def load(self, text: str) -> Policy:
        """Return the policy without running its tests or `accept`; raises PolicyError."""
        return load_document(text, source=SOURCE, variables=self._checks.variables)[0]

    def examine(self, text: str) -> PolicyReading:
        """Return the policy with all problems of its document."""
        try:
            policy, document = load_document(text, source=SOURCE, variables=self._checks.variables)
        except PolicyError as error:
            return PolicyReading(None, error.problems, 0)
        result = check_document(policy, document, self._checks.predictors)
        problems = list(result.failures)
        try:
            self._checks.accept(policy)
        except ValueError as error:
            problems.append(Problem(line=1, column=1, path="", message=str(error)))
        return PolicyReading(policy, tuple(problems), result.num_tests, document)

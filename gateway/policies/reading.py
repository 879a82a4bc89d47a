"""DocumentReader: parsing and checking of a policy document's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.policies.errors import InvalidPolicy
from routing_policies.check import run_tests
from routing_policies.loading import load_document
from routing_policies.policy.document import Policy
from routing_policies.policy.problems import PolicyError, Problem
from routing_policies.quality.predictor import Predictors

SOURCE = "policy"


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """Result of examining a document; `policy` is None when the document cannot be loaded."""

    policy: Policy | None
    problems: tuple[Problem, ...]
    num_tests: int


class DocumentReader:
    """Checker of documents with this process' settings; slow for large ones, so callers leave the event loop."""

    def __init__(
        self, variables: Mapping[str, str], accept: Callable[[Policy], None], predictors: Predictors | None = None
    ) -> None:
        """Create a reader; `accept` may refuse a policy with a ValueError, `predictors` serve the document's tests."""
        self._predictors = predictors
        self._variables = dict(variables)
        self._accept = accept

    def read(self, text: str) -> Policy:
        """Return the policy; raises InvalidPolicy when a check or one of the document's tests fails."""
        reading = self.examine(text)
        if reading.problems or reading.policy is None:
            raise InvalidPolicy(reading.problems)
        return reading.policy

    def load(self, text: str) -> Policy:
        """Return the policy without running its tests or `accept`; raises PolicyError."""
        return load_document(text, source=SOURCE, variables=self._variables)[0]

    def examine(self, text: str) -> PolicyReading:
        """Return the policy with all problems of its document."""
        try:
            policy, document = load_document(text, source=SOURCE, variables=self._variables)
        except PolicyError as error:
            return PolicyReading(None, error.problems, 0)
        result = run_tests(policy, document, self._predictors)
        problems = list(result.failures)
        try:
            self._accept(policy)
        except ValueError as error:
            problems.append(Problem(line=1, column=1, path="", message=str(error)))
        return PolicyReading(policy, tuple(problems), result.num_tests)

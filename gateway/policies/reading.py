"""From a document's text to a policy that passed every check."""

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
    """What a document turned out to be; `policy` is None when it cannot even be loaded."""

    policy: Policy | None
    problems: tuple[Problem, ...]
    num_tests: int


class DocumentReader:
    """Checks documents as this process would serve them. Slow for large ones: call it off the event loop."""

    def __init__(
        self, variables: Mapping[str, str], accept: Callable[[Policy], None], predictors: Predictors | None = None
    ) -> None:
        """`accept` may refuse a policy with a ValueError; `predictors` are for the tests inside."""
        self._predictors = predictors
        self._variables = dict(variables)
        self._accept = accept

    def read(self, text: str) -> Policy:
        """The policy; raises InvalidPolicy."""
        reading = self.examine(text)
        if reading.problems or reading.policy is None:
            raise InvalidPolicy(reading.problems)
        return reading.policy

    def load(self, text: str) -> Policy:
        """The policy without its tests and without `accept`; raises PolicyError."""
        return load_document(text, source=SOURCE, variables=self._variables)[0]

    def examine(self, text: str) -> PolicyReading:
        """Everything that is wrong with it."""
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

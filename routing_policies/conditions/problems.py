"""Problems in a policy's conditions, with their paths."""

from __future__ import annotations

from collections.abc import Iterator

from routing_policies.conditions.condition import Condition
from routing_policies.conditions.tokens import ConditionError
from routing_policies.policy.document import Policy
from routing_policies.policy.problems import PathProblem


def condition_problems(policy: Policy) -> Iterator[PathProblem]:
    """Yield one problem for each invalid condition."""
    for index, route in enumerate(policy.routes):
        if route.match.when is None:
            continue
        try:
            Condition(route.match.when)
        except ConditionError as error:
            yield PathProblem(path=("routes", index, "match", "when"), message=str(error))

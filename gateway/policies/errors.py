"""Reasons for refusing a change of the policy; a refused change has no effect."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.policies.revision import Revision
from routing_policies.policy.problems import Problem


class ApplyRefused(Exception):
    """Base of the reasons for refusing a change."""


class ReadOnlyPolicy(ApplyRefused):
    """Error for a policy that is a file."""


class RevisionConflict(ApplyRefused):
    """Error for a policy that has changed since the editor read it."""

    def __init__(self, yours: str, theirs: Revision) -> None:
        super().__init__(f"{yours} is not in force any more: {theirs.author} made revision {theirs.number} of it")
        self.yours = yours
        self.theirs = theirs


class InvalidPolicy(ApplyRefused):
    """Error for an invalid document; `problems` lists every reason."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems[0].render("policy") if problems else "invalid")
        self.problems = tuple(problems)


class NoSuchRevision(ApplyRefused):
    """Error for a revision number that does not exist."""


class CanaryRunning(ApplyRefused):
    """Error for a change while a canary trial runs."""


class NotSeparable(ApplyRefused):
    """Error for two revisions that cannot be in force side by side, because their difference affects all traffic."""

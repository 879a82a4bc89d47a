"""Why a change of the policy was refused; nothing has changed then."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.policies.revision import Revision
from routing_policies.policy.problems import Problem


class ApplyRefused(Exception):
    """Base of the reasons."""


class ReadOnlyPolicy(ApplyRefused):
    """The document is a file's."""


class RevisionConflict(ApplyRefused):
    """Somebody else has changed the policy since it was read."""

    def __init__(self, yours: str, theirs: Revision) -> None:
        super().__init__(f"{yours} is not in force any more: {theirs.author} made revision {theirs.number} of it")
        self.yours = yours
        self.theirs = theirs


class InvalidPolicy(ApplyRefused):
    """The document is no good; `problems` has a line for each reason."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems[0].render("policy") if problems else "invalid")
        self.problems = tuple(problems)


class NoSuchRevision(ApplyRefused):
    """There is no revision of this number."""


class CanaryRunning(ApplyRefused):
    """One change at a time: a canary decides first."""


class NotSeparable(ApplyRefused):
    """Two revisions cannot be in force side by side: what changes is shared by all traffic."""

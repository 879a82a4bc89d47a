"""GroupState: the source of a deployment's members as one process sees it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment with `discover`."""

    id: str
    source: str
    """Kind and name of the source."""
    num_members: int
    num_left_out: int
    """Members beyond `max_members`."""
    age_s: float | None
    """Seconds since the last listing; None before the first."""
    error: str | None
    """Reason why the source cannot be read now; the last members are used."""


def worst_of(states: Sequence[GroupState]) -> GroupState:
    """Return one group's state over all processes: that of a process that cannot read the source, if there is any."""
    return next((state for state in states if state.error is not None), states[0])

"""Candidates that a route leaves out for their failures: never too many, and never all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.deployments.live import LiveDeployment

MAX_EJECTED_RATIO: Final = 2 / 3
"""Largest share of a route's candidates that ejection may leave out, so the rest is not overloaded."""

_NOBODY: Final[frozenset[str]] = frozenset()


class EjectedCandidates(NamedTuple):
    """Ids that ejection leaves out of an attempt."""

    ids: frozenset[str]
    is_panic: bool
    """True if no other candidate is usable, so ejected ones are used (compare Envoy's panic threshold)."""


NOBODY: Final = EjectedCandidates(_NOBODY, False)


def excluded(
    candidates: Sequence[LiveDeployment], now: float, already_tried: frozenset[str] = _NOBODY
) -> EjectedCandidates:
    """Return the candidates to leave out now.

    Beyond MAX_EJECTED_RATIO, those with the earliest return are let in early. A doubtful deployment is left out only
    where another one has a free permit.
    """
    if all(live.health.is_usual for live in candidates):
        return NOBODY
    usable = [live for live in candidates if live.is_ready and live.id not in already_tried]
    resting = [live for live in usable if live.health.pushback_s(now)]
    ejected = [live for live in usable if live.health.is_ejected(now) and live not in resting]
    if ejected and len(ejected) + len(resting) == len(usable):
        return EjectedCandidates(frozenset(live.id for live in resting), is_panic=True)
    num_allowed = max(1, int(len(candidates) * MAX_EJECTED_RATIO))
    ejected.sort(key=lambda live: live.health.returns_at(), reverse=True)
    out = [*resting, *ejected[:num_allowed]]
    doubtful = [live for live in usable if live.health.is_doubtful and live not in out]
    if doubtful and any(live.limiter.has_free for live in usable if live not in out and live not in doubtful):
        out += doubtful
    return EjectedCandidates(frozenset(live.id for live in out), is_panic=False)

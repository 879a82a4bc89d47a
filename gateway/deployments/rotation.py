"""Which of a route's candidates are kept out for their failures: never too many of them, and never all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.deployments.live import LiveDeployment

MAX_EJECTED_RATIO: Final = 2 / 3
"""Largest share of a route's candidates that ejection may keep out; the rest would drown in their traffic."""

_NOBODY: Final[frozenset[str]] = frozenset()


class EjectedCandidates(NamedTuple):
    """The ids that ejection keeps out of this attempt."""

    ids: frozenset[str]
    is_panic: bool
    """Every candidate that could answer is ejected, so all of them are used: a guess beats a certain refusal."""


NOBODY: Final = EjectedCandidates(_NOBODY, False)


def kept_out(
    candidates: Sequence[LiveDeployment], now: float, already_tried: frozenset[str] = _NOBODY
) -> EjectedCandidates:
    """Whom to leave out now. Of more than MAX_EJECTED_RATIO those who would come back first are let in early.

    A deployment in doubt is left out only where another has a permit free.
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

"""Whether heads that are asked before the next step is known are asked for nothing: arrivals come in bursts."""

from __future__ import annotations

from typing import NamedTuple

_DECAY = 0.9
_LEAST_USED = 0.8
"""Of looks ahead, to be worth their time: asked later, heads take about a fifth longer."""
_PRIOR = 0.9


class SortOfStep(NamedTuple):
    """What tells steps apart behind which another one comes than was foreseen."""

    num_rows_bits: int
    is_first: bool
    """Whether it made an answer's first token: where one prompt was, there may be others."""
    is_near_end: bool


class ForeseenLooks:
    """Shares of the steps behind which heads really were asked, of those where that was foreseen; steps count whether
    heads were asked ahead or not."""

    def __init__(self) -> None:
        self._shares: dict[SortOfStep, float] = {}
        self._foreseen: SortOfStep | None = None

    def step_ended(self) -> None:
        """Another step is over: what was foreseen behind the one before did not come, unless it was told."""
        if self._foreseen is not None:
            self._note(self._foreseen, came=False)
            self._foreseen = None

    def foresee(self, sort: SortOfStep) -> bool:
        """Heads will be asked behind a step of this sort, as far as can be told; whether to do it at once."""
        self._foreseen = sort
        return self.are_used(sort)

    def are_used(self, sort: SortOfStep) -> bool:
        """Whether heads mostly are asked behind steps of a sort."""
        return self._shares.get(sort, _PRIOR) >= _LEAST_USED

    def asked(self) -> None:
        """Heads are asked about the next step."""
        if self._foreseen is not None:
            self._note(self._foreseen, came=True)
            self._foreseen = None

    def _note(self, sort: SortOfStep, *, came: bool) -> None:
        self._shares[sort] = _DECAY * self._shares.get(sort, _PRIOR) + (1.0 - _DECAY) * came

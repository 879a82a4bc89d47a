"""Whether looking for drafts pays, told by how an answer began: numbers are hardly found, an object's keys often."""

from __future__ import annotations

from engine.spec_decode.statistics.guard import SpeculationGuard

_CAPACITY = 1024
_FIRST_PAUSE = 16
_LONGEST_PAUSE = 64
"""Short beside a long answer, which may come to repeat itself; yet few steps in a hundred are then thought about."""


class AnswerKinds:
    """A guard for the answers that begin with the same token, in steps of about as many rows: what pays alone may not
    pay in company. Steps in which nothing was found count as well."""

    def __init__(self) -> None:
        self._guards: dict[tuple[int, int], SpeculationGuard] = {}

    def is_open(self, first_token_id: int, num_rows: int) -> bool:
        """Whether the next step of such an answer may be thought about."""
        guard = self._guards.get(_key(first_token_id, num_rows))
        return guard is None or guard.is_open

    def allows(self, first_token_id: int, num_rows: int) -> bool:
        """The same; asked once a step, it counts a pause down."""
        guard = self._guards.get(_key(first_token_id, num_rows))
        return guard is None or guard.allows()

    def num_paused(self, first_token_id: int, num_rows: int) -> int:
        """Steps of such answers until the next may be thought about."""
        guard = self._guards.get(_key(first_token_id, num_rows))
        return 0 if guard is None else guard.num_paused

    def pass_steps(self, first_token_id: int, num_rows: int, num_steps: int) -> None:
        """So many steps of such an answer are not asked about."""
        guard = self._guards.get(_key(first_token_id, num_rows))
        if guard is not None:
            guard.pass_steps(num_steps)

    def observe(self, first_token_id: int, num_rows: int, worth_s: float, spent_s: float) -> None:
        """A step that was thought about took `spent_s`; a plain one would have taken `worth_s` for its tokens."""
        key = _key(first_token_id, num_rows)
        guard = self._guards.get(key)
        if guard is None:
            if len(self._guards) >= _CAPACITY:
                self._guards.clear()
            guard = self._guards[key] = SpeculationGuard(first_pause=_FIRST_PAUSE, longest_pause=_LONGEST_PAUSE)
        guard.observe(worth_s, spent_s)


def _key(first_token_id: int, num_rows: int) -> tuple[int, int]:
    return first_token_id, num_rows.bit_length()

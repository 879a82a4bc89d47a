"""KeyRequirement: of two decisions one is in force, the same at every replica."""

from __future__ import annotations

import msgspec

from gateway.access.key_requirement import KeyRequirement, newer

FIRST = KeyRequirement(is_required=False, number=1, changed_at=1.0, changed_by="anna")
SECOND = msgspec.structs.replace(FIRST, is_required=True, number=2)


def test_the_newest_decision_is_in_force_whatever_the_order() -> None:
    assert newer(FIRST, SECOND) == newer(SECOND, FIRST) == SECOND


def test_of_two_decisions_at_once_the_one_that_requires_keys_is_in_force() -> None:
    open_one, closed_one = (msgspec.structs.replace(SECOND, is_required=flag) for flag in (False, True))
    assert newer(open_one, closed_one) == newer(closed_one, open_one) == closed_one

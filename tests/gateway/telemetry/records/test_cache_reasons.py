"""Reasons of cache results, as metric labels."""

from __future__ import annotations

import re
from typing import get_args

from gateway.telemetry.records.cache_reasons import CacheReason, ExactReason, GuardReason, SimilarReason

BOTH_TIERS = {"personal", "time_dependent"}
"""Questions that neither tier reuses have one reason, whichever found them."""


def test_a_reason_reports_by_itself_which_part_of_the_cache_decided() -> None:
    kinds = [set(get_args(kind)) for kind in (ExactReason, GuardReason, SimilarReason)]
    assert kinds[0] & kinds[1] == BOTH_TIERS
    assert sum(map(len, kinds)) == len(set.union(*kinds)) + len(BOTH_TIERS)
    assert {reason for kind in get_args(CacheReason) for reason in get_args(kind)} == set.union(*kinds)


def test_every_reason_can_be_a_label_value_without_quoting() -> None:
    for kind in (ExactReason, GuardReason, SimilarReason):
        assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", reason) for reason in get_args(kind))

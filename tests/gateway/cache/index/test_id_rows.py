"""Ids by place."""

from __future__ import annotations

import gc

import pytest

from gateway.cache.index.id_rows import IdRows


@pytest.mark.parametrize("num_ids", [0, 1, 999, 1000, 2500])
def test_ids_are_where_they_were_put(num_ids: int) -> None:
    exacts, ids = [number.to_bytes(32, "little") for number in range(num_ids)], IdRows()
    ids.extend(exacts[:700])
    ids.extend(exacts[700:])
    assert len(ids) == num_ids
    assert [ids[place] for place in range(num_ids)] == exacts
    pieces = list(ids.pieces())
    assert [exact for piece in pieces for exact in piece] == exacts
    assert all(0 < len(piece) <= 1000 for piece in pieces)


def test_the_collector_does_not_look_at_each_id() -> None:
    ids = IdRows()
    ids.extend([b"%d" % number for number in range(5000)])
    assert sum(len(gc.get_referents(each)) for each in gc.get_referents(ids) if gc.is_tracked(each)) < 100

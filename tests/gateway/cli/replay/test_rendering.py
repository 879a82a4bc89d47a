"""Replays as lines for a terminal."""

from __future__ import annotations

from typing import Any

from gateway.cli.replay.rendering import render_replay


def found(**fields: Any) -> dict[str, Any]:
    return {
        "id": "req_1",
        "at": 0.0,
        "model": "auto",
        "route": "main",
        "policy": "r1",
        "deployment": "small",
        "cache": "miss",
        "seed": 7,
        "num_bytes": 12,
        "state": {"model": "aa"},
        "state_now": {"model": "bb"},
        "difference": None,
        "factors": [],
        "summary": "Byte-equal.",
        **fields,
    }


def test_a_replay_shows_the_record_what_the_model_was_and_is_and_the_result() -> None:
    lines = render_replay(found()).splitlines()
    assert "  model auto, route main, policy r1" in lines
    assert "  small answered 12 bytes, cache miss, seed 7" in lines
    assert "    model          aa  now bb" in lines
    assert lines[-1] == "Byte-equal."


def test_a_search_shows_each_factor_and_details_of_those_that_changed() -> None:
    difference = {"at": 3, "then": "one\n", "now": "oné"}
    same = {"factor": "trimming", "then": "nothing cut", "now": "nothing cut", "verdict": "same"}
    changed = {"factor": "routing", "then": "small", "now": "large", "verdict": "changes"}
    factors = [{"note": "", "difference": None, **same}, {"note": "why", "difference": difference, **changed}]
    lines = render_replay(found(factors=factors, seed=None)).splitlines()
    assert "  trimming       as it was" in lines
    at = lines.index("  routing        CHANGES THE TEXT")
    assert lines[at + 1 : at + 6] == [
        "    small  now  large",
        "    why",
        "    from byte 3:",
        "      then 'one\\n'",
        "      now  'oné'",
    ]
    assert any(line.endswith("no seed") for line in lines)

"""The replay of a plan on a terminal."""

from __future__ import annotations

from typing import Any

from gateway.cli.plans.replayed import replay_lines


def side(**fields: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(("hit_ratio", "shed_ratio", "cost_per_1k", "ttft_p50_ms", "ttft_p95_ms"))
    return {"routes": {}, "deployments": {}, "errors": {}, **nothing, **fields}


def replayed(**fields: Any) -> list[str]:
    nothing: dict[str, Any] = {
        "num_requests": 100,
        "took_s": 0.5,
        "old": side(),
        "new": side(),
        "moved": [],
        "deployments": [],
        "estimates": {"new": {"why_not": "nothing was drawn"}, "recorded": {"measures": []}, "differences": []},
        "notes": [],
    }
    return list(replay_lines({**nothing, **fields}))


def test_refused_requests_come_first_as_a_warning_most_of_them_first() -> None:
    lines = replayed(
        old=side(errors={"model_not_allowed": 2}, routes={"auto": 0.89, "big": 0.09}),
        new=side(errors={"model_not_allowed": 2, "model_not_found": 9}, routes={"auto": 0.89}),
        moved=[{"route_from": "big", "route_to": "", "count": 9}],
        deployments=[{"from": "large", "to": "", "count": 9}],
    )
    assert lines[:4] == [
        "warning: 9 of 100 recorded requests would be refused: model_not_found (in force: 0)",
        "warning: 2 of 100 recorded requests would be refused: model_not_allowed (in force: 2)",
        "100 recorded requests, replayed in 0.5 s; shares are of all of them:",
        "  refused      2.0% → 11.0%",
    ]
    assert "  route auto: 89.0% → 89.0%" in lines
    assert "  moved: 9 from route big to refused" in lines
    assert "  moved: 9 from deployment large to refused" in lines


def test_many_moves_are_cut_short() -> None:
    lines = replayed(moved=[{"route_from": "", "route_to": f"r{number}", "count": 1} for number in range(12)])
    assert len([line for line in lines if line.startswith("  moved: ")]) == 10
    assert "  and 2 more moves between routes; --json lists them" in lines
    assert not [line for line in lines if "warning" in line or "%" in line]

"""A diagnosis in a terminal."""

from __future__ import annotations

from gateway.diagnosis.render import render_diagnosis
from tests.gateway.diagnosis.snapshots import Scene
from tests.gateway.diagnosis.test_diagnose import limit, reported


def test_the_terminal_shows_stage_evidence_lever_and_line() -> None:
    import msgspec

    scene = Scene()
    limit(scene)
    text = render_diagnosis(msgspec.to_builtins(reported(scene)))
    assert "QUEUE: Deployment large has room, but its permits are all out." in text
    assert "in the policy: deployments.large.limits.max_in_flight" in text
    assert "500.0 ms" in text
    assert "Nothing stands out" in render_diagnosis(msgspec.to_builtins(reported(Scene())))
    idle = Scene()
    idle.num = 0.0
    text = render_diagnosis(msgspec.to_builtins(reported(idle)))
    assert "cannot tell" in text
    assert "within" not in text

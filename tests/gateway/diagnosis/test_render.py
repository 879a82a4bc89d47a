"""A diagnosis in a terminal."""

from __future__ import annotations

from gateway.diagnosis.render import render_diagnosis
from routing_policies.loading import load_policy
from tests.gateway.diagnosis.snapshots import Scene
from tests.gateway.diagnosis.test_diagnose import limit, said

POLICY = load_policy(
    """
schema_version: 1
deployments: [{id: large, url: "unix:/tmp/large.sock", model: big}]
lanes: [{id: interactive, slo: {ttft_p95_ms: 2000}}]
routes: [{id: all, select: {candidates: [large]}}]
""",
    source="policy.yaml",
)


def test_the_terminal_shows_stage_evidence_lever_and_line() -> None:
    import msgspec

    scene = Scene()
    limit(scene)
    text = render_diagnosis(msgspec.to_builtins(said(scene)))
    assert "QUEUE: Deployment large has room, but its permits are all out." in text
    assert "in the policy: deployments.large.limits.max_in_flight" in text
    assert "500.0 ms" in text
    assert "Nothing stands out" in render_diagnosis(msgspec.to_builtins(said(Scene())))

"""A slow encoder: late hits, lost hits, and what only looks like them."""

from __future__ import annotations

from gateway.diagnosis.encoding import Lookups, find_slow_encoder
from gateway.diagnosis.policy_lines import place_of
from tests.gateway.diagnosis.snapshots import Scene
from tests.gateway.diagnosis.test_diagnose import POLICY, late_hits, lookups, lost_hits


def cause(scene: Scene) -> str | None:
    window = scene.window()
    finding = find_slow_encoder(window, place_of(window, POLICY))
    return None if finding is None else finding.cause


def test_late_and_lost_hits_are_the_encoders() -> None:
    for change in (late_hits, lost_hits):
        scene = Scene()
        assert cause(scene) is None
        change(scene)
        assert cause(scene) == "encoder"


def test_hits_that_come_late_at_the_encoders_old_pace_are_not_its_fault() -> None:
    scene = Scene()
    late_hits(scene)
    scene.stages["embed"] = scene.stages_before["embed"]
    assert cause(scene) is None


def test_lookups_that_faster_deployments_overtake_are_not_the_encoders_fault() -> None:
    scene = Scene()
    lost_hits(scene)
    scene.stages["embed"] = scene.stages_before["embed"]
    assert cause(scene) is None


def test_fewer_hits_without_late_lookups_are_other_questions() -> None:
    scene = Scene()
    lost_hits(scene)
    scene.gateway |= lookups(similar=80.0, alone=220.0)
    assert cause(scene) is None


def test_lookups_are_counted_by_what_became_of_them() -> None:
    scene = Scene()
    scene.gateway |= lookups(similar=30.0, alone=40.0, late=20.0, no_vector=10.0, bypass=900.0)
    counts = Lookups.of(scene.window().counted)
    assert (counts.num, counts.hit_ratio, counts.lost_ratio) == (100.0, 0.3, 0.3)
    empty = Lookups.of(Scene().window().counted)
    assert (empty.hit_ratio, empty.lost_ratio) == (0.0, 0.0)

"""A window between snapshots: what grew in it, what was there before, and who began to serve inside it."""

from __future__ import annotations

import pytest

from gateway.diagnosis.samples import Distribution, Samples
from gateway.diagnosis.window import ObservedDeployment, Snapshot, Window
from tests.gateway.diagnosis.snapshots import Scene


def engine(tokens: float, step_s: float = 0.0) -> Samples:
    return Samples(
        {"engine_prompt_tokens_total": (({}, tokens),), "engine_waiting": (({}, step_s),)},
        {"engine_tpot_seconds": (({}, Distribution(tokens, tokens * 0.01)),)},
    )


def at(seconds: float, engines: dict[str, Samples], **ready: bool) -> Snapshot:
    states = {name: ObservedDeployment(is_ready=is_ready) for name, is_ready in ready.items()}
    return Snapshot(at=seconds, gateway=Samples(), engines=engines, deployments=states)


def test_one_snapshot_is_no_window() -> None:
    with pytest.raises(ValueError, match="two snapshots, got 1"):
        Window([at(0.0, {})])


def test_growth_and_past_of_a_counter_are_apart() -> None:
    scene = Scene()
    scene.gateway_before["penstock_shed_total"] = [({"lane": "batch"}, 3.0)]
    scene.gateway["penstock_shed_total"] = [({"lane": "batch"}, 10.0), ({"lane": "chat"}, 2.0)]
    window = scene.window()
    assert window.counted("penstock_shed_total") == 9.0
    assert window.counted("penstock_shed_total", lane="batch") == 7.0
    assert window.counted_before("penstock_shed_total", lane="chat") == 0.0


def test_a_restarted_engine_counts_from_zero() -> None:
    window = Window([at(0.0, {"a": engine(100.0), "b": engine(50.0)}), at(5.0, {"a": engine(30.0), "b": engine(60.0)})])
    assert window.engine_counted("engine_prompt_tokens_total") == 30.0 + 10.0
    assert window.engine_counted_before("engine_prompt_tokens_total") == 150.0
    assert window.engine_spread("engine_tpot_seconds", "b").count == 10.0


def test_an_engine_that_is_gone_by_the_end_is_no_part_of_the_sums() -> None:
    window = Window([at(0.0, {"a": engine(100.0)}), at(5.0, {})])
    assert window.engine_counted("engine_prompt_tokens_total") == 0.0
    assert window.engine_spread("engine_tpot_seconds").count == 0.0


def test_the_peak_of_a_gauge_names_its_deployment_whenever_it_was() -> None:
    middle = at(2.0, {"a": engine(1.0, 0.2), "b": engine(1.0, 0.9)})
    window = Window([at(0.0, {"a": engine(1.0)}), middle, at(5.0, {"a": engine(1.0, 0.3)})])
    assert window.engine_peak("engine_waiting") == ("b", 0.9)
    assert Window([at(0.0, {}), at(1.0, {})]).engine_peak("engine_waiting") == ("", 0.0)


def test_those_that_became_ready_are_new_or_lost_their_counts_began_inside() -> None:
    first = at(0.0, {"steady": engine(10.0), "fell": engine(10.0)}, steady=True, fell=True, woke=False)
    last = at(
        5.0,
        {"steady": engine(11.0), "fell": engine(1.0), "new": engine(1.0)},
        steady=True, fell=True, woke=True, new=True, down=False,
    )  # fmt: skip
    assert Window([first, last]).restarted() == ["fell", "woke", "new"]


def test_the_delay_of_the_loop_is_a_share_of_the_time() -> None:
    late = [Snapshot(at=seconds, gateway=Samples(), late_s=late_s) for seconds, late_s in ((10.0, 1.0), (20.0, 3.0))]
    assert Window(late).late_ratio == pytest.approx(0.2)
    assert Window(late[::-1]).late_ratio == 0.0


def test_the_busiest_member_stands_for_its_group() -> None:
    def snapshot(at: float, **in_flight: int) -> Snapshot:
        states = {f"large@{name}:80": ObservedDeployment(in_flight=num) for name, num in in_flight.items()}
        return Snapshot(at=at, gateway=Samples(), deployments={"small": ObservedDeployment(), **states})

    window = Window([snapshot(0.0, a=1, b=7), snapshot(9.0, a=3, b=2)])
    assert [window.member(name) for name in ("large", "large@a:80", "small", "gone")] == [
        *("large@b:80", "large@a:80", "small", "gone")
    ]
    assert window.peak_state("large@b:80").in_flight == 7
    assert window.peak_state("gone") == ObservedDeployment()


def test_a_baseline_takes_the_place_of_everything_before_the_window() -> None:
    def gateway(num: float) -> Samples:
        return Samples({"x_total": (({}, num),)}, {"x_seconds": (({}, Distribution(num, 2 * num)),)})

    snapshots = [Snapshot(at=0.0, gateway=gateway(7.0)), Snapshot(at=9.0, gateway=gateway(9.0))]
    since_start, apart = Window(snapshots), Window(snapshots, gateway(3.0))
    assert (since_start.is_baseline_apart, apart.is_baseline_apart) == (False, True)
    assert (since_start.counted_before("x_total"), apart.counted_before("x_total")) == (7.0, 3.0)
    assert (since_start.spread_before("x_seconds").count, apart.spread_before("x_seconds").count) == (7.0, 3.0)
    assert since_start.counted("x_total") == apart.counted("x_total") == 2.0


def test_a_deployment_that_was_taken_back_from_a_drain_did_not_start() -> None:
    drained, lost = ObservedDeployment(is_ready=False, is_draining=True), ObservedDeployment(is_ready=False)
    first = Snapshot(at=0.0, gateway=Samples(), deployments={"drained": drained, "lost": lost})
    last = Snapshot(at=9.0, gateway=Samples(), deployments=dict.fromkeys(("drained", "lost"), ObservedDeployment()))
    assert Window([first, last]).restarted() == ["lost"]

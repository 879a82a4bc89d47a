"""The walk: one change at a time to a healthy past, and what must be stated of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import pytest

from gateway.diagnosis.diagnose import find_cause
from gateway.diagnosis.finding import Diagnosis
from gateway.diagnosis.window import ObservedDeployment, Window
from routing_policies.loading import load_policy
from routing_policies.policy.document import DEFAULT_LANES
from tests.gateway.diagnosis.snapshots import SECONDS, Scene

POLICY = load_policy(
    """
schema_version: 1
deployments: [{id: large, url: "unix:/tmp/large.sock", model: big}]
lanes: [{id: interactive, slo: {ttft_p95_ms: 2000}}]
routes: [{id: all, select: {candidates: [large]}}]
""",
    source="policy.yaml",
)


def reported(scene: Scene) -> Diagnosis:
    return find_cause(scene.window(), POLICY)


def limit(scene: Scene) -> None:
    scene.ttft, scene.stages["queue"] = 0.53, 0.5
    scene.state = {"limit": 4, "in_flight": 4, "num_seqs": 4.0, "max_num_seqs": 64}


def engine_full(scene: Scene) -> None:
    scene.ttft, scene.stages["queue"] = 0.53, 0.5
    scene.state = {"limit": 64, "in_flight": 8, "num_seqs": 8.0, "max_num_seqs": 8}


def engine_queue(scene: Scene) -> None:
    scene.ttft, scene.engine["queue"], scene.engine["ttft"] = 0.53, 0.5, 0.522


def one_tenant(scene: Scene) -> None:
    scene.ttft, scene.stages["queue"], scene.tenants["two"] = 0.53, 0.5, 20_000.0


def admission(scene: Scene) -> None:
    scene.gateway["penstock_shed_total"] = [({"lane": "interactive", "reason": "slo_unreachable"}, 10.0)]
    scene.state = {"limit": 64, "in_flight": 10}


def prompt_size(scene: Scene) -> None:
    scene.ttft, scene.stages["read"], scene.stages["trim"] = 0.13, 0.05, 0.05


def encoder(scene: Scene) -> None:
    scene.ttft, scene.stages["embed"] = 0.13, 0.1


def late_hits(scene: Scene) -> None:
    scene.stages_before["embed"], scene.stages["embed"] = 0.008, 0.2
    scene.stages["upstream_first_byte"] = 0.0  # deployments are not called
    scene.hit_ttft = (0.01, 0.21)


def lost_hits(scene: Scene) -> None:
    """Deployments are requested what the cache used to answer, and do not keep up with it."""
    limit(scene)
    scene.stages_before["embed"], scene.stages["embed"] = 0.008, 0.3
    scene.gateway_before = lookups(similar=80.0, alone=20.0)
    scene.gateway |= lookups(similar=85.0, alone=25.0, late=90.0)


def lookups(**counts: float) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    num_seqs: list[tuple[Mapping[str, str], float]] = [
        ({"result": "miss", "reason": reason}, count) for reason, count in counts.items()
    ]
    return {"penstock_cache_lookups_total": num_seqs}


def tokenizer(scene: Scene) -> None:
    scene.ttft, scene.engine["ttft"] = 0.13, 0.122


def slow_prefill(scene: Scene) -> None:
    scene.ttft, scene.engine["ttft"], scene.engine["prefill"] = 0.23, 0.222, 0.22


def long_prompts(scene: Scene) -> None:
    slow_prefill(scene)
    scene.prompt_tokens = 100.0


def prefix_misses(scene: Scene) -> None:
    slow_prefill(scene)
    requested, found = "engine_prefix_cache_queries_tokens_total", "engine_prefix_cache_hits_tokens_total"
    scene.before, scene.counted = {requested: 1000.0, found: 900.0}, {requested: 1000.0, found: 100.0}


def kv_headroom(scene: Scene) -> None:
    engine_queue(scene)
    scene.gauges["engine_kv_utilization"] = 0.99


def cold_start(scene: Scene) -> None:
    slow_prefill(scene)
    scene.state_before = {"is_ready": False}


def fresh_engine(scene: Scene) -> None:
    slow_prefill(scene)
    scene.is_new = True


def slow_decode(scene: Scene) -> None:
    scene.tpot, scene.engine["tpot"], scene.total = 0.03, 0.03, 0.9


def num_seqs(scene: Scene) -> None:
    slow_decode(scene)
    scene.state = {"num_seqs": 60.0, "max_num_seqs": 64, "in_flight": 60}


def preemption(scene: Scene) -> None:
    num_seqs(scene)
    scene.counted["engine_preemptions_total"] = 20.0


def speculation(scene: Scene) -> None:
    slow_decode(scene)
    scene.counted = {
        "engine_generation_tokens_total": 3000.0,
        "engine_speculation_drafted_tokens_total": 9000.0,
        "engine_speculation_accepted_tokens_total": 300.0,
    }


def output_length(scene: Scene) -> None:
    scene.total, scene.answer_tokens = 1.2, 120.0


def path(scene: Scene) -> None:
    scene.ttft = 0.13


def slow_bandwidth(scene: Scene) -> None:
    scene.tpot = 0.05


def down(scene: Scene) -> None:
    scene.state = {"is_ready": False}
    scene.num = 0.0


def failing(scene: Scene) -> None:
    scene.num = 0.0
    scene.outcomes = {"upstream_failed": 30.0, "upstream_timeout": 10.0}
    scene.gateway["penstock_ejections_total"] = [({"deployment": "large", "reason": "consecutive"}, 2.0)]


def failing_and_refused(scene: Scene) -> None:
    failing(scene)
    admission(scene)


def down_and_failing(scene: Scene) -> None:
    down(scene)
    scene.outcomes = {"upstream_failed": 30.0}


def loop_lag(scene: Scene) -> None:
    scene.late_s = 0.4 * SECONDS
    scene.ttft, scene.stages["queue"] = 0.53, 0.5


def store(scene: Scene) -> None:
    scene.gateway = {"penstock_store_up": [({}, 0.0)], "penstock_store_failures_total": [({"operation": "get"}, 5.0)]}


def down_and_refused(scene: Scene) -> None:
    admission(scene)
    scene.state = {"is_ready": False}


CAUSES: list[tuple[Callable[[Scene], None], str, str | None]] = [
    (limit, "queue/limit", "deployments.large.limits.max_in_flight"),
    (engine_full, "queue/engine_full", "routes.all.select.candidates"),
    (engine_queue, "queue/engine_full", "routes.all.select.candidates"),
    (one_tenant, "queue/one_tenant", "tenants.two.limits.max_in_flight"),
    (admission, "queue/admission", "lanes.interactive.on_overload"),
    (prompt_size, "preprocessing/prompt_size", "routes.all.trim.budget_tokens"),
    (encoder, "preprocessing/encoder", "routes.all.cache.mode"),
    (late_hits, "preprocessing/encoder", "routes.all.cache.mode"),
    (lost_hits, "preprocessing/encoder", "routes.all.cache.mode"),
    (tokenizer, "preprocessing/tokenizer", "routes.all.trim.budget_tokens"),
    (slow_prefill, "prefill/slow_prefill", "routes.all.select.candidates"),
    (long_prompts, "prefill/long_prompts", "routes.all.trim.budget_tokens"),
    (prefix_misses, "prefill/prefix_misses", "routes.all.select.weights.affinity"),
    (kv_headroom, "prefill/kv_headroom", "deployments.large.limits.max_in_flight"),
    (cold_start, "prefill/cold_start", "routes.all.select.fallback"),
    (fresh_engine, "prefill/cold_start", "routes.all.select.fallback"),
    (slow_decode, "decode/slow_decode", "routes.all.select.candidates"),
    (num_seqs, "decode/num_seqs", "deployments.large.limits.max_in_flight"),
    (preemption, "decode/preemption", "deployments.large.limits.max_in_flight"),
    (speculation, "decode/speculation", None),
    (output_length, "decode/output_length", "lanes.interactive.degraded_max_tokens"),
    (path, "network/path", "routes.all.select.hedge"),
    (slow_bandwidth, "network/path", "routes.all.select.candidates"),
    (down, "network/deployment_down", "routes.all.select.fallback"),
    (down_and_refused, "network/deployment_down", "routes.all.select.fallback"),
    (failing, "upstream/upstream_failing", "routes.all.select.fallback"),
    (failing_and_refused, "upstream/upstream_failing", "routes.all.select.fallback"),
    (down_and_failing, "network/deployment_down", "routes.all.select.fallback"),
    (loop_lag, "gateway/loop_lag", None),
    (store, "gateway/store", "tenants.one.limits.on_store_loss"),
]


@pytest.mark.parametrize(("change", "expected", "line"), CAUSES, ids=[change.__name__ for change, _, _ in CAUSES])
def test_one_cause_is_named_with_its_line_and_no_other(
    change: Callable[[Scene], None], expected: str, line: str | None
) -> None:
    scene = Scene()
    change(scene)
    findings = reported(scene).findings
    assert [f"{found.stage}/{found.cause}" for found in findings] == [expected]
    assert findings[0].policy_path == line
    assert findings[0].evidence
    assert findings[0].lever


def test_a_healthy_window_has_no_findings() -> None:
    assert reported(Scene()).findings == ()


def test_a_deployment_that_operators_drained_is_not_down() -> None:
    scene = Scene()
    scene.state = {"is_ready": False, "is_draining": True}
    assert reported(scene).findings == ()


def test_a_deployment_of_members_is_down_only_when_none_of_them_is_ready() -> None:
    def found(**ready: bool) -> list[str]:
        scene = Scene()
        window = scene.window()
        members = {f"large@{name}:80": ObservedDeployment(is_ready=one) for name, one in ready.items()}
        last = replace(window.last, deployments=members)
        return [finding.cause for finding in find_cause(Window([window.first, last]), POLICY).findings]

    assert found(a=True, b=False) == []
    assert found(a=False, b=False) == ["deployment_down"]


def test_failures_that_have_always_been_are_found_too() -> None:
    scene = Scene()
    failing(scene)
    scene.num_before = 0.0
    scene.gateway_before["penstock_requests_total"] = [
        ({"route": "all", "deployment": "large", "outcome": "upstream_failed"}, 9000.0)
    ]
    scene.gateway["penstock_requests_total"] = [
        ({"route": "all", "deployment": "large", "outcome": "upstream_failed"}, 9040.0)
    ]
    found = reported(scene)
    assert [finding.cause for finding in found.findings] == ["upstream_failing"]
    assert found.conclusion == ""


@pytest.mark.parametrize(
    ("num", "num_before", "policy", "conclusion"),
    [
        (100.0, 100.0, "target", "everything is as it was, and within its targets"),
        (3.0, 100.0, "target", "It cannot tell: 3 first tokens in 10 s are too few"),
        (0.0, 0.0, "none", "It cannot tell: 0 first tokens in 10 s are too few"),
        (100.0, 0.0, "target", "Within the targets. There is no baseline yet"),
        (100.0, 100.0, "none", "so it cannot tell whether that is fast enough"),
        (100.0, 5.0, "none", "It cannot tell: no lane in use has a target, and there is no baseline yet"),
    ],
)
def test_a_window_without_findings_states_only_what_was_compared(
    num: float, num_before: float, policy: str, conclusion: str
) -> None:
    scene = Scene()
    scene.num, scene.num_before = num, num_before
    document = POLICY if policy == "target" else msgspec.structs.replace(POLICY, lanes=DEFAULT_LANES)
    found = find_cause(scene.window(), document)
    assert found.findings == ()
    assert conclusion in found.conclusion
    has_all = policy == "target" and num_before == 100.0
    is_known = num >= 5.0 and not has_all
    assert ("The largest stage before the first token is prefill: 20.0 ms." in found.conclusion) == is_known


@pytest.mark.parametrize(("num_missed", "is_within"), [(5.0, True), (12.0, False)])
def test_targets_that_too_many_answers_miss_are_not_called_met(num_missed: float, is_within: bool) -> None:
    scene = Scene()
    scene.gateway["penstock_slo_total"] = [
        ({"lane": "interactive", "target": "ttft", "result": result}, num)
        for result, num in (("met", 100.0 - num_missed), ("missed", num_missed))
    ]
    conclusion = reported(scene).conclusion
    assert ("within its targets" in conclusion) == is_within
    assert ("Nothing is slower than before, but 12% of the latency targets were missed" in conclusion) != is_within


def test_the_time_of_an_upstream_without_metrics_is_named_as_part_of_the_network() -> None:
    scene = Scene()
    scene.num_before, scene.has_engine, scene.ttft = 0.0, False, 1.5
    document = msgspec.structs.replace(POLICY, lanes=DEFAULT_LANES)
    assert "network, the upstream's own time included: 1,499.0 ms." in find_cause(scene.window(), document).conclusion


def test_a_baseline_that_reaches_up_to_the_window_is_noted() -> None:
    window = Scene().window()
    apart = Window(window.all, window.first.gateway)
    assert any("reaches up to this window" in note for note in find_cause(window, POLICY).notes)
    assert not any("reaches up to this window" in note for note in find_cause(apart, POLICY).notes)


def test_too_few_requests_prove_nothing_and_it_reports_it() -> None:
    scene = Scene()
    limit(scene)
    scene.num = 3.0
    found = reported(scene)
    assert found.findings == ()
    assert "too few" in found.conclusion
    assert not any("too few" in note for note in found.notes), "once is enough"
    failing(scene)
    assert "too few" in reported(scene).notes[0]


def test_what_was_always_too_slow_is_evaluated_by_the_target() -> None:
    scene = Scene()
    scene.ttft, scene.stages["queue"] = 3.0, 2.9
    scene.num_before = 0.0
    found = reported(scene)
    assert [finding.stage for finding in found.findings] == ["queue"]
    assert any("no baseline" in note for note in found.notes)


def test_a_slow_first_token_and_a_slow_decode_are_two_findings() -> None:
    scene = Scene()
    limit(scene)
    scene.tpot, scene.engine["tpot"] = 0.03, 0.03
    assert [finding.stage for finding in reported(scene).findings] == ["queue", "decode"]


def test_a_loop_that_is_late_for_trimming_is_not_blamed() -> None:
    scene = Scene()
    scene.late_s = 0.2 * SECONDS
    scene.ttft, scene.stages["trim"] = 0.13, 0.1
    scene.num = 40.0
    assert [finding.cause for finding in reported(scene).findings] == ["prompt_size"]


def test_an_encoder_that_is_slow_beside_a_slower_deployment_is_not_blamed() -> None:
    scene = Scene()
    slow_prefill(scene)
    scene.stages["upstream_first_byte"], scene.stages["embed"] = 0.229, 0.4
    found = reported(scene)
    assert [finding.cause for finding in found.findings] == ["slow_prefill"]
    assert found.stages["preprocessing"].now_s < 0.01


def test_deployments_that_become_faster_than_an_unchanged_encoder_are_no_trouble() -> None:
    scene = Scene()
    lost_hits(scene)
    scene.ttft, scene.state, scene.stages["queue"] = 0.01, {}, 0.0
    scene.stages["embed"] = 0.008
    assert reported(scene).findings == ()


def test_an_upstream_without_metrics_is_named_as_such() -> None:
    scene = Scene()
    scene.ttft, scene.has_engine = 0.5, False
    found = reported(scene)
    assert found.findings[0].cause == "path"
    assert "gives no metrics" in found.findings[0].summary
    assert any("No metrics from large" in note for note in found.notes)


def test_tenants_and_prompts_are_compared() -> None:
    scene = Scene()
    scene.tenants = {"one": 100.0, "two": 300.0}
    found = reported(scene)
    assert [tenant.key for tenant in found.tenants] == ["one", "two"]
    assert found.prompts[0].key == "0-256"
    assert found.deployments[0].ttft_s == pytest.approx(0.03)

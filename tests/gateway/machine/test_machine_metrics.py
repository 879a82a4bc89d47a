"""MachineMetrics: workers' counts add up, survive their death, and gauges combine."""

from __future__ import annotations

from gateway.admin.views.live_state import LiveState
from gateway.machine.machine_metrics import GAUGES, MachineMetrics
from gateway.machine.reports import WorkerReport, family_values
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Outcome

LABELS = ("route", "deployment", Outcome.COMPLETED)


def report(life: str, metrics: GatewayMetrics) -> WorkerReport:
    return WorkerReport(life=life, values=family_values(metrics.instruments), live=LiveState())


def test_counts_grow_by_what_each_worker_counted_since_its_last_report() -> None:
    total = GatewayMetrics()
    machine = MachineMetrics(total)
    first, second = GatewayMetrics(), GatewayMetrics()
    first.requests.labels(*LABELS).inc(3)
    second.requests.labels(*LABELS).inc(4)
    for _ in range(2):  # the same counts again add nothing
        machine.take(1, report("a", first))
        machine.take(2, report("b", second))
    first.requests.labels(*LABELS).inc()
    machine.take(1, report("a", first))

    assert total.requests.labels(*LABELS).value == 8


def test_a_new_life_begins_at_zero_and_the_old_ones_counts_stay() -> None:
    total = GatewayMetrics()
    machine = MachineMetrics(total)
    old, new = GatewayMetrics(), GatewayMetrics()
    old.requests.labels(*LABELS).inc(5)
    machine.take(1, report("a", old))
    machine.drop(1)
    new.requests.labels(*LABELS).inc(2)
    machine.take(1, report("b", new))

    assert total.requests.labels(*LABELS).value == 7


def test_histograms_add_up_beside_the_control_processs_own() -> None:
    total = GatewayMetrics()
    machine = MachineMetrics(total)
    total.overhead.labels().observe(0.003)
    worker = GatewayMetrics()
    for seconds in (0.003, 0.3, 500.0):
        worker.overhead.labels().observe(seconds)
    machine.take(1, report("a", worker))
    machine.take(1, report("a", worker))

    child = total.overhead.labels()
    assert sum(child.counts) == 4
    assert child.counts[-1] == 1
    assert abs(child.total - 500.306) < 1e-6


def test_a_histogram_with_other_buckets_is_left_out() -> None:
    total, worker = GatewayMetrics(), GatewayMetrics()
    machine = MachineMetrics(total)
    worker.requests.labels(*LABELS).inc(2)
    worker.overhead.labels().observe(0.003)
    found = report("a", worker)
    for name, children in found.values.histograms.items():
        found.values.histograms[name] = [(labels, ([*counts, 0], sum_s)) for labels, (counts, sum_s) in children]
    for _ in range(2):
        machine.take(1, found)

    assert total.requests.labels(*LABELS).value == 2
    child = total.overhead.labels()
    assert (sum(child.counts), child.total) == (0, 0.0)


def test_gauges_combine_and_those_of_a_lost_worker_go() -> None:
    total = GatewayMetrics()
    machine = MachineMetrics(total)
    total.store_up.labels().set(1.0)
    total.cache_index_waiting.labels().set(1.0)
    workers = [GatewayMetrics(), GatewayMetrics()]
    for number, worker in enumerate(workers):
        worker.store_up.labels().set(float(number))
        worker.cache_index_waiting.labels().set(2.0)
        worker.loop_lag.labels().set(0.1 * (number + 1))
        machine.take(number + 1, report("a", worker))
    machine.set_gauges()

    assert total.store_up.labels().value == 0.0
    assert total.cache_index_waiting.labels().value == 5.0
    assert total.loop_lag.labels().value == 0.2
    machine.drop(1)
    total.store_up.labels().set(1.0)  # as each scrape does
    machine.set_gauges()
    assert total.store_up.labels().value == 1.0


def test_every_combined_gauge_exists() -> None:
    assert set(GAUGES) <= {family.name for family in GatewayMetrics().instruments.gauges}

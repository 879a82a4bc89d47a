"""Samples: from memory and from text, the same numbers."""

from __future__ import annotations

import pytest

from gateway.diagnosis.samples import Distribution, Samples
from gateway.telemetry.instruments import Instruments
from gateway.telemetry.window import History


def instruments() -> Instruments:
    made = Instruments("x_")
    made.counter("asked_total", "Asked.", ("tenant",)).labels('a"b\\c').inc(3)
    made.counter("other_total", "Other.").labels().inc()
    made.gauge("depth", "Depth.").labels().set(2.5)
    spent = made.histogram("spent_seconds", "Spent.", ("stage",))
    for seconds in (0.001, 0.01, 0.01, 4.0):
        spent.labels("read").observe(seconds)
    spent.labels("route").observe(1.0)
    return made


def test_text_gives_what_memory_gives_but_for_quantiles() -> None:
    memory = Samples.of_instruments(instruments())
    text = Samples.of_text(instruments().render().decode())
    for samples in (memory, text):
        assert samples.number("x_asked_total") == 3
        assert samples.number("x_depth") == 2.5
        assert samples.distribution("x_spent_seconds", stage="read").count == 4
        assert samples.distribution("x_spent_seconds").mean == pytest.approx(5.021 / 5)
        assert samples.values_of("x_spent_seconds", "stage") == {"read", "route"}
    assert memory.distribution("x_spent_seconds", stage="read").quantile(0.5) == 0.01
    assert memory.distribution("x_spent_seconds", stage="read").quantile(0.99) == 5.0


def test_the_totals_of_a_history_give_what_memory_gives() -> None:
    made = instruments()
    history = History(made.counters, made.histograms, prefix="x_", wall=lambda: 5000.0)
    history.take()
    totals = history.until(0.0)
    assert totals is not None
    past, memory = Samples.of_totals(totals, made), Samples.of_instruments(made)
    assert past.number("x_asked_total", tenant='a"b\\c') == memory.number("x_asked_total") == 3
    for stage in ("read", "route"):
        where = {"stage": stage}
        assert past.distribution("x_spent_seconds", **where) == memory.distribution("x_spent_seconds", **where)


def test_what_is_not_a_line_is_passed_over() -> None:
    samples = Samples.of_text("x_a_total 1\nnonsense here now\n\x00\nx_b{ 2\nx_c_total NaNo\n")
    assert samples.number("x_a_total") == 1
    assert not samples.has("x_c_total")


def test_a_distribution_that_fell_started_anew() -> None:
    assert (Distribution(3.0, 1.0) - Distribution(10.0, 9.0)) == Distribution(3.0, 1.0)
    assert (Distribution(10.0, 9.0) - Distribution(4.0, 3.0)).mean == 1.0
    assert Distribution().mean == 0.0

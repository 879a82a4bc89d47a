"""The engine's spans: below the caller's, one for each phase of each choice, by the core's own record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.config import EngineConfigError, FrontConfig
from engine.frontend.core_client.generation import Generation
from engine.frontend.http.tracing import CAPACITY, Tracer
from engine.protocol import StageTimes
from tests.support.otlp_collector import OtlpCollector

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
STAGES = StageTimes(queue_s=0.1, prefill_s=0.2, decode_s=0.4, num_prefill_chunks=2, num_cached_tokens=16)


class Ids:
    """Span ids in order."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, bits: int) -> int:
        assert bits == 64
        self._last += 1
        return self._last


def tracer(url: str = "http://127.0.0.1:9/v1/traces") -> Tracer:
    config = FrontConfig(listen="127.0.0.1:0", model_name="tiny", otlp_endpoint=url)
    return Tracer(config, clock=lambda: 11.0, unix_time=lambda: 1011.0, random_bits=Ids())


def generation(*stages: StageTimes | None) -> Generation:
    """Finished, with a choice for each record of stages."""
    choices = [SimpleNamespace(index=i, num_tokens=5, stages=found) for i, found in enumerate(stages)]
    prompt = SimpleNamespace(num_tokens=32, lane="interactive", received_at=10.0, tokenize_s=0.05)
    made = SimpleNamespace(prompt=prompt, choices=choices, num_cached_tokens=16, detokenize_s=0.001)
    return cast(Generation, made)


def sent(collector: OtlpCollector, traceparent: str, finished: Generation, num: int) -> list[dict[str, Any]]:
    made = tracer(collector.url)
    made.start()
    with made.watch(traceparent, finished):
        pass
    made.close()
    return collector.wait_for(num)


def test_a_requests_phases_lie_below_the_span_of_the_caller() -> None:
    with OtlpCollector() as collector:
        spans = sent(collector, PARENT, generation(STAGES), 4)
    assert collector.services == {"penstock-engine"}
    own, queue, prefill, decode = spans
    assert {span["trace"] for span in spans} == {TRACE}
    assert (own["name"], own["parent"], own["kind"]) == ("chat tiny", SPAN, 2)
    assert [span["name"] for span in (queue, prefill, decode)] == ["queue", "prefill", "decode"]
    assert {span["parent"] for span in (queue, prefill, decode)} == {own["id"]}
    assert own["start"] == pytest.approx(1010.0e9)
    assert own["end"] == pytest.approx(1011.0e9)
    assert queue["start"] == pytest.approx(1010.05e9)
    assert (queue["end"], prefill["end"]) == (prefill["start"], decode["start"])
    assert decode["end"] - decode["start"] == pytest.approx(0.4e9)
    assert own["attributes"]["gen_ai.usage.input_tokens"] == 32
    assert prefill["attributes"]["penstock.prefill_chunks"] == 2


def test_every_choice_has_its_own_phases_and_one_that_was_aborted_has_none() -> None:
    with OtlpCollector() as collector:
        spans = sent(collector, PARENT, generation(STAGES, STAGES, None), 7)
    assert len(spans) == 7
    assert {span["attributes"].get("penstock.choice") for span in spans[1:]} == {0, 1}


def test_a_request_that_fails_reports_it() -> None:
    with OtlpCollector() as collector:
        made = tracer(collector.url)
        made.start()
        with pytest.raises(KeyError), made.watch(PARENT, generation(None)):
            raise KeyError
        made.close()
        assert collector.wait_for(1)[0]["status"] == 2


@pytest.mark.parametrize(
    "header", ["", "nonsense", PARENT[:-2] + "00", PARENT.replace(TRACE, "0" * 32), "ff" + PARENT[2:]]
)
def test_what_the_caller_did_not_sample_is_not_traced(header: str) -> None:
    made = tracer()
    with made.watch(header, generation(STAGES)):
        pass
    assert not made._queue


def test_more_than_can_be_sent_is_dropped_and_counted() -> None:
    made = tracer()
    for _ in range(CAPACITY + 3):
        with made.watch(PARENT, generation(STAGES)):
            pass
    assert made.num_dropped == 3


def test_a_collector_that_is_not_there_is_counted_and_nothing_else() -> None:
    made = tracer("http://127.0.0.1:1/v1/traces")
    made.start()
    with made.watch(PARENT, generation(STAGES)):
        pass
    made.close(10.0)
    assert made.num_dropped == 1


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(EngineConfigError, match="otlp_endpoint"):
        FrontConfig(listen="127.0.0.1:0", model_name="tiny", otlp_endpoint="collector:4318")

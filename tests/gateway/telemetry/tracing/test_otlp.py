"""A finished request as spans: valid JSON, nested in time, and without what clients must not put there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.telemetry.records.record import RequestRecord, Usage
from gateway.telemetry.records.trace_context import TraceContext
from gateway.telemetry.tracing.otlp import export_request, resource_of, spans_of
from gateway.timeline import Outcome, Stage

CONTEXT = TraceContext("ab" * 16, "cd" * 8, 7)


def record(**fields: Any) -> RequestRecord:
    made = RequestRecord("req_1", 100.0)
    for stage, at in ((Stage.READ, 100.1), (Stage.QUEUE, 100.4), (Stage.RELAY, 101.0)):
        made.timeline.mark(stage, at)
    made.outcome, made.status, made.attempts, made.model = Outcome.COMPLETED, 200, 1, "auto"
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def spans(made: RequestRecord, context: TraceContext = CONTEXT) -> dict[str, dict[str, Any]]:
    raw = export_request([spans_of(made, context, 1000.0)], resource_of("penstock", "1", "h"))
    (resource,) = json.loads(raw)["resourceSpans"]
    assert {item["key"] for item in resource["resource"]["attributes"]} == {
        "service.name",
        "service.version",
        "service.instance.id",
    }
    return {span["name"]: span for span in resource["scopeSpans"][0]["spans"]}


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


def test_spans_are_nested_in_the_order_of_the_way() -> None:
    found = spans(record())
    root, prepare, queue, chat = (
        found[name] for name in ("POST /v1/chat/completions", "prepare", "queue", "chat auto")
    )
    assert root["parentSpanId"] == "cd" * 8
    assert {span["parentSpanId"] for span in (prepare, queue, chat)} == {root["spanId"]}
    assert root["startTimeUnixNano"] == prepare["startTimeUnixNano"] == str(1100 * 10**9)
    assert prepare["endTimeUnixNano"] == queue["startTimeUnixNano"]
    assert queue["endTimeUnixNano"] == chat["startTimeUnixNano"]
    assert int(chat["endTimeUnixNano"]) <= int(root["endTimeUnixNano"])


def test_a_request_that_never_got_far_has_no_span_for_where_it_was_not() -> None:
    made = RequestRecord("req_1", 100.0)
    made.outcome, made.status, made.code = Outcome.REJECTED, 401, "invalid_api_key"
    found = spans(made, TraceContext("ab" * 16, "", 7))
    assert set(found) == {"POST /v1/chat/completions", "prepare"}
    assert "parentSpanId" not in found["POST /v1/chat/completions"]
    assert found["POST /v1/chat/completions"]["status"] == {"code": 2, "message": "invalid_api_key"}


def test_usage_and_the_first_token_belong_to_the_upstreams_span() -> None:
    made = record(usage=Usage(12, 5))
    made.timeline.first_token_at = 100.5
    chat = spans(made)["chat auto"]
    reported = attributes(chat)
    assert (reported["gen_ai.usage.input_tokens"], reported["gen_ai.usage.output_tokens"]) == ("12", "5")
    assert chat["events"] == [{"name": "gen_ai.first_token", "timeUnixNano": str(int(1100.5 * 1e9))}]


@pytest.mark.parametrize("model", ['m"}]},{"name":"evil', "m\x00\n", "Bearer sk-penstock-0123456789abcdef"])
def test_names_from_clients_cannot_break_the_document_or_carry_secrets(model: str) -> None:
    found = spans(record(model=model))
    assert len(found) == 4
    assert "0123456789abcdef" not in str(found)

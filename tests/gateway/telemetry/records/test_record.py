"""One request's record as a line of the log."""

from __future__ import annotations

import msgspec

from gateway.telemetry.records.record import OMITTABLE, CacheResult, HandedOver, RequestLine, RequestRecord, Usage
from gateway.timeline import Outcome, Stage


def line(**fields: object) -> dict[str, object]:
    record = RequestRecord("req_1", 10.0)
    record.outcome = Outcome.COMPLETED
    for name, value in fields.items():
        setattr(record, name, value)
    found: dict[str, object] = msgspec.json.decode(msgspec.json.encode(record.as_line(1.5)))
    return found


def test_what_has_no_value_is_left_out_and_what_every_line_needs_is_there() -> None:
    found = line()
    assert {"at", "event", "request_id", "outcome", "status", "cache", "stream", "attempts", "total_ms"} <= found.keys()
    assert not {"client_request_id", "code", "detail", "usage", "ttft_ms", "shed_reason", "num_chunks"} & found.keys()


def test_chunks_stand_in_for_a_usage_that_did_not_come() -> None:
    assert line(num_chunks=7)["num_chunks"] == 7
    with_usage = line(num_chunks=7, usage=Usage(10, 6, 4))
    assert "num_chunks" not in with_usage
    assert (with_usage["prompt_tokens"], with_usage["completion_tokens"], with_usage["cached_tokens"]) == (10, 6, 4)


def test_an_abandoned_answer_is_reported_with_all_of_its_tokens() -> None:
    found = line(handed_over=HandedOver("small", Usage(10, 3)))
    assert (found["handed_over_from"], found["handed_over_tokens"]) == ("small", 13)


def test_what_clients_named_is_cleaned() -> None:
    found = line(client_request_id="a\x1bb", detail="Bearer sk-penstock-0123456789abcdef", model="m\x00n")
    assert found["client_request_id"] == "a\\x1bb"
    assert "0123456789abcdef" not in str(found["detail"])
    assert found["model"] == "m\\x00n"


def test_times_are_milliseconds_since_the_request_came() -> None:
    record = RequestRecord("req_1", 10.0)
    record.timeline.mark(Stage.READ, 10.25)
    record.timeline.first_token_at = 10.1
    found = record.as_line(1.5)
    assert (found.ttft_ms, found.total_ms, found.stages_ms) == (100.0, 250.0, {"read": 250.0})


def test_only_fields_of_a_line_may_be_omitted() -> None:
    assert set(RequestLine.__struct_fields__) >= OMITTABLE


def test_the_header_of_a_cache_result_has_dashes() -> None:
    assert [result.header for result in CacheResult] == [b"hit-exact", b"hit-semantic", b"miss", b"bypass"]

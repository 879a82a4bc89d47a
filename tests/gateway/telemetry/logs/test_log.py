"""LogWriter: lines that are safe to read, from a queue that never blocks."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.access.restored import Restored
from gateway.telemetry.logs.log import OWN_KEYS, ROW, LogWriter, clean
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Outcome

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


def lines(stream: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def writer(stream: io.BytesIO, **values: Any) -> LogWriter:
    return LogWriter(stream, wall_clock=lambda: 1.5, **values)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Authorization: Bearer sk-abcdefgh12345", "Authorization: [redacted] [redacted]"),
        ("got Bearer abc.def.ghi back", "got Bearer [redacted] back"),
        ("key sk-penstock-0123456789abcdef!", "key [redacted]!"),
        ('{"api_key":"hunter2secret"}', '{"api_key":[redacted]"}'),
        ("https://user:pass@host/x", "https://[redacted]@host/x"),
        ("\x1b[2Jx", "\\x1b[2Jx"),
        ("a\r\u202eb\x9b", "a\\x0d\\x202eb\\x9b"),
        ("plain", "plain"),
    ],
)
def test_free_text_is_redacted_and_escaped(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_an_event_is_one_line_of_json() -> None:
    stream = io.BytesIO()
    log = writer(stream)
    log.event("started", text="two\nlines", number=3)
    log.flush()

    assert lines(stream) == [{"at": 1.5, "level": "info", "event": "started", "text": "two\nlines", "number": 3}]
    assert stream.getvalue().count(b"\n") == 1


def test_a_full_queue_drops_and_counts() -> None:
    stream = io.BytesIO()
    log = writer(stream, capacity=2)
    for _ in range(5):
        log.event("x")
    log.flush()

    assert len(lines(stream)) == 2
    assert log.num_dropped == 3


def test_lines_come_in_order_with_the_time_at_which_each_was_handed_over() -> None:
    stream, now = io.BytesIO(), iter(range(100))
    log = LogWriter(stream, wall_clock=lambda: float(next(now)))
    for number in range(ROW + 3):
        log.event("x", number=number)
    log.flush()
    for number in range(ROW + 3, ROW + 5):
        log.event("x", number=number)
    log.flush()

    assert [(line["at"], line["number"]) for line in lines(stream)] == [(n, n) for n in range(ROW + 5)]


def test_a_line_is_made_while_the_disk_is_slow() -> None:
    """A thread that is stuck in a write holds up nobody who has something to state."""

    class Stuck(io.BytesIO):
        def write(self, data: Buffer) -> int:
            for _ in range(2 * ROW):
                log.event("meanwhile")
            return super().write(data)

    stream = Stuck()
    log = writer(stream)
    log.event("first")
    log.flush()

    assert [line["event"] for line in lines(stream)] == ["first"]
    assert log.num_dropped == 0


def test_a_value_that_json_does_not_know_is_reported_in_words() -> None:
    stream = io.BytesIO()
    log = writer(stream)
    log.event("odd", value=Path("/x"))
    log.flush()

    assert lines(stream)[0]["value"] == "/x"


def test_a_broken_stream_is_survived_and_counted() -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    log = writer(Full())
    log.event("x")
    log.flush()

    assert log.num_dropped == 1


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.BytesIO()
    log = writer(stream, level="warning")
    log.event("quiet")
    log.event("loud", level="error")
    log.flush()

    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_the_thread_writes_what_is_queued_at_the_end() -> None:
    stream = io.BytesIO()
    log = writer(stream)
    log.start()
    log.event("x")
    log.close()

    assert len(lines(stream)) == 1


def test_a_record_becomes_a_line_without_empty_values() -> None:
    stream = io.BytesIO()
    log = writer(stream)
    record = RequestRecord("req_1", 10.0)
    record.outcome = Outcome.CANCELLED
    record.model = "x\x1b[2J"
    record.timeline.mark(0, 10.25)
    log.write(record)
    log.flush()

    (line,) = lines(stream)
    assert line["model"] == "x\\x1b[2J"
    assert line["stages_ms"] == {"read": 250.0}
    assert line["outcome"] == "cancelled"
    assert "usage" not in line
    assert "shed_reason" not in line


def test_a_failure_carries_its_traceback() -> None:
    stream = io.BytesIO()
    log = writer(stream)
    try:
        raise KeyError("lost")
    except KeyError as error:
        log.failure("request_failed", error, request_id="req_1")
    log.flush()

    (line,) = lines(stream)
    assert line["level"] == "error"
    assert "KeyError: 'lost'" in line["error"]


@pytest.mark.parametrize("name", sorted(OWN_KEYS - {"level"}))
def test_a_field_never_overwrites_a_key_of_the_log_itself(name: str) -> None:
    stream = io.BytesIO()
    log = writer(stream)
    log.event("told", level="warning", **{name: "mine", "other": 1})
    log.failure("broke", ValueError("x"), **{name: "mine"})
    log.write({"event": "raw", "at": "mine"})
    log.flush()
    notified, broke, raw = lines(stream)
    assert notified == {"at": 1.5, "level": "warning", "event": "told", f"{name}_": "mine", "other": 1}
    assert (broke["at"], broke["level"], broke["event"], broke[f"{name}_"]) == (1.5, "error", "broke", "mine")
    assert raw == {"at": 1.5, "event": "raw", "at_": "mine"}


@pytest.mark.parametrize("name", ["error", "level", "name", "self", "values"])
def test_a_failure_keeps_its_level_and_its_traceback_whatever_its_fields_are_called(name: str) -> None:
    stream = io.BytesIO()
    log = writer(stream)
    given: dict[str, Any] = {name: "mine"}
    log.failure("broke", ValueError("the reason"), **given)
    log.flush()
    (line,) = lines(stream)
    assert (line["level"], line["event"]) == ("error", "broke")
    assert "the reason" in line["error"]
    assert line[name if name in ("name", "self", "values") else f"{name}_"] == "mine"


@pytest.mark.parametrize("value", ["\udcff", ["a", "\udcff"], ("\udcff",), {"\udcff": "\udcff"}, Path("/a\udcff")])
def test_a_text_that_is_no_unicode_is_escaped_wherever_it_is(value: object) -> None:
    stream = io.BytesIO()
    log = writer(stream)
    log.event("told", field=value)
    log.flush()
    assert "\\xdcff" in json.dumps(lines(stream)[0]["field"]).replace("\\\\", "\\")


def logged_fields() -> Iterator[tuple[str, str]]:
    """Place and name of every field that the gateway's source gives to the log."""
    root = Path(__file__).resolve().parents[4] / "gateway"
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in ("event", "failure") and "log" in ast.unparse(node.func.value):
                place = f"{path.name}:{node.lineno}"
                yield from ((place, word.arg) for word in node.keywords if word.arg is not None)


def test_no_event_has_a_field_of_the_name_of_a_key_of_the_log() -> None:
    found = list(logged_fields())
    assert len(found) > 50
    assert [(place, name) for place, name in found if name in OWN_KEYS - {"level"}] == []
    assert not OWN_KEYS & {field.name for field in fields(Restored)}  # given to an event as they are

"""Load reports of engines: read in either form, and what they say of an engine's work."""

from __future__ import annotations

import pytest

from gateway.deployments.load_report import LoadReport, parse_event, parse_orca


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            b"TEXT named_metrics.kv_cache_utilization=0.25, named_metrics.num_requests_waiting=3, cpu=0.5",
            {"kv_cache_utilization": 0.25, "num_requests_waiting": 3.0, "cpu": 0.5},
        ),
        (b'JSON {"cpu": 0.5, "named_metrics": {"num_requests_waiting": 3}}', {"cpu": 0.5, "num_requests_waiting": 3.0}),
        (b"BIN aGVsbG8=", None),
        (b"TEXT a=b", None),
        (b"TEXT a=-1", None),
        (b"TEXT a=nan", None),
        (b"JSON {", None),
        (b"JSON []", None),
        (b"", None),
        (b"TEXT " + b"a=1," * 5000, None),
    ],
)
def test_a_load_header_is_read_in_both_forms_or_not_at_all(header: bytes, expected: dict[str, float] | None) -> None:
    assert parse_orca(header) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"num_running": "many"}',
        b'{"lanes": 3}',
        b'{"adapters": ["a:b"]}',
        b'{"adapters": ["a\\n"]}',
        b'{"adapters": [' + b'"a",' * 300 + b'"a"]}',
    ],
)
def test_nonsense_is_no_report(data: bytes) -> None:
    assert parse_event(data) is None


@pytest.mark.parametrize(
    ("report", "is_computing"),
    [
        (LoadReport(num_running=1, silent_s=0.0), True),
        (LoadReport(num_running=64, silent_s=0.3), True),
        (LoadReport(num_running=1, silent_s=3.0), False),
        (LoadReport(num_running=0, silent_s=0.0), False),
        (LoadReport(num_running=1), False),
    ],
)
def test_only_steps_for_somebody_are_progress(report: LoadReport, is_computing: bool) -> None:
    assert report.is_computing is is_computing


def test_a_report_names_the_adapters() -> None:
    report = parse_event(b'{"adapters": ["law", "tax-2"]}')
    assert report is not None
    assert report.adapters == ("law", "tax-2")

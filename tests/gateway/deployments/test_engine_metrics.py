"""Gauges of other engines as a load report."""

from __future__ import annotations

import pytest

from gateway.deployments.engine_metrics import parse_metrics

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a}b"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_running_created{engine="0"} 9e9
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 70.0
"""


@pytest.mark.parametrize(
    ("page", "num_running", "num_waiting"),
    [
        (VLLM, 5, 7),
        (b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1", 2, 1),
        (b'sglang:num_running_reqs{tp_rank="0"} 4\r\nsglang:num_queue_reqs{tp_rank="0"} 0\r\n', 4, 0),
        (b"tgi_batch_current_size 6\ntgi_queue_size 8\n", 6, 8),
        (b"vllm:num_requests_running 1 1700000000\n", 1, 0),
    ],
)
def test_running_and_waiting_requests_are_read(page: bytes, num_running: int, num_waiting: int) -> None:
    report = parse_metrics(page)
    assert report is not None
    assert (report.num_running, report.num_waiting) == (num_running, num_waiting)


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>vllm:num_requests_running 3</html>",
        b"process_cpu_seconds_total 3\n",
        b"vllm:num_requests_running\n",
        b"vllm:num_requests_running{engine=\n",
        b"vllm:num_requests_running NaN\nvllm:num_requests_running -1\nvllm:num_requests_running 1e300\n",
        b"\xff\xfe\x00",
    ],
)
def test_a_page_without_a_known_gauge_is_no_report(page: bytes) -> None:
    assert parse_metrics(page) is None


def test_a_page_of_repeated_names_takes_linear_time() -> None:
    report = parse_metrics(b"x vllm:num_requests_running " * 100_000 + b"\nvllm:num_requests_running 2\n")
    assert report is not None
    assert report.num_running == 2

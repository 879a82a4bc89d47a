"""Load of other engines, from the gauges that they publish at `/metrics` in Prometheus' text format.

Names of the gauges: vLLM's, SGLang's, llama.cpp's server's and text-generation-inference's own documentation.
"""

from __future__ import annotations

from typing import Final

from gateway.deployments.load_report import MAX_FIGURE, LoadReport

_RUNNING: Final = frozenset(
    {
        b"vllm:num_requests_running",
        b"sglang:num_running_reqs",
        b"llamacpp:requests_processing",
        b"tgi_batch_current_size",
    }
)
_WAITING: Final = frozenset(
    {
        b"vllm:num_requests_waiting",
        b"sglang:num_queue_reqs",
        b"llamacpp:requests_deferred",
        b"tgi_queue_size",
    }
)


def parse_metrics(text: bytes) -> LoadReport | None:
    """Return the load in a page of metrics, or None when no known engine wrote it.

    Several series of a gauge, as one for each data-parallel rank, are added up. Lines that are malformed are ignored.
    """
    running = _sum_of(text, _RUNNING)
    if running is None:
        return None
    return LoadReport(num_running=running, num_waiting=_sum_of(text, _WAITING) or 0)


def _sum_of(text: bytes, names: frozenset[bytes]) -> int | None:
    """Return the sum over all series of the named gauges, or None without any."""
    found: list[float] = []
    for name in names:
        at = text.find(name)
        while at >= 0:
            end = text.find(b"\n", at)
            line = text[at : end if end >= 0 else len(text)]
            if at == 0 or text[at - 1] == ord("\n"):
                found += _value(line, len(name))
            at = text.find(name, at + len(line))
    return int(sum(found)) if found else None


def _value(line: bytes, name_length: int) -> list[float]:
    """Return the value of one line of that name; nothing for a longer name or no number."""
    rest = line[name_length:]
    if rest.startswith(b"{"):
        rest = rest[rest.rfind(b"}") + 1 :]
    elif not rest.startswith((b" ", b"\t")):
        return []
    fields = rest.split()
    try:
        value = float(fields[0])
    except (IndexError, ValueError):
        return []
    return [value] if 0 <= value <= MAX_FIGURE else []

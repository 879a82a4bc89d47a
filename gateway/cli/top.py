"""`penstock top` as text: lanes, deployments and what just ended, from the admin API's documents. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

_BOLD, _DIM, _RED, _END = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"
_LATEST = 8


def render_top(overview: Json, requests: Sequence[Json], *, width: int, height: int, is_colored: bool) -> str:
    """Render one screen: no line longer than `width`, no more lines than `height`."""
    lines = [line[:width] for line in _lines(overview, requests)][: max(1, height)]
    if not is_colored:
        return "\n".join(lines)
    return "\n".join(_colored(line) for line in lines)


def _lines(overview: Json, requests: Sequence[Json]) -> Iterator[str]:
    counted = overview["requests"]
    yield (
        f"penstock  {counted['per_s']:.1f} requests/s  {counted['answered']} answered  {counted['failed']} failed  "
        f"{counted['outcomes'].get('shed', 0)} shed   last {overview['until'] - overview['since']:.0f} s"
    )
    cache, tokens = overview["cache"], overview["tokens"]
    ratio = "-" if cache["hit_ratio"] is None else f"{cache['hit_ratio']:.0%}"
    yield f"cache hits {ratio} of {cache['lookups']}   tokens {tokens['prompt']} in, {tokens['completion']} out"
    yield ""
    yield f"{'LANE':<20}{'WAITING':>9}{'OF':>7}{'SHED':>7}{'WAIT p95':>12}{'NOW':>12}"
    for lane in overview["queues"]:
        yield (
            f"{lane['lane']:<20}{lane['waiting']:>9}{lane['max_queue']:>7}{lane['shed']:>7}"
            f"{_ms(lane['wait']['p95_ms']):>12}{_ms(lane['predicted_wait_ms']):>12}"
        )
    yield ""
    yield f"{'DEPLOYMENT':<20}{'STATE':>10}{'IN FLIGHT':>11}{'LIMIT':>7}{'REQUESTS':>10}{'TTFT p95':>12}"
    for found in overview["deployments"]:
        yield (
            f"{found['id']:<20}{found['state']:>10}{found['in_flight']:>11}{found['limit']:>7}"
            f"{found['requests']:>10}{_ms(found['ttft']['p95_ms']):>12}"
        )
    yield ""
    yield f"{'PROMPT':<20}{'COUNT':>9}{'TTFT p50':>12}{'p95':>12}{'p99':>12}"
    for row in overview["ttft"]:
        yield f"{row['bucket']:<20}{row['count']:>9}" + "".join(
            f"{_ms(row[f'p{share}_ms']):>12}" for share in (50, 95, 99)
        )
    yield ""
    yield f"{'REQUEST':<34}{'OUTCOME':>16}{'TENANT':>12}{'DEPLOYMENT':>14}{'TTFT':>12}{'TOTAL':>12}"
    for row in requests[:_LATEST]:
        yield (
            f"{row['id']:<34}{row['outcome']:>16}{row['tenant'][:11]:>12}{row['deployment'][:13]:>14}"
            f"{_ms(row['ttft_ms']):>12}{_ms(row['total_ms']):>12}"
        )


def _colored(line: str) -> str:
    if line[:4].isupper() and not line.startswith("req"):
        return f"{_DIM}{line}{_END}"
    if line.startswith("penstock"):
        return f"{_BOLD}{line}{_END}"
    is_bad = any(
        f" {word} " in f"{line} " for word in ("down", "ejected", "failed", "upstream_failed", "upstream_timeout")
    )
    return f"{_RED}{line}{_END}" if is_bad else line


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"

"""A request as lines for a terminal: one that finished, or one that would be sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_BAR = 30


def render_request(found: Mapping[str, Any]) -> str:
    """Render the response of `GET /admin/api/requests/{id}` as text."""
    return "\n".join(_request(found))


def render_preview(found: Mapping[str, Any]) -> str:
    """Render the response of `POST /admin/api/explain` as text."""
    return "\n".join(_preview(found))


def _request(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['id']}  {found['outcome']}, status {found['status']}" + (
        f" ({found['code']})" if found["code"] else ""
    )
    yield f"  tenant {found['tenant'] or '-'}, lane {found['lane'] or '-'}, model {found['model'] or '-'}"
    yield f"  route {found['route'] or '-'}, deployment {found['deployment'] or '-'}, policy {found['policy'] or '-'}"
    yield from _particulars(found)
    tokens = " + ".join(
        "?" if found[name] is None else str(found[name]) for name in ("prompt_tokens", "completion_tokens")
    )
    first, pace, total = (_ms(found[name]) for name in ("ttft_ms", "tpot_ms", "total_ms"))
    yield f"  tokens {tokens}, first after {first}, {pace} each, {total} in all"
    longest = max((stage["ms"] for stage in found["stages"]), default=0.0)
    for stage in found["stages"]:
        bar = "#" * round(_BAR * stage["ms"] / longest) if longest > 0 else ""
        yield f"  {stage['stage']:<20} {_ms(stage['ms']):>12}  {bar}"
    for number, decision in enumerate(found["decisions"], start=1):
        yield from _decision(number, decision)


def _particulars(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"  cache {found['cache']} ({found['cache_reason']})"
    near = found.get("neighbour")
    if near:
        yield "  nearest cached: " + ", ".join(f"{name} {value}" for name, value in near.items() if value is not None)
    if found["trimmed"]:
        yield "  trimmed " + ", ".join(f"{tokens} tokens by {name}" for name, tokens in found["trimmed"].items())
    if found["degraded"]:
        yield f"  degraded: {', '.join(found['degraded'])}"
    for name in ("shed_reason", "cancelled_while", "detail"):
        if found[name]:
            yield f"  {name.replace('_', ' ')}: {found[name]}"


def _decision(number: int, decision: Mapping[str, Any]) -> Iterator[str]:
    yield f"  attempt {number}: {decision['deployment'] or 'nobody'} by {decision['policy']} ({decision['reason']})"
    for name, total in sorted(decision["totals"].items(), key=lambda item: -item[1]):
        scores = ", ".join(f"{what} {score:g}" for what, score in decision["scores"].get(name, {}).items())
        yield f"    {name:<20} {total:g}" + (f"  ({scores})" if scores else "")
    for name, reason in decision["dropped"].items():
        yield f"    {name:<20} not considered: {reason}"


def _preview(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"model {found['model']} of tenant {found['tenant']} takes route {found['route']} (policy {found['policy']})"
    trim = found["trim"]
    budget = "no budget" if trim["budget_tokens"] is None else f"budget {trim['budget_tokens']}"
    yield f"  prompt about {trim['tokens_before']} tokens, {trim['tokens_after']} after trimming ({budget})"
    for cut in trim["cut"]:
        yield f"    {cut['strategy']:<20} cuts {cut['tokens']} tokens"
    yield f"  cache {found['cache']['mode']}, scope {found['cache']['scope']}"
    yield f"  candidates by {found['select']['policy']}:"
    for candidate in found["candidates"]:
        state = "ready" if candidate["is_ready"] else "not ready"
        if candidate.get("ready_in_s") is not None:
            state = f"starting, ready in about {candidate['ready_in_s']:.1f} s"
        yield f"    {candidate['id']:<20} {state}, {candidate['in_flight']} of {candidate['limit']} permits out"
    if found["select"]["fallback"]:
        yield f"  then {', '.join(found['select']['fallback'])}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f} ms"

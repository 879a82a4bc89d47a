"""A request as lines for a terminal: one that finished, or one that would be sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        yield "  nearest cached: " + ", ".join(
            f"{_worded(name)} {_rounded(value)}" for name, value in near.items() if value is not None
        )
    if found["trimmed"]:
        yield "  trimmed " + ", ".join(f"{tokens} tokens by {name}" for name, tokens in found["trimmed"].items())
    if found["degraded"]:
        yield f"  degraded: {', '.join(found['degraded'])}"
    if quote := found.get("quote"):
        yield f"  quote {quote['use']}" + "".join(_quoted(quote))
    for name in ("shed_reason", "cancelled_while", "detail"):
        if found[name]:
            yield f"  {name.replace('_', ' ')}: {found[name]}"


def _quoted(quote: Mapping[str, Any]) -> Iterator[str]:
    """Render the bounds of a quote, and whether they were met."""
    if quote["bound_ms"] is not None:
        yield f": first token within {_ms(quote['bound_ms'])} ({quote['coverage']:.0%}) {quote['result']}"
    if quote["price_result"] is not None:
        yield f", price at most {quote['price']:g} {quote['price_result']}"


def _decision(number: int, decision: Mapping[str, Any]) -> Iterator[str]:
    yield f"  attempt {number}: {decision['deployment'] or 'nobody'} by {decision['policy']} ({decision['reason']})"
    qualities, threshold = decision.get("qualities") or {}, decision.get("quality_threshold")
    against = "" if threshold is None else f" against {threshold:g}"
    for name, total in sorted(decision["totals"].items(), key=lambda item: -item[1]):
        scores = [f"{_worded(what)} {score:.2f}" for what, score in decision["scores"].get(name, {}).items()]
        quality = [f"quality {qualities[name]:.2f}{against}"] if name in qualities else []
        notes = ", ".join([*quality, *scores])
        yield f"    {name:<20} score {total:.2f}" + (f"  ({notes})" if notes else "")
    for name, reason in decision["dropped"].items():
        yield f"    {name:<20} not considered: {_reason(reason)}"
    if made := decision.get("exploration"):
        yield from _exploration(made)


def _exploration(made: Mapping[str, Any]) -> Iterator[str]:
    """Render the draw of a route that explores: its share, and the probability of each candidate."""
    shares = ", ".join(f"{name} {_percent(share)}" for name, share in made["propensities"].items())
    result = {"bound": "not drawn, bound to its deployment", "alone": "not drawn, no second candidate admissible"}
    how = result.get(made["result"]) or f"{made['result']}, share {_percent(made['ratio'])}"
    yield f"    exploration: {how}; probabilities {shares}"


def _preview(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"model {found['model']} of tenant {found['tenant']} takes route {found['route']} (policy {found['policy']})"
    trim = found["trim"]
    budget = "no budget" if trim["budget_tokens"] is None else f"budget {trim['budget_tokens']}"
    yield f"  prompt about {trim['tokens_before']} tokens, {trim['tokens_after']} after trimming ({budget})"
    for cut in trim["cut"]:
        yield f"    {cut['strategy']:<20} cuts {cut['tokens']} tokens"
    yield f"  cache {found['cache']['mode']}, scope {found['cache']['scope']}"
    yield from _selection(found["select"], found["candidates"])


def _selection(select: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Render who would be chosen and why, then each candidate with what is predicted of it."""
    yield f"  {select['chosen'] or 'nobody'} would answer, by {select['policy']}: {_why(select, candidates)}"
    for candidate in candidates:
        state = "ready" if candidate["is_ready"] else "not ready"
        if candidate.get("is_draining"):
            state = "drained by an operator"
        if candidate.get("ready_in_s") is not None:
            state = f"starting, ready in about {candidate['ready_in_s']:.1f} s"
        quality = "" if candidate["quality"] is None else f", predicted quality {candidate['quality']:.2f}"
        dropped = "" if candidate["dropped"] is None else f", not considered: {_reason(candidate['dropped'])}"
        permits = f"{candidate['in_flight']} of {candidate['limit']} permits out"
        yield f"    {candidate['id']:<20} {state}, {permits}{quality}{dropped}"
    if select.get("explore"):
        yield f"  {_percent(select['explore']['ratio'])} of the requests go to a random admissible candidate"
    if select["fallback"]:
        yield f"  then {', '.join(select['fallback'])}"


def _why(select: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason of a choice, with the thresholds that the predicted quality was compared with."""
    predicted = next((candidate for candidate in candidates if candidate["quality"] is not None), None)
    if predicted is None:
        return str(select["reason"])
    if not predicted["is_known_prompt"]:
        return "the prompt is unlike those that the prediction was trained on"
    name, quality, least = predicted["id"], predicted["quality"], select["min_quality"]
    if select["skip_below"] is None:
        relation = "reaches" if quality >= least else "is below"
        return f"predicted quality {quality:.2f} of {name} {relation} min_quality {least:g}"
    if quality < select["skip_below"]:
        return f"predicted quality {quality:.2f} of {name} is below skip_below {select['skip_below']:g}"
    return (
        f"predicted quality {quality:.2f} of {name} reaches skip_below {select['skip_below']:g}; "
        f"it goes on if its first tokens predict min_quality {least:g}"
    )


def _ms(value: float | None) -> str:
    """Return a time in milliseconds, with digits after the point only where they matter to a reader."""
    if value is None:
        return "-"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} ms"


def _percent(share: float) -> str:
    return f"{share:.4g}" if share < 0.001 else f"{share:.1%}"


def _rounded(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _reason(dropped: str) -> str:
    return "drained by an operator" if dropped == "drained" else _worded(dropped)


def _worded(name: str) -> str:
    return name.replace("_", " ")

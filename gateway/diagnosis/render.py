"""A diagnosis as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_BAR = 24


def render_diagnosis(diagnosis: Mapping[str, Any]) -> str:
    """Return the text for a diagnosis, given as the decoded JSON of the admin API."""
    return "\n".join(_lines(diagnosis))


def _lines(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    yield f"{diagnosis['num_requests']:.0f} requests in {diagnosis['seconds']:.1f} s"
    yield from _stages(diagnosis["stages"])
    findings = diagnosis["findings"]
    if not findings:
        yield f"\n{diagnosis['conclusion']}"
    for finding in findings:
        yield from _finding(finding)
    for title, key in (("prompts by length", "prompts"), ("deployments", "deployments")):
        yield from _compared(title, diagnosis[key])
    tenants = [f"{tenant['key']} {tenant['token_ratio']:.0%}" for tenant in diagnosis["tenants"][:5]]
    if tenants:
        yield f"\ntokens by tenant: {', '.join(tenants)}"
    for note in diagnosis["notes"]:
        yield f"\nnote: {note}"


def _stages(stages: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield f"\n{'before the first token':<24} {'now':>10} {'before':>10}"
    longest = max((stage["now_s"] for stage in stages.values()), default=0.0)
    for name, stage in stages.items():
        bar = "#" * round(_BAR * stage["now_s"] / longest) if longest > 0 else ""
        yield f"  {name:<22} {_ms(stage['now_s']):>10} {_ms(stage['baseline_s']):>10}  {bar}"


def _finding(finding: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n{finding['stage'].upper()}: {finding['summary']}"
    for evidence in finding["evidence"]:
        expected = evidence["expected"]
        beside = "" if expected is None else f"   ({evidence['expected_is']} {_value(expected, evidence['measure'])})"
        yield f"  {evidence['name']:<38} {_value(evidence['now'], evidence['measure']):>10}{beside}"
    yield f"  -> {finding['lever']}"
    if finding["policy_path"]:
        yield f"     in the policy: {finding['policy_path']}"


def _compared(title: str, num_seqs: list[Mapping[str, Any]]) -> Iterator[str]:
    if not num_seqs:
        return
    yield f"\n{title:<24} {'requests':>10} {'TTFT':>10} {'before':>10} {'TPOT':>10} {'before':>10}"
    for row in num_seqs:
        times = [row[name] for name in ("ttft_s", "baseline_ttft_s", "tpot_s", "baseline_tpot_s")]
        yield f"  {row['key']:<22} {row['num_requests']:>10.0f} " + " ".join(f"{_ms(time):>10}" for time in times)


def _value(number: float, measure: str) -> str:
    if measure == "s":
        return _ms(number)
    return f"{number:.0%}" if measure == "ratio" else f"{number:.0f}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"

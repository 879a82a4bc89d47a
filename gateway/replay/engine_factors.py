"""Factors inside a deployment: what it stated then and states now, next to whether its text is another one."""

from __future__ import annotations

from typing import Final

from gateway.replay.base import ReplayBase
from gateway.replay.report import Factor, FactorReport, FactorVerdict
from gateway.telemetry.records.model_state import ModelState

_PROOF: Final = "the recorded body at the recorded deployment, past cache, trimming and routing, gives another text"
_TOGETHER: Final = f"{_PROOF}; it changed together with another one of these, and no deployment has one change alone"
_UNSTATED: Final = "the deployment does not state it"
_DIGEST_CHARS: Final = 16
"""Characters of the model's digest; those behind them are the adapter's."""
_STATED: Final[tuple[tuple[Factor, str], ...]] = (
    ("quantization", "quantization"),
    ("model", "model"),
    ("prompt", "template"),
)
"""Factors, and the members of a state that tell them."""


def engine_factors(base: ReplayBase) -> list[FactorReport]:
    """Return quantization, model, engine and, where the chat template differs, prompt."""
    if base.source is None or base.answer is None:
        unknown = (base.source is None and "the cache answered") or base.why_not
        return [_report(factor, "", "", "unknown", unknown) for factor in ("quantization", "model")]
    then, now = base.source.state, base.answer.state
    if not then.model or not now.model:
        return _foreign_factors(base, then, now)
    changed = [factor for factor, member in _STATED if getattr(then, member) != getattr(now, member)]
    note = "" if base.has_same_text else _PROOF if len(changed) == 1 else _TOGETHER
    found = []
    for factor, member in _STATED:
        one, other = getattr(then, member), getattr(now, member)
        if factor == "prompt":
            if one != other:
                template = f"chat template {one}", f"chat template {other}"
                found.append(_report(factor, *template, _verdict(base), note, base))
        elif one == other:
            found.append(_report(factor, _shown(factor, one), _shown(factor, other), "same"))
        else:
            found.append(_report(factor, _shown(factor, one), _shown(factor, other), _verdict(base), note, base))
    if not changed and then.engine != now.engine:
        what = f"the same model, with other libraries or on another machine; {_PROOF}" if not base.has_same_text else ""
        found.append(_report("engine", then.engine, now.engine, _verdict(base), what, base))
    elif not changed and not base.has_same_text:
        found.append(_report("engine", then.engine, now.engine, "unknown", f"{_PROOF}, and nothing that it states"))
    return found


def _foreign_factors(base: ReplayBase, then: ModelState, now: ModelState) -> list[FactorReport]:
    """Return the factors of a server that states at most a fingerprint of its own."""
    quantization = _report("quantization", "", "", "unknown", _UNSTATED)
    one, other = then.fingerprint or then.model, now.fingerprint or now.model
    if not one or not other:
        if base.has_same_text:
            return [quantization, _report("model", one, other, "unknown", _UNSTATED)]
        return [quantization, _report("model", one, other, "unknown", f"{_PROOF}; {_UNSTATED}")]
    if one == other:
        note = "" if base.has_same_text else f"{_PROOF}, with the same system_fingerprint"
        return [quantization, _report("model", one, other, "same" if base.has_same_text else "unknown", note)]
    note = "" if base.has_same_text else f"system_fingerprint, model and settings in one; {_PROOF}"
    return [quantization, _report("model", one, other, _verdict(base), note, base)]


def _shown(factor: Factor, stated: str) -> str:
    """Return what a deployment stated, with an adapter's digest apart."""
    adapter = stated[_DIGEST_CHARS:] if factor == "model" else ""
    return f"{stated[:_DIGEST_CHARS]} with adapter {adapter}" if adapter else stated


def _verdict(base: ReplayBase) -> FactorVerdict:
    return "no_effect" if base.has_same_text else "changes"


def _report(
    factor: Factor, then: str, now: str, verdict: FactorVerdict, note: str = "", base: ReplayBase | None = None
) -> FactorReport:
    is_changing = base is not None and base.answer is not None and verdict == "changes"
    difference = base.then.difference(base.answer.text) if is_changing and base and base.answer else None
    return FactorReport(factor=factor, then=then, now=now, verdict=verdict, note=note, difference=difference)

"""A plan's replay of recorded requests as lines for a terminal, what would be refused first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.cli.plans.evaluation import evaluation_lines

_FIGURES: Final = (
    ("hit_ratio", ""),
    ("shed_ratio", ""),
    ("cost_per_1k", ""),
    ("ttft_p50_ms", " ms"),
    ("ttft_p95_ms", " ms"),
)
_MAX_MOVES: Final = 10
_REFUSED: Final = "refused"

Json = Mapping[str, Any]


def replay_lines(replay: Json) -> Iterator[str]:
    """Yield warnings for refused requests, the figures of both policies, and the requests that change their way."""
    old, new, num = replay["old"], replay["new"], replay["num_requests"]
    for code, count in sorted(new["errors"].items(), key=lambda item: -item[1]):
        before = old["errors"].get(code, 0)
        yield f"warning: {count} of {num} recorded requests would be refused: {code} (in force: {before})"
    yield f"{num} recorded requests, replayed in {replay['took_s']:.1f} s; shares are of all of them:"
    refused = [sum(side["errors"].values()) / max(num, 1) for side in (old, new)]
    if any(refused):
        yield f"  {_REFUSED:<12} {refused[0]:.1%} → {refused[1]:.1%}"
    for name, unit in _FIGURES:
        if old[name] is not None and new[name] is not None:
            yield f"  {name:<12} {old[name]:.4g}{unit} → {new[name]:.4g}{unit}"
    for kind in ("routes", "deployments"):
        for id in sorted({*old[kind], *new[kind]}):
            yield f"  {kind[:-1]} {id}: {old[kind].get(id, 0.0):.1%} → {new[kind].get(id, 0.0):.1%}"
    yield from _moves("route", [(one["route_from"], one["route_to"], one["count"]) for one in replay["moved"]])
    yield from _moves("deployment", [(one["from"], one["to"], one["count"]) for one in replay["deployments"]])
    yield from evaluation_lines(replay["estimates"])
    for note in replay["notes"]:
        yield f"  note: {note}"


def _moves(kind: str, moves: Sequence[tuple[str, str, int]]) -> Iterator[str]:
    for start, end, count in moves[:_MAX_MOVES]:
        yield f"  moved: {count} from {kind} {start or _REFUSED} to {end or _REFUSED}"
    if len(moves) > _MAX_MOVES:
        yield f"  and {len(moves) - _MAX_MOVES} more moves between {kind}s; --json lists them"

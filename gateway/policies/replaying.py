"""Replays of recorded requests under two policies, in a process of their own.

A replay takes up to minutes of arithmetic, which would delay requests. `python -m gateway.policies.replaying` reads a
ReplayRequest as JSON from stdin and writes the result as JSON to stdout.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.cli.supervisor.launch import module_argv, python_env
from gateway.telemetry.records.tape import read_tape
from routing_policies.loading import load_policy
from routing_policies.off_policy.policy_evaluation import evaluate_beside
from routing_policies.policy.document import Policy
from routing_policies.replay import BY_QUALITY, Measured, Replay, moves, summarize, unchanged_routes

MAX_REQUESTS: Final = 100_000
TIMEOUT_S: Final = 90.0
_MAX_MOVES: Final = 50


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The two documents to compare, and the recording."""

    old: str
    new: str
    variables: dict[str, str]
    folder: str


class ReplayFailed(Exception):
    """Error for a replay without a result; the message gives the reason."""


async def replay(question: ReplayRequest) -> dict[str, Any]:
    """Run the replay in a child process and return its result; raises ReplayFailed."""
    process = await asyncio.create_subprocess_exec(
        *module_argv(sys.executable, "gateway.policies.replaying"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **python_env()},
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await process.communicate(msgspec.json.encode(question))
    except TimeoutError:
        raise ReplayFailed(f"it took longer than {TIMEOUT_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ReplayFailed(err.decode(errors="replace").strip().rpartition("\n")[2][:500] or "it broke off")
    answer: dict[str, Any] = msgspec.json.decode(out)
    return answer


def compare_policies(old: Policy, new: Policy, folder: Path) -> dict[str, Any]:
    """Return the results of every recorded request under both policies."""
    requests, verdicts = read_tape(folder, MAX_REQUESTS)
    measured, same = Measured(requests), unchanged_routes(old, new)
    everywhere = same | {route.id for route in old.routes}
    before, after = Replay(old, measured, trusts=everywhere), Replay(new, measured, trusts=same)
    was = [before.send(request) for request in requests]
    would_be = [after.send(request) for request in requests]
    return {
        "num_requests": len(requests),
        "from": requests[0].at if requests else None,
        "to": requests[-1].at if requests else None,
        "old": summarize(was),
        "new": summarize(would_be),
        "moved": [
            {"route_from": pair[0], "route_to": pair[1], "count": count}
            for pair, count in list(moves(was, would_be, "route").items())[:_MAX_MOVES]
        ],
        "deployments": [
            {"from": pair[0], "to": pair[1], "count": count}
            for pair, count in list(moves(was, would_be, "deployment").items())[:_MAX_MOVES]
        ],
        "estimates": evaluate_beside(new, old, requests, verdicts),
        "notes": _notes(
            new,
            has_text=any(request.text is not None for request in requests),
            has_probabilities=all(request.probabilities for request in requests),
        ),
    }


def _notes(new: Policy, *, has_text: bool, has_probabilities: bool) -> list[str]:
    """Return the limits of the replay model that this policy is subject to."""
    notes = []
    if any(route.cache.mode == "exact_then_semantic" for route in new.routes):
        notes.append("semantic hits are those that were recorded as such: digests cannot match other wordings")
    if any(route.select.policy == "cascade" for route in new.routes):
        notes.append("who answers in a cascade stays as recorded: its hand-overs depend on first tokens")
    if not has_probabilities and any(route.select.policy in BY_QUALITY for route in new.routes):
        notes.append("routes that choose by quality keep their recorded choice where it is still a candidate")
    if not has_text and any("request.text" in (route.match.when or "") for route in new.routes):
        notes.append('a condition reads request.text, which was not recorded (telemetry.recorder.mode = "text" does)')
    return notes


def main() -> int:
    """Run the replay from stdin to stdout."""
    started_at = time.perf_counter()
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=ReplayRequest)
    sides = [load_policy(text, source="policy", variables=question.variables) for text in (question.old, question.new)]
    found = compare_policies(sides[0], sides[1], Path(question.folder))
    sys.stdout.buffer.write(msgspec.json.encode({**found, "took_s": time.perf_counter() - started_at}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A request explained in a terminal."""

from __future__ import annotations

from typing import Any

from gateway.cli.explain import render_request


def test_what_an_upstream_states_reaches_the_terminal_without_control_characters() -> None:
    shown = render_request({**_SHED, "detail": "\\x1b[2J gone"})
    assert "\x1b" not in shown
    assert "shed reason: queue_full" in shown


_SHED: dict[str, Any] = {
    **dict.fromkeys(
        ("code", "neighbour", "cancelled_while", "ttft_ms", "tpot_ms", "prompt_tokens", "completion_tokens")
    ),
    "id": "r1",
    "outcome": "shed",
    "status": 503,
    "tenant": "",
    "lane": "batch",
    "model": "auto",
    "route": "",
    "deployment": "",
    "policy": "p",
    "cache": "bypass",
    "cache_reason": "policy",
    "trimmed": {},
    "degraded": [],
    "shed_reason": "queue_full",
    "total_ms": 1.0,
    "stages": [],
    "decisions": [],
}

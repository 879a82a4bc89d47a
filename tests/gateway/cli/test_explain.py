"""A request explained in a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.cli.explain import render_preview, render_request


def test_what_an_upstream_states_reaches_the_terminal_without_control_characters() -> None:
    shown = render_request({**_SHED, "detail": "\\x1b[2J gone"})
    assert "\x1b" not in shown
    assert "shed reason: queue_full" in shown


def test_a_decision_is_shown_with_qualities_thresholds_and_rounded_numbers() -> None:
    decision = {
        "deployment": "large",
        "policy": "cascade",
        "reason": "chosen from 2",
        "totals": {"small": 0.058823529, "large": 0.941176471},
        "scores": {"small": {"worth_trying": 0.0}, "large": {"worth_trying": 1.0}},
        "dropped": {"spare": "not_ready"},
        "qualities": {"small": 0.12345},
        "quality_threshold": 0.3,
    }
    near = {"entry_id": "e1", "similarity": 0.912345, "threshold": 0.954321, "runner_up": None}
    shown = render_request({**_SHED, "detail": None, "total_ms": 1234.5678, "decisions": [decision], "neighbour": near})
    assert "    large                score 0.94  (worth trying 1.00)" in shown
    assert "    small                score 0.06  (quality 0.12 against 0.3, worth trying 0.00)" in shown
    assert "not considered: not ready" in shown
    assert "similarity 0.91, threshold 0.95" in shown
    assert "1,235 ms in all" in shown


@pytest.mark.parametrize(
    ("quality", "is_known", "skip_below", "why"),
    [
        (0.12, True, 0.3, "predicted quality 0.12 of small is below skip_below 0.3"),
        (0.81, True, 0.3, "reaches skip_below 0.3; it goes on if its first tokens predict min_quality 0.9"),
        (0.95, True, None, "predicted quality 0.95 of small reaches min_quality 0.9"),
        (0.5, True, None, "predicted quality 0.50 of small is below min_quality 0.9"),
        (0.0, False, 0.3, "the prompt is unlike those that the prediction was trained on"),
        (None, None, None, "chosen from 2"),
    ],
)
def test_a_preview_names_who_would_answer_and_the_thresholds(
    quality: float | None, is_known: bool | None, skip_below: float | None, why: str
) -> None:
    ready = {"is_ready": True, "in_flight": 1, "limit": 64, "is_known_prompt": is_known, "dropped": None}
    shown = render_preview(
        {
            "model": "auto",
            "tenant": "local",
            "route": "auto",
            "policy": "p",
            "trim": {"budget_tokens": None, "tokens_before": 9, "tokens_after": 9, "cut": []},
            "cache": {"mode": "off", "scope": "tenant"},
            "select": {
                "policy": "cascade",
                "fallback": [],
                "chosen": "large",
                "cause": "first",
                "reason": "chosen from 2",
                "min_quality": 0.9,
                "skip_below": skip_below,
            },
            "candidates": [
                {**ready, "id": "small", "quality": quality},
                {**ready, "id": "large", "quality": None, "dropped": "full"},
            ],
        }
    )
    assert "large would answer, by cascade: " in shown
    assert why in shown
    assert "not considered: full" in shown


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

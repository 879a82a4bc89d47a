"""How long a silent deployment is waited for: by what the longest form of the answer may take."""

from __future__ import annotations

import pytest

from gateway.deployments.flight import STRANGER_MOST_S, STRANGER_S, plain_bound_s
from gateway.deployments.health.ejection import EjectionRules
from gateway.deployments.live import LiveDeployment
from gateway.deployments.load_report import LoadReport
from routing_policies.estimation.estimators import Price
from tests.gateway.routing.snapshots import snapshot_of

TEXT = 'schema_version: 1\ndeployments: [{id: a, url: "unix:/tmp/none/a.sock", model: m}]\n'


def a_deployment(*, has_answered: bool = True) -> LiveDeployment:
    live = snapshot_of(TEXT, EjectionRules()).deployments["a"]
    if has_answered:
        live.health.note_progress(0.0)
    return live


def bound_s(live: LiveDeployment, max_tokens: int | None, *, usual_tokens: int = 20, prompt_tokens: int = 10) -> float:
    flight = live.forecast.note_sent(1.0, Price(prompt_tokens, prompt_tokens, usual_tokens), is_stream=False)
    return plain_bound_s(live, 1.0, flight, max_tokens)


@pytest.mark.parametrize("max_tokens", [1, 16, 400, 4000, 100_000])
def test_a_plain_answer_may_take_twice_what_all_that_it_is_allowed_would(max_tokens: int) -> None:
    live = a_deployment()
    token_s = live.forecast.tpot_s(1.0)

    assert bound_s(live, max_tokens) == pytest.approx(2 * max_tokens * token_s, rel=0.1, abs=0.5)


def test_a_request_without_a_limit_is_allowed_for_twice_the_usual_length() -> None:
    live = a_deployment()
    token_s = live.forecast.tpot_s(1.0)

    assert bound_s(live, None, usual_tokens=20) == pytest.approx(2 * 256 * token_s, rel=0.1)
    assert bound_s(live, None, usual_tokens=5000) == pytest.approx(2 * 10_000 * token_s, rel=0.1)


def test_what_answers_took_lately_is_allowed_for() -> None:
    live = a_deployment()
    live.whole_answers.observe(0.5, 40.0)

    assert bound_s(live, 8) == pytest.approx(80.0)


def test_a_longer_prompt_is_given_more_time() -> None:
    assert bound_s(a_deployment(), 8, prompt_tokens=100_000) > 2 * bound_s(a_deployment(), 8)


@pytest.mark.parametrize(
    ("max_tokens", "least_s", "most_s"),
    [(1, STRANGER_S, STRANGER_S), (None, STRANGER_S, STRANGER_MOST_S), (4000, 100.0, 1000.0)],
)
def test_a_stranger_gets_some_seconds_or_what_the_request_allows(
    max_tokens: int | None, least_s: float, most_s: float
) -> None:
    assert least_s <= bound_s(a_deployment(has_answered=False), max_tokens, usual_tokens=256) <= most_s


@pytest.mark.parametrize("max_tokens", [None, 8, 4000])
def test_an_engine_whose_steps_are_heard_of_is_waited_for_like_a_stream(max_tokens: int | None) -> None:
    live = a_deployment()
    live.forecast.note_report(1.0, LoadReport(num_running=1, silent_s=0.01))

    assert bound_s(live, max_tokens) < 1.0

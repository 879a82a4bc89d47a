"""Requests at one deployment, by lane and phase: what waits, what decodes, and who is next."""

from __future__ import annotations

import pytest

from gateway.deployments.flight import InFlightRequest
from gateway.deployments.forecast import DeploymentForecast
from gateway.deployments.outstanding import OutstandingRequests, PromptQueue
from routing_policies.estimation.estimators import Price


def flight(sent_at: float, tokens: int = 100, *, lane: str = "interactive", is_stream: bool = True) -> InFlightRequest:
    return InFlightRequest(
        owner=DeploymentForecast(),
        sent_at=sent_at,
        price=Price(tokens, tokens, 10),
        forecast_ttft_s=1.0,
        sample=None,
        seqs_before=0,
        lane=lane,
        is_stream=is_stream,
    )


def test_a_request_waits_then_decodes_then_is_gone() -> None:
    tally, one = OutstandingRequests(), flight(0.0)
    tally.send(one, 0.0)
    assert (tally.num_pending, tally.num_seqs) == (1, 0)
    tally.begin_answer(one, 1.0)
    assert (tally.num_pending, tally.num_seqs) == (0, 1)
    tally.end(one, 2.0)
    assert (tally.num_pending, tally.num_seqs, tally.most_seqs) == (0, 0, 1)
    tally.check_integrity()


def test_lanes_are_looked_at_apart() -> None:
    tally = OutstandingRequests()
    tally.send(flight(0.0, 100), 0.0)
    tally.send(flight(0.0, 700, lane="batch"), 0.0)
    own, others, late, latest = tally.look(2.0, "interactive")
    assert (own, others) == (100.0, 700.0)
    assert late == latest == pytest.approx(2.0), "twice its forecast"
    assert tally.look(0.5, "nobody") == (0.0, 800.0, 0.0, 0.5)


def test_a_plain_answer_is_taken_to_have_begun_at_its_forecast() -> None:
    tally, plain = OutstandingRequests(), flight(0.0, is_stream=False)
    tally.send(plain, 0.0)
    tally.look(0.9, "interactive")
    assert tally.num_pending == 1
    tally.look(1.0, "interactive")
    assert (tally.num_pending, tally.num_seqs) == (0, 1)
    tally.end(plain, 3.0)
    assert tally.num_seqs == 0
    tally.check_integrity()


def test_a_request_that_ends_before_its_first_token_leaves_the_queue() -> None:
    tally, plain = OutstandingRequests(), flight(0.0, is_stream=False)
    tally.send(plain, 0.0)
    tally.end(plain, 0.5)
    assert tally.look(9.0, "interactive") == (0.0, 0.0, 0.0, 0.0)
    tally.check_integrity()


def test_requests_that_are_not_tracked_count_as_rows() -> None:
    tally = OutstandingRequests()
    for _ in range(3):
        tally.send_unseen()
    tally.end_unseen()
    assert (tally.num_seqs, tally.most_seqs, tally.num_pending) == (2, 3, 0)


def test_the_next_is_the_oldest_that_nobody_overtook() -> None:
    queue, slow, fast, late = PromptQueue(), flight(0.0), flight(1.0), flight(2.0)
    for one in (slow, fast, late):
        queue.add(one, one.sent_at)
    assert queue.next_up() is slow
    queue.remove(fast, 3.0)
    queue.note_begun(fast)
    assert queue.next_up() is late, "the first one waits for a reason of its own"
    queue.remove(late, 4.0)
    queue.note_begun(late)
    assert queue.next_up() is None


def test_tokens_that_were_computed_meanwhile_are_taken_off_by_the_usual_speed() -> None:
    queue, first, second = PromptQueue(), flight(0.0, 1000), flight(0.0, 1000)
    queue.add(first, 0.0)
    queue.add(second, 0.0)
    assert queue.look(1.0)[0] == 2000.0, "no speed is known yet"
    queue.remove(first, 1.0)
    left, _ = queue.look(1.5)
    assert left == pytest.approx(500.0)
    assert queue.look(100.0)[0] == pytest.approx(100.0), "never quite nothing"

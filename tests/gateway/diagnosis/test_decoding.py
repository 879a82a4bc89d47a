"""Slow output tokens and long answers: one cause each, with the line of the policy that changes it."""

from __future__ import annotations

import pytest

from gateway.diagnosis.decoding import explain_decode, find_longer_answers
from gateway.diagnosis.finding import Finding
from gateway.diagnosis.policy_lines import place_of
from tests.gateway.diagnosis.snapshots import NUM, Scene
from tests.gateway.diagnosis.test_diagnose import POLICY


def slow(**engine: float) -> Scene:
    scene = Scene(**engine)
    scene.tpot = 0.05
    return scene


def explained(scene: Scene) -> Finding:
    window = scene.window()
    return explain_decode(window, place_of(window, POLICY))


def test_tokens_that_leave_the_engine_in_time_are_late_on_the_path() -> None:
    finding = explained(slow())
    assert (finding.stage, finding.cause) == ("network", "path")
    assert [evidence.now for evidence in finding.evidence] == [pytest.approx(0.05), pytest.approx(0.01)]


def test_an_engine_that_is_slow_without_a_reason_is_just_slow() -> None:
    assert explained(slow(tpot=0.05)).cause == "slow_decode"


@pytest.mark.parametrize(("preemptions", "cause"), [(0.05 * NUM, "preemption"), (0.05 * NUM - 1, "slow_decode")])
def test_preemptions_count_by_answer(preemptions: float, cause: str) -> None:
    scene = slow(tpot=0.05)
    scene.counted["engine_preemptions_total"] = preemptions
    assert explained(scene).cause == cause


@pytest.mark.parametrize(("accepted", "cause"), [(100.0, "speculation"), (900.0, "slow_decode")])
def test_drafts_are_blamed_only_while_most_of_them_are_wrong(accepted: float, cause: str) -> None:
    scene = slow(tpot=0.05)
    scene.counted |= {
        "engine_generation_tokens_total": 1000.0,
        "engine_speculation_drafted_tokens_total": 2000.0,
        "engine_speculation_accepted_tokens_total": accepted,
    }
    finding = explained(scene)
    assert finding.cause == cause
    assert finding.policy_path == ("routes.all.select.candidates" if cause == "slow_decode" else None)


@pytest.mark.parametrize(("num_seqs", "cause"), [(6.0, "num_seqs"), (5.0, "slow_decode")])
def test_many_sequences_make_each_step_longer(num_seqs: float, cause: str) -> None:
    scene = slow(tpot=0.05)
    scene.state = {"num_seqs": num_seqs, "max_num_seqs": 8}
    assert explained(scene).cause == cause


def test_longer_answers_are_reported_from_slower_ones() -> None:
    scene = Scene()
    scene.answer_tokens, scene.total = 90.0, 0.9
    window = scene.window()
    finding = find_longer_answers(window, place_of(window, POLICY))
    assert finding is not None
    assert (finding.cause, finding.policy_path) == ("output_length", "lanes.interactive.degraded_max_tokens")
    assert [evidence.now for evidence in finding.evidence] == [pytest.approx(90.0), pytest.approx(0.9)]

    scene.total = 0.33  # three times the tokens in the same time: nobody waits longer
    window = scene.window()
    assert find_longer_answers(window, place_of(window, POLICY)) is None

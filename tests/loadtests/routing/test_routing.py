"""What a routing bench measures by: the curve, and the texts that try to fool a router."""

from __future__ import annotations

from importlib.resources import files

import msgspec
import numpy as np
import pytest

from loadtests.routing.preambles import familiar_preambles, preambles
from loadtests.routing.routing import MIN_QUALITY
from loadtests.routing.routing_cascade import FIRST_TOKENS, Case, Ratios, chosen, played
from loadtests.routing.routing_curve import Scores, mean_and_half_width
from routing_policies.loading import load_policy
from routing_policies.policy.selection import Cascade
from routing_policies.quality.confidence import TokenOdds
from routing_policies.quality.model import Prediction

SMALL = np.array([1.0, 0.0, 1.0, 0.0])
LARGE = np.array([1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("name", "need", "expected"),
    [
        ("neutral: no order is a random one", [0.0, 0.0, 0.0, 0.0], 0.5),
        ("those that need it first", [0.0, 1.0, 0.0, 1.0], 0.75),
        ("those that need it last", [1.0, 0.0, 1.0, 0.0], 0.25),
        ("one early, one late", [3.0, 4.0, 2.0, 1.0], 0.5),
    ],
)
def test_the_area_is_larger_the_sooner_the_gap_is_closed(name: str, need: list[float], expected: float) -> None:
    assert Scores(SMALL, LARGE).apgr(np.array(need)) == pytest.approx(expected), name


def test_ratios_are_of_the_large_models_own_accuracy() -> None:
    scores = Scores(SMALL, LARGE)
    need = np.array([0.0, 1.0, 0.0, 1.0])
    assert [scores.ratio_at(need, share) for share in (0.0, 0.25, 0.5, 1.0)] == [0.5, 0.75, 1.0, 1.0]
    assert scores.ratio_of(np.array([False, True, False, False])) == 0.75
    assert scores.take(np.array([0, 1])).gap == 0.5


def test_a_random_order_stays_within_its_interval() -> None:
    rng = np.random.default_rng(3)
    scores = Scores((rng.random(2000) < 0.5).astype(float), (rng.random(2000) < 0.8).astype(float))
    areas = np.array([scores.apgr(rng.random(2000)) for _ in range(200)])
    assert 0.9 < (np.abs(areas - 0.5) < scores.interval()).mean() < 0.99


def test_there_are_fifty_preambles_and_each_ends_where_a_prompt_may_begin() -> None:
    found = preambles()
    assert len(set(found)) == 50
    assert all(text[-1].isspace() for text in found)
    assert found == preambles()


def test_fifty_more_preambles_begin_as_prompts_do_that_were_learned_from() -> None:
    prompts = [f"tell me number {number} of all the towns" for number in range(30)]
    found = familiar_preambles(["what is", "tell me"], prompts)
    assert len(found) == 50
    assert all(text.lower().startswith(("what is", "tell me")) and text[-1].isspace() for text in found)


def test_a_mean_comes_with_the_interval_of_few_values() -> None:
    assert list(mean_and_half_width([0.4, 0.6])) == pytest.approx([0.5, 12.71 * 0.1])
    assert mean_and_half_width([0.4]) == (0.4, 0.0)
    mean, width = mean_and_half_width([0.5] * 20)
    assert (mean, width) == (0.5, 0.0)


def case(logprob: float, logit: float = 3.0) -> Case:
    return Case((TokenOdds(logprob, 1.0),) * 3, 3, Prediction(logit, is_known=True))


def test_a_cascade_passes_on_what_is_sure_and_counts_the_tokens_of_what_is_not() -> None:
    found = played([case(-0.001), case(-3.0), case(-0.001, logit=-3.0)], (), Ratios())
    assert found.is_large.tolist() == [False, True, True]
    assert found.waited.tolist() == [2, 2, 0]  # without coefficients all first tokens count
    assert found.num_left == 3  # of the one that was unlikely; the last was never called


def test_that_an_answer_has_ended_is_reported_after_its_last_token() -> None:
    middling = case(-0.08)  # neither sure nor hopeless while it goes on, and good enough as a whole
    found = played([middling, msgspec.structs.replace(middling, num_tokens=40)], (), Ratios(min_quality=0.9))
    assert found.is_large.tolist() == [False, True]
    assert found.waited.tolist() == [2, 2]


def test_the_cascade_is_evaluated_as_it_is_shipped() -> None:
    text = (files("routing_policies") / "presets/small-first.yaml").read_text()
    policy = load_policy(text, source="small-first.yaml", variables={"runtime_dir": "/run"})
    selects = {route.id: route.select for route in policy.routes}
    assert selects["auto"].cascade == Cascade(first_tokens=FIRST_TOKENS, skip_below=Ratios().skip_below)
    assert selects["auto"].min_quality == Ratios().min_quality
    assert selects["economy"].min_quality == MIN_QUALITY


def test_ratios_are_chosen_for_the_fewest_large_calls_that_keep_the_accuracy() -> None:
    sure, unsure = [case(-0.065)] * 50, [case(-0.3)] * 50
    right = np.array([1.0] * 50 + [0.0] * 50)
    found = chosen([*sure, *unsure], (), Scores(right, np.ones(100)))
    assert found.min_quality < 0.94  # so that the sure ones are passed on, and only those
    assert played([*sure, *unsure], (), found).is_large.tolist() == [False] * 50 + [True] * 50

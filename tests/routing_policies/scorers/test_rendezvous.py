"""The scorer that keeps a conversation at one candidate."""

from __future__ import annotations

from collections import Counter

from routing_policies.scorers.rendezvous import Rendezvous
from routing_policies.share import stable_key
from routing_policies.views import Attempt, DeploymentView
from tests.routing_policies.views import live

KEYS = [stable_key("tenant", str(number)) for number in range(3000)]


def home(views: list[DeploymentView], key: int) -> str:
    scores = Rendezvous().scores(views, Attempt(key=key))
    return views[scores.index(max(scores))].id


def test_a_score_depends_on_the_key_and_the_candidate_alone() -> None:
    two, other_order = [live("a"), live("b")], [live("b"), live("c"), live("a")]
    scores = Rendezvous().scores(two, Attempt(key=KEYS[0]))
    assert Rendezvous().scores(other_order, Attempt(key=KEYS[0]))[::2] == scores[::-1]
    assert Rendezvous().scores(two, Attempt(key=KEYS[1])) != scores


def test_keys_are_shared_in_proportion_to_the_weights() -> None:
    homes = Counter(home([live("a", weight=6.0), live("b", weight=3.0), live("c")], key) for key in KEYS)
    assert 1700 < homes["a"] < 1900
    assert 250 < homes["c"] < 350


def test_a_weight_that_grows_takes_keys_and_gives_none_away() -> None:
    for key in KEYS[:500]:
        before = home([live("a"), live("b")], key)
        after = home([live("a", weight=3.0), live("b")], key)
        assert after in (before, "a")


def test_without_a_key_all_candidates_are_equal_and_the_first_is_named_as_the_cause() -> None:
    two = [live("a", weight=5.0), live("b")]
    assert Rendezvous().scores(two, Attempt()) == [1.0, 1.0]
    assert Rendezvous().cause(two[0], Attempt()) == "first"
    assert Rendezvous().cause(two[0], Attempt(key=0)) == "sticky"

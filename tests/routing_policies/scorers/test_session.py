"""The scorer for the deployment of the conversation's last request."""

from __future__ import annotations

from routing_policies.scorers.session import Session
from tests.routing_policies.views import live


def test_the_last_deployment_scores_and_the_others_do_not() -> None:
    assert Session().scores([live("a"), live("b", is_same_session=True)]) == [0.0, 1.0]


def test_a_new_conversation_prefers_nobody() -> None:
    assert Session().scores([live("a"), live("b")]) == [0.0, 0.0]

"""The scorer by the share of a prompt that a replica holds."""

from __future__ import annotations

import pytest

from routing_policies.scorers.affinity import Affinity
from routing_policies.views import DeploymentView
from tests.routing_policies.views import live


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("neutral: no prefix anywhere", [live("a"), live("b")], [0.0, 0.0]),
        ("share of the prompt held", [live("a", affinity_tokens=750), live("b")], [0.75, 0.0]),
        ("the whole prompt", [live("a", affinity_tokens=1000), live("b", affinity_tokens=1)], [1.0, 0.001]),
        ("more than the prompt counts as the whole", [live("a", affinity_tokens=5000)], [1.0]),
        ("no prompt, no affinity", [live("a", affinity_tokens=5, prompt_tokens=0)], [0.0]),
    ],
)
def test_scores(name: str, candidates: list[DeploymentView], expected: list[float]) -> None:
    assert Affinity().scores(candidates) == pytest.approx(expected), name

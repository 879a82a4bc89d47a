"""What a test of a policy expects."""

from __future__ import annotations

import pytest

from routing_policies.policy.policy_tests import Expectation


def test_an_expectation_names_something_and_an_error_stands_alone() -> None:
    assert Expectation(error="model_not_found").error == "model_not_found"
    with pytest.raises(ValueError, match="expects nothing"):
        Expectation()
    with pytest.raises(ValueError, match="no route, candidates or deployment"):
        Expectation(error="model_not_found", deployment="a")

"""The arguments of the Serve application."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.ray.settings import RayAppError, RayAppSettings


def test_one_model_is_the_same_for_every_replica() -> None:
    found = RayAppSettings.parse(
        {"model": "penstock-small", "engine_flags": ["--max-num-seqs=8"], "tensor_parallel": 2}
    )
    assert found.flags_of("") == ("--model=penstock-small", "--tensor-parallel=2", "--max-num-seqs=8")


def test_several_models_are_served_under_the_names_that_clients_request() -> None:
    found = RayAppSettings.parse({"models": {"a": "/models/a", "b": "penstock-small"}, "max_models_per_replica": 2})
    assert found.flags_of("b") == ("--model=penstock-small", "--name=b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either model, or models"),
        ({"model": "a", "models": {"b": "c"}}, "either model, or models"),
        ({"model": "a", "tensor_parallel": 0}, "tensor_parallel"),
        ({"model": "a", "modle": "b"}, "modle"),
        ({"model": "a", "scaling": {"min_replicas": 3, "max_replicas": 2}}, "above max_replicas"),
        ({"model": "a", "scaling": {"target_wait_s": "soon"}}, "target_wait_s"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RayAppError, match=message):
        RayAppSettings.parse(arguments)

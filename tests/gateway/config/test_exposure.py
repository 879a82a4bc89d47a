"""Listeners that other machines reach stand behind a key."""

from __future__ import annotations

import re

import pytest

from gateway.config.exposure import exposure_problem
from gateway.config.settings import GatewayConfig
from gateway.config.sources import config_of


@pytest.mark.parametrize("key", ["public.listen", "admin.listen"])
def test_a_listener_that_other_machines_reach_is_named_with_the_command_that_makes_a_key(key: str) -> None:
    problem = exposure_problem(config_of({key: "0.0.0.0:9000", "admin.allow_remote": True}))
    assert re.match(f"{key}: 0.0.0.0:9000 is open to other machines .*penstock keys new", problem or "")


def test_listeners_on_loopback_need_no_key() -> None:
    assert exposure_problem(GatewayConfig()) is None

"""Roles: their order, and their names in the API."""

from __future__ import annotations

import pytest

from gateway.access.identity import ANYBODY, SYSTEM, Role


def test_each_role_includes_those_below_it() -> None:
    assert Role.VIEWER < Role.EDITOR < Role.ADMIN
    assert max(Role.of("viewer"), Role.of("admin")) is Role.ADMIN


def test_every_name_of_the_api_is_one_role() -> None:
    assert [Role.of(role.label) for role in Role] == list(Role)
    with pytest.raises(KeyError):
        Role.of("root")  # type: ignore[arg-type]


def test_a_stranger_may_only_look_and_neither_builtin_carries_a_session() -> None:
    assert ANYBODY.role is Role.VIEWER
    assert SYSTEM.role is Role.ADMIN
    assert ANYBODY.csrf_token is SYSTEM.csrf_token is None

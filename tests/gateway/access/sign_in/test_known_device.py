"""Devices that an admin logged in from before."""

from __future__ import annotations

from gateway.access.accounts import Admin
from gateway.access.sign_in.known_device import DEVICE_S, device_cookie, device_id


def test_a_device_is_known_to_its_admin_until_the_password_changes() -> None:
    anna = Admin(name="anna", role="admin", created_at=0.0, created_by="x", password_hash="$argon2id$one")
    value = device_cookie(anna, 1_000.0)
    assert value is not None
    assert device_id(value, anna, 2_000.0) == value.partition(".")[0]
    others = (
        Admin(name="bert", role="admin", created_at=0.0, created_by="x", password_hash="$argon2id$one"),
        Admin(name="anna", role="admin", created_at=0.0, created_by="x", password_hash="$argon2id$two"),
        Admin(name="anna", role="admin", created_at=0.0, created_by="x"),
        None,
    )
    assert [device_id(value, other, 2_000.0) for other in others] == [None] * 4
    assert device_id(value, anna, 1_000.0 + DEVICE_S) is None
    for bad in (None, "", ".", "..", "x", "a.b.c", "\xff", value[:-1], f"x{value}", value * 9):
        assert device_id(bad, anna, 2_000.0) is None
    assert device_cookie(others[2], 0.0) is None

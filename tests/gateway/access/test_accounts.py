"""Admins and tokens in memory: who a token stands for, and what ends it."""

from __future__ import annotations

from gateway.access.accounts import Accounts, Admin, ApiToken
from gateway.access.identity import Role, RoleName

NOW = 1000.0


def admin(name: str = "anna", role: RoleName = "editor", **fields: object) -> Admin:
    return Admin(name=name, role=role, created_at=1.0, created_by="local", **fields)  # type: ignore[arg-type]


def token(role: RoleName = "admin", owner: str = "anna", **fields: object) -> ApiToken:
    made = {"id": "ci", "admin": owner, "role": role, "sha256": "aa", "created_at": 1.0, "created_by": owner, **fields}
    return ApiToken(**made)  # type: ignore[arg-type]


def accounts() -> Accounts:
    made = Accounts(lambda: NOW)
    made.take_admin("anna", admin())
    return made


def test_a_token_never_has_more_rights_than_its_admin() -> None:
    known = accounts()
    known.take_token("aa", token("admin"))
    identity = known.identify_token("aa")
    assert identity is not None
    assert (identity.name, identity.role, identity.mode) == ("anna", Role.EDITOR, "token")
    known.take_admin("anna", admin(role="viewer"))
    assert known.identify_token("aa").role is Role.VIEWER  # type: ignore[union-attr]


def test_a_token_ends_at_its_time_with_its_admin_or_by_deletion() -> None:
    known = accounts()
    known.take_token("early", token(expires_at=NOW))
    known.take_token("late", token(expires_at=NOW + 0.1))
    known.take_token("orphan", token(owner="nobody"))
    assert [known.identify_token(digest) is not None for digest in ("early", "late", "orphan", "unknown")] == [
        False,
        True,
        False,
        False,
    ]
    known.take_token("late", token().deleted(NOW))
    assert known.identify_token("late") is None
    assert known.tokens() == [token(expires_at=NOW), token(owner="nobody")]


def test_a_deleted_record_removes_and_keeps_no_credential() -> None:
    known = accounts()
    gone = admin(password_hash="secret", oidc_subject="issuer 7", epoch=3).deleted(NOW)
    assert (gone.password_hash, gone.oidc_subject, gone.epoch) == (None, None, 4)
    known.take_admin("anna", gone)
    assert not known.has_admins
    assert known.admin("anna") is None


def test_deleting_a_token_never_lengthens_its_life() -> None:
    assert token(expires_at=NOW - 5).deleted(NOW).expires_at == NOW - 5
    assert token(expires_at=NOW + 5).deleted(NOW).expires_at == NOW
    assert token().deleted(NOW).expires_at == NOW


def test_an_admin_is_found_by_subject_and_listed_by_name() -> None:
    known = accounts()
    known.take_admin("bob", admin("bob", oidc_subject="issuer 7"))
    known.take_admin("aaron", admin("aaron"))
    found = known.by_subject("issuer 7")
    assert found is not None
    assert found.name == "bob"
    assert known.by_subject("issuer 8") is None
    assert [one.name for one in known.admins()] == ["aaron", "anna", "bob"]

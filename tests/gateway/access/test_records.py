"""Two states of one record join to the same one whoever calls, and an end is never undone."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from gateway.access.accounts import Admin, ApiToken
from gateway.access.api_keys import StoredKey
from gateway.access.records import Record, following_record, has_expired, joined

KEY = StoredKey(tenant="shop", id="web", sha256="aa", created_at=1.0, created_by="anna")
ADMIN = Admin(name="anna", role="editor", created_at=1.0, created_by="local", password_hash="x", epoch=7)
TOKEN = ApiToken(id="ci", admin="anna", role="viewer", sha256="bb", created_at=1.0, created_by="anna")


def changed(record: Record, **fields: object) -> Record:
    return msgspec.structs.replace(record, **fields)


KEYS = [
    KEY,
    changed(KEY, expires_at=9.0),
    changed(KEY, expires_at=5.0),
    changed(KEY, revoked_at=3.0, revoked_by="anna"),
    changed(KEY, revoked_at=3.0, revoked_by="bob"),
    changed(KEY, revoked_at=2.0, revoked_by="carl", expires_at=9.0),
    changed(KEY, sha256="cc", created_at=2.0),
]
ADMINS = [
    ADMIN,
    changed(ADMIN, role="viewer", epoch=8),
    changed(ADMIN, password_hash="y", epoch=8),
    ADMIN.deleted(4.0),
    changed(ADMIN, role="admin", epoch=12),
    changed(ADMIN, created_at=2.0, epoch=1),
]
TOKENS = [TOKEN, changed(TOKEN, expires_at=9.0), TOKEN.deleted(4.0), changed(TOKEN, expires_at=9.0, deleted_at=5.0)]


@pytest.mark.parametrize("states", [KEYS, ADMINS, TOKENS])
def test_states_join_to_one_whatever_their_order(states: list[Record]) -> None:
    for several in itertools.combinations(states, 3):
        found = set()
        for first, second, third in itertools.permutations(several):
            found.add(msgspec.json.encode(joined(joined(first, second), third)))
            found.add(msgspec.json.encode(joined(first, joined(second, third))))
        assert len(found) == 1, several
        (one,) = found
        assert one == msgspec.json.encode(joined(several[0], msgspec.json.decode(one, type=type(several[0]))))


@pytest.mark.parametrize(
    ("over", "earlier"),
    [
        (KEYS[3], changed(KEY, expires_at=99.0)),
        (ADMINS[3], changed(ADMIN, role="admin", epoch=99)),
        (TOKENS[2], TOKEN),
    ],
)
def test_an_end_is_not_undone_by_a_state_without_it(over: Record, earlier: Record) -> None:
    assert has_expired(joined(over, earlier))
    assert has_expired(joined(earlier, over))


def test_a_deleted_admin_leaves_nothing_to_log_in_with_and_a_namesake_is_somebody_else() -> None:
    gone = ADMIN.deleted(4.0)
    assert (gone.password_hash, gone.oidc_subject, gone.epoch) == (None, None, 8)
    namesake = following_record(gone, changed(ADMIN, created_at=0.5))  # by a clock that was set back
    assert not has_expired(joined(gone, namesake))


def test_a_key_ends_at_the_earlier_of_two_ends_and_a_deleted_token_at_once() -> None:
    assert joined(KEYS[1], KEYS[2]) == KEYS[2]
    assert TOKEN.deleted(4.0).expires_at == 4.0

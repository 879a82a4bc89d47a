"""The document that an empty store begins with."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.policies.policy_file import PolicyFileError
from gateway.policies.revision import RevisionKind
from gateway.policies.seed import Seed
from tests.gateway.policies.test_revision import REVISION


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written = tmp_path / "first.yaml"
    written.write_bytes(b"\xef\xbb\xbfa: 1\n")
    return written


def test_a_byte_order_mark_is_no_part_of_the_document(path: Path) -> None:
    seed = Seed(path=path, is_bundled=False)
    assert (seed.document(), seed.reason) == ("a: 1\n", "first start, from first.yaml")


def test_a_file_that_is_not_text_is_refused_with_the_place(path: Path) -> None:
    path.write_bytes(b"a: \xe9\n")
    with pytest.raises(PolicyFileError, match=r"not UTF-8 \(byte 3\)"):
        Seed(path=path, is_bundled=False).document()
    with pytest.raises(PolicyFileError, match="cannot be read"):
        Seed(path=path.with_name("none.yaml"), is_bundled=False).document()


@pytest.mark.parametrize(
    ("is_bundled", "kind", "document", "replaces"),
    [
        (True, "seed", "older\n", True),
        (True, "seed", "a: 1\n", False),
        (True, "apply", "older\n", False),
        (False, "seed", "older\n", False),
    ],
)
def test_only_an_unchanged_bundled_policy_follows_the_program(
    path: Path, is_bundled: bool, kind: RevisionKind, document: str, replaces: bool
) -> None:
    newest = msgspec.structs.replace(REVISION, kind=kind, document=document)
    assert Seed(path=path, is_bundled=is_bundled).replaces(newest) is replaces


def test_only_the_bundled_policy_serves_where_no_store_was_ever_seen(path: Path) -> None:
    assert [Seed(path=path, is_bundled=flag).serves_without_store for flag in (True, False)] == [True, False]

"""Revisions: what an editor must send back, and what the history shows."""

from __future__ import annotations

import msgspec

from gateway.policies.revision import Revision

REVISION = Revision(
    number=7, revision="0123456789ab", parent=6, author="anna", reason="more", at=5.0, kind="apply", document="a: 1\n"
)


def test_equal_documents_of_different_numbers_have_different_tags() -> None:
    again = msgspec.structs.replace(REVISION, number=9, kind="rollback", of=7)
    assert REVISION.etag == '"7-0123456789ab"'
    assert again.etag != REVISION.etag


def test_a_line_of_the_history_has_everything_but_the_document() -> None:
    line = REVISION.as_line()
    assert "document" not in line
    assert (line["etag"], line["author"], line["of"]) == (REVISION.etag, "anna", None)
    assert set(line) - {"etag"} == set(msgspec.to_builtins(REVISION)) - {"document"}


def test_a_revision_of_an_earlier_version_is_read_without_its_newer_fields() -> None:
    fields = msgspec.to_builtins(REVISION)
    del fields["of"], fields["evidence"]
    assert msgspec.convert(fields, Revision) == REVISION

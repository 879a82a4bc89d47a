"""Policy files that name the revision that they were made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.plans.exported import exported, read_export, rebase_file

DOCUMENT = "# ours\nschema_version: 1\ndeployments: []\n"
ETAG = '"4-26b8db027bff"'


@pytest.mark.parametrize("document", [DOCUMENT, DOCUMENT.rstrip(), "", "%YAML 1.1\n---\n" + DOCUMENT])
def test_an_export_names_its_revision_and_reads_back_as_it_was(document: str) -> None:
    text = exported(document, ETAG).render()
    assert text == f"# revision 4-26b8db027bff\n{document}"
    assert read_export(text) == (document, "4-26b8db027bff")
    assert exported(text, '"12-0123456789ab"').render() == f"# revision 12-0123456789ab\n{document}"


@pytest.mark.parametrize("line", ["# revision 4", "# revision of 4-26b8db027bff", "  # revision 4-26b8db027bff"])
def test_a_comment_of_another_kind_is_none(line: str) -> None:
    assert read_export(f"{line}\n{DOCUMENT}") == (f"{line}\n{DOCUMENT}", None)


def test_the_comment_is_found_behind_others() -> None:
    assert read_export(f"# ours\n# revision 4-26b8db027bff \n{DOCUMENT}") == (f"# ours\n{DOCUMENT}", "4-26b8db027bff")


def test_a_file_follows_the_revision_that_it_became_and_keeps_all_else(tmp_path: Path) -> None:
    path = tmp_path / "next.yaml"
    path.write_bytes(b"# revision 4-26b8db027bff\r\nschema_version: 1\r\n")
    path.chmod(0o640)
    file = read_export(path.read_text())
    assert rebase_file(path, file, '"5-0123456789ab"')
    assert path.read_bytes() == b"# revision 5-0123456789ab\r\nschema_version: 1\r\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert not rebase_file(path, file, '"6-0123456789ab"')  # somebody has exported to it meanwhile
    assert not rebase_file(path, read_export(DOCUMENT), ETAG)
    assert not rebase_file(tmp_path, file, ETAG)

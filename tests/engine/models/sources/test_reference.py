"""Names of the hub as people write them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from engine.models.sources.reference import HubReference, parse_reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", HubReference(repo_id="org/name")),
        ("Org-1/na.me_2", HubReference(repo_id="Org-1/na.me_2")),
        ("org/name@v1.0", HubReference(repo_id="org/name", revision="v1.0")),
        ("org/name@refs/pr/1", HubReference(repo_id="org/name", revision="refs/pr/1")),
        ("org/name:a-Q4_K_M.gguf", HubReference(repo_id="org/name", file="a-Q4_K_M.gguf")),
        ("org/name@main:q4/a.gguf", HubReference(repo_id="org/name", revision="main", file="q4/a.gguf")),
    ],
)
def test_every_form_of_a_name_is_read_and_written_alike(text: str, expected: HubReference) -> None:
    assert parse_reference(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "name", "a/b/c", "/a/b", "./a/b", "../a", "~/a", "a/", "/", "org/name.gguf", "org/na me", "org/name@"),
        *("org/name:file.bin", "org/name:../x.gguf", "org/name:/x.gguf", "org/name@../..", "org/name:a\n.gguf"),
        *("http://host/v1", "a" * 200 + "/b", "org/name:a.gguf:b.gguf"),
    ],
)
def test_anything_else_is_no_name_of_the_hub(text: str) -> None:
    assert parse_reference(text) is None


def test_the_first_part_of_a_split_file_stands_for_all_and_no_other_file() -> None:
    pattern = HubReference(repo_id="o/n", file="q[4]/a-00001-of-00003.gguf").file_pattern
    assert fnmatchcase("q[4]/a-00003-of-00003.gguf", pattern)
    assert not fnmatchcase("q4/a-00003-of-00003.gguf", pattern)
    assert not fnmatchcase("q[4]/a-00001-of-00002.gguf", pattern)
    assert HubReference(repo_id="o/n").file_pattern == ""

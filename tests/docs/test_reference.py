"""The generated reference states what the code states."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from gateway.config.sources import setting_types, variable_of
from routing_policies.policy.document import Policy
from tests.docs.reference import FOLDER, PAGES, REFRESH


@cache
def page(name: str) -> str:
    return PAGES[name]()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_makes_of_it_now(name: str) -> None:
    path = FOLDER / name
    written = path.read_text() if path.exists() else ""
    assert written == page(name), f"docs/reference/{name} is out of date: run `{REFRESH}`"


def test_no_other_page_stands_in_the_folder() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == PAGES.keys()


def test_every_setting_and_its_variable_is_listed() -> None:
    missing = [key for key in setting_types() if f"| `{key}` | `{variable_of(key)}` |" not in page("settings.md")]
    assert missing == []


def test_every_key_of_the_policys_schema_is_listed() -> None:
    _, structs = msgspec.json.schema_components([Policy], ref_template="{name}")
    keys = {key for struct in structs.values() for key in struct.get("properties", ())}
    assert [key for key in sorted(keys) if f"| `{key}` |" not in page("policy-keys.md")] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_row_has_a_name(name: str) -> None:
    rows = [line for line in page(name).splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert rows
    assert [row for row in rows if row.startswith(("|  |", "| `` |"))] == []

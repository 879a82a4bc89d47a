"""Edits of a document's text: the value changes, everything else stays as it was written."""

from __future__ import annotations

import pytest

from routing_policies.policy.editing import EditError, add_item, parse_path, set_value

TEXT = """\
# why this is here
schema_version: 1
routes:
  - id: faq      # the shop's
    cache: {mode: exact, ttl_s: 60}
    trim:
      budget_tokens: 100
tenants:
  - {id: shop}
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("routes[0].cache.ttl_s", 3600, "ttl_s: 60", "ttl_s: 3600"),
        ("routes[0].cache.scope", "user", "ttl_s: 60}", 'ttl_s: 60, scope: "user"}'),
        ("routes[0].id", "on", "id: faq ", 'id: "on" '),
        ("routes[0].trim.budget_tokens", None, "budget_tokens: 100", "budget_tokens: null"),
        ("routes[0].trim.other", 1.5, "      budget_tokens", "      other: 1.5\n      budget_tokens"),
        ("routes[0].when", "a == 1", "  - id: faq", '  - when: "a == 1"\n    id: faq'),
    ],
)
def test_one_value_changes_and_nothing_else(path: str, value: str | float | None, old: str, new: str) -> None:
    assert set_value(TEXT, parse_path(path), value) == TEXT.replace(old, new)


@pytest.mark.parametrize("path", ["routes[1].id", "routes[0].none.deeper", "routes", "tenants[0]"])
def test_what_is_not_there_or_no_value_is_refused(path: str) -> None:
    with pytest.raises(EditError):
        set_value(TEXT, parse_path(path), 1)


@pytest.mark.parametrize("path", ["", "a..b", "a[x]", "a[0", "[0]]"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(EditError):
        parse_path(path)


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("a: 1\ntenants:\n  - {id: x}\n", 'a: 1\ntenants:\n  - {"id": "n"}\n  - {id: x}\n'),
        ("a: 1\ntenants: [{id: x}]\n", 'a: 1\ntenants: [{id: x}, {"id": "n"}]\n'),
        ("a: 1\ntenants: []\n", 'a: 1\ntenants: [{"id": "n"}]\n'),
        ("a: 1 # last", 'a: 1 # last\ntenants:\n  - {"id": "n"}\n'),
        ("{a: 1}", '{a: 1, tenants: [{"id": "n"}]}'),
    ],
)
def test_an_item_is_added_in_every_layout(text: str, edited: str) -> None:
    assert add_item(text, "tenants", {"id": "n"}) == edited

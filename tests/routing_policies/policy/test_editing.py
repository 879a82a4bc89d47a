"""Edits of a document's text: the value changes, everything else stays as it was written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from routing_policies.loading import load_document
from routing_policies.policy.document import DEFAULT_LANES
from routing_policies.policy.editing import EditError, add_item, parse_path, remove_value, set_value

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
        ("routes[0].cache.scope", "user", "ttl_s: 60}", "ttl_s: 60, scope: user}"),
        ("routes[0].id", "on", "id: faq ", 'id: "on" '),
        ("routes[0].trim.budget_tokens", None, "budget_tokens: 100", "budget_tokens: null"),
        ("routes[0].trim.other", 1.5, "budget_tokens: 100", "budget_tokens: 100\n      other: 1.5"),
        ("routes[0].when", "a == 1", "tokens: 100", 'tokens: 100\n    when: "a == 1"'),
        ("routes[0].timeouts.total_ms", 5, "tokens: 100", "tokens: 100\n    timeouts: {total_ms: 5}"),
        (
            "tenants[0].limits.budget.tokens_per_day",
            7,
            "{id: shop}",
            "{id: shop, limits: {budget: {tokens_per_day: 7}}}",
        ),
        ("routes[0].cache", {"mode": "off"}, "{mode: exact, ttl_s: 60}", '{mode: "off"}'),
        ("routes[0].trim", {"a": [1]}, "trim:\n      budget_tokens: 100", "trim: {a: [1]}"),
    ],
)
def test_one_value_changes_and_nothing_else(path: str, value: Any, old: str, new: str) -> None:
    assert set_value(TEXT, parse_path(path), value) == TEXT.replace(old, new)


@pytest.mark.parametrize("path", ["routes[1].id", "routes[0].match[0].id", "routes", "tenants[0]"])
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
        ("a: 1\ntenants:\n  - {id: x}\n", 'a: 1\ntenants:\n  - {id: "n"}\n  - {id: x}\n'),
        ("a: 1\ntenants: [{id: x}]\n", 'a: 1\ntenants: [{id: x}, {id: "n"}]\n'),
        ("a: 1\ntenants: []\n", 'a: 1\ntenants: [{id: "n"}]\n'),
        ("a: 1 # last", 'a: 1 # last\ntenants:\n  - {id: "n"}\n'),
        ("{a: 1}", '{a: 1, tenants: [{id: "n"}]}'),
    ],
)
def test_an_item_is_added_in_every_layout(text: str, edited: str) -> None:
    assert add_item(text, "tenants", {"id": "n"}) == edited


BLOCK = """\
schema_version: 1
deployments:
  - {id: one, url: "http://one", model: m}  # the first
  - {id: two, url: "http://two", model: m}
routes:
  - id: auto
    select:
      candidates:
        - one  # cheap
        - two
    cache:
    match: {models: [auto]}
tests:
  - name: a
    expect: {route: auto}

  # why b is here
  - name: b
    expect: {route: auto}
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("routes[0].cache.mode", "exact", "    cache:\n", "    cache: {mode: exact}\n"),
        ("routes[0].cache", {"mode": "exact"}, "    cache:\n", "    cache: {mode: exact}\n"),
        ("routes[0].select.candidates", ["two", "one"], "\n        - one  # cheap\n        - two", " [two, one]"),
        ("routes[0].select.candidates[0]", {"id": "one", "weight": 2}, "- one ", "- {id: one, weight: 2} "),
        ("routes[0].select.hedge.max_ratio", 0.05, "- two\n", "- two\n      hedge: {max_ratio: 0.05}\n"),
        ("deployments[0].limits.max_in_flight", 8, "m}  #", "m, limits: {max_in_flight: 8}}  #"),
    ],
)
def test_sections_and_lists_are_written_where_they_belong(path: str, value: Any, old: str, new: str) -> None:
    assert set_value(BLOCK, parse_path(path), value) == BLOCK.replace(old, new)


def test_a_lane_is_edited_where_the_document_has_none() -> None:
    document = BLOCK.replace("    cache:\n", "")
    text = set_value(document, parse_path("lanes[1].weight"), 2)
    lanes = load_document(text, source="here", variables={})[0].lanes
    assert lanes == (DEFAULT_LANES[0], type(lanes[1])(id="interactive-long", weight=2.0), DEFAULT_LANES[2])
    assert text.startswith(document)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("deployments[0].model", ", model: m}  #", "}  #"),
        ("deployments[0].id", "{id: one, ", "{"),
        ("deployments[0]", '  - {id: one, url: "http://one", model: m}  # the first\n', ""),
        ("routes[0].id", "- id: auto\n    select", "- select"),
        ("routes[0].match.models", "    match: {models: [auto]}\n", ""),
        ("routes[0].select.candidates[0]", "        - one  # cheap\n", ""),
        ("routes[0].cache", "    cache:\n", ""),
        ("tests[0]", "  - name: a\n    expect: {route: auto}\n", ""),
        ("routes[0].timeouts.total_ms", "", ""),
        ("routes[7]", "", ""),
    ],
)
def test_a_value_is_removed_with_the_sections_that_it_leaves_empty(path: str, old: str, new: str) -> None:
    assert remove_value(BLOCK, parse_path(path)) == BLOCK.replace(old, new, 1)


ALIASES = """\
a: &shared {b: 1}
c: *shared
list: [&x 1, *x]
text: |
  lines

d: {e: 1}
"""


def test_an_alias_is_neither_edited_nor_its_place_guessed() -> None:
    with pytest.raises(EditError, match="alias"):
        set_value(ALIASES, ("c",), 2)
    assert yaml.safe_load(set_value("a: &x {b: 1}\nc: *x\n", ("d",), 2)) == {"a": {"b": 1}, "c": {"b": 1}, "d": 2}
    assert yaml.safe_load(remove_value(ALIASES, ("text",))) == {
        key: value for key, value in yaml.safe_load(ALIASES).items() if key != "text"
    }


TREES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-99, 99), st.sampled_from(["a", "off", "it's # no", "line\nbreak"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["k", "l", "m", "n"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def places(tree: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path in a tree but that of its root."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, inner in parts for place in [(*path, key), *places(inner, (*path, key))]]


def without(tree: Any, path: tuple[str | int, ...]) -> Any:
    """The tree without one value, and without the sections that this leaves empty."""
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    if len(parent) == 1 and len(path) > 1 and isinstance(path[-2], str):
        return without(tree, path[:-1])
    del parent[path[-1]]
    return tree


@given(
    tree=st.dictionaries(st.sampled_from(["k", "l", "m", "n"]), TREES, min_size=1, max_size=4),
    is_flow=st.sampled_from([True, False, None]),
    data=st.data(),
)
def test_edits_do_to_the_text_what_they_would_do_to_its_values(
    tree: dict[str, Any], is_flow: bool | None, data: st.DataObject
) -> None:
    text = yaml.safe_dump(tree, default_flow_style=is_flow, sort_keys=False)
    path = data.draw(st.sampled_from(places(tree)))
    try:
        cut = remove_value(text, path)
    except EditError:
        cut = None
    if cut is not None:
        assert (yaml.safe_load(cut) or {}) == without(yaml.safe_load(text), path), cut
    new = {"new": [1, {"x": "off"}]}
    try:
        edited = set_value(text, path, new)
    except EditError:
        return
    expected = yaml.safe_load(text)
    parent = expected
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = new
    assert yaml.safe_load(edited) == expected, edited

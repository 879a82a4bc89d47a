"""Semantic differences between two policies: items are matched by their ids, and defaults count as written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from routing_policies.policy.document import Policy

ChangeKind = Literal["added", "removed", "changed", "moved"]
Noun = Literal["route", "deployment", "tenant", "lane", "test", "policy"]

_LISTS: Final[dict[str, tuple[Noun, str]]] = {
    "deployments": ("deployment", "id"),
    "lanes": ("lane", "id"),
    "tenants": ("tenant", "id"),
    "routes": ("route", "id"),
    "tests": ("test", "name"),
}
_ORDERED: Final = frozenset({"lanes", "routes"})
"""Lists whose order matters: the first lane is the default, and the first matching route wins."""
_MAX_SHOWN_CHARS: Final = 60

Json = dict[str, Any]


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """One difference; `path` names items by id, as in `routes.faq.cache.ttl_s`."""

    kind: ChangeKind
    what: Noun
    id: str | None
    path: str
    old: Any = None
    new: Any = None

    @property
    def text(self) -> str:
        """Description for people, such as `route faq: cache.ttl_s 60 → 3600`."""
        if self.what == "policy":
            return f"{self.path} {_shown(self.old)} → {_shown(self.new)}"
        subject = f'test "{self.id}"' if self.what == "test" else f"{self.what} {self.id}"
        if self.kind in ("added", "removed"):
            return f"{subject} {self.kind}"
        if self.kind == "moved":
            return f"{subject} moved from place {self.old} to {self.new}"
        return f"{subject}: {_inner(self)} {_shown(self.old)} → {_shown(self.new)}"

    def as_json(self) -> Json:
        """Return the change with its text, for the admin API."""
        return {**msgspec.to_builtins(self), "text": self.text}


def diff(old: Policy, new: Policy) -> tuple[PolicyChange, ...]:
    """Return every difference in document order; empty when both policies mean the same."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    found: list[PolicyChange] = []
    for key in after:
        if key not in _LISTS:
            found += _scalars("policy", None, key, before[key], after[key])
            continue
        found += _items(key, before[key], after[key])
    return tuple(found)


def _items(key: str, before: Sequence[Json], after: Sequence[Json]) -> Iterator[PolicyChange]:
    what, name = _LISTS[key]
    old = {str(item[name]): item for item in before}
    new = {str(item[name]): item for item in after}
    for id, item in old.items():
        if id not in new:
            yield PolicyChange(kind="removed", what=what, id=id, path=f"{key}.{id}", old=item)
    for id, item in new.items():
        if id not in old:
            yield PolicyChange(kind="added", what=what, id=id, path=f"{key}.{id}", new=item)
        else:
            yield from _scalars(what, id, f"{key}.{id}", old[id], item)
    if key in _ORDERED:
        yield from _moves(key, what, [id for id in old if id in new], [id for id in new if id in old])


def _moves(key: str, what: Noun, old: Sequence[str], new: Sequence[str]) -> Iterator[PolicyChange]:
    """Yield the fewest moves of remaining items that explain the new order."""
    common = _longest_common(old, new)
    for id in new:
        if id not in common:
            places = old.index(id) + 1, new.index(id) + 1
            yield PolicyChange(kind="moved", what=what, id=id, path=f"{key}.{id}", old=places[0], new=places[1])


def _longest_common(old: Sequence[str], new: Sequence[str]) -> frozenset[str]:
    """Return the largest set of ids that keep their relative order; both sequences hold the same ids."""
    place = {id: index for index, id in enumerate(old)}
    runs: list[tuple[int, tuple[str, ...]]] = [(-1, ())]
    for id in new:
        _, longest = max((run for run in runs if run[0] < place[id]), key=_length)
        runs.append((place[id], (*longest, id)))
    return frozenset(max(runs, key=_length)[1])


def _length(run: tuple[int, tuple[str, ...]]) -> int:
    return len(run[1])


def _scalars(what: Noun, id: str | None, path: str, old: Any, new: Any) -> Iterator[PolicyChange]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            yield from _scalars(what, id, f"{path}.{key}", old.get(key), new.get(key))
        return
    if (old or new) and _are_named(old) and _are_named(new):
        before, after = ({item["id"]: item for item in items} for items in (old, new))
        for key in dict.fromkeys((*before, *after)):
            yield from _scalars(what, id, f"{path}.{key}", before.get(key), after.get(key))
        return
    yield PolicyChange(kind="changed", what=what, id=id, path=path, old=old, new=new)


def _are_named(value: Any) -> bool:
    """Return whether the value is a list of items with ids, such as a tenant's keys."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) and "id" in item for item in value)


def _inner(change: PolicyChange) -> str:
    """Return the path inside the item; an id may contain dots."""
    return change.path.partition(".")[2].removeprefix(f"{change.id}.")


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping) and "sha256" in value:
        return f"sha256 {str(value['sha256'])[:8]}…"
    text = str(value).lower() if isinstance(value, bool) else msgspec.json.encode(value).decode()
    text = text.strip('"')
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"

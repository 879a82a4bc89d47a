"""Members of an object are edited where they stand, and every other byte stays."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.json_members import members_of
from gateway.chat.member_spans import MemberSpan, MemberSpans


@given(st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), unique=True), st.data())
def test_edits_by_position_are_those_of_a_search(names: list[str], data: st.DataObject) -> None:
    space = st.sampled_from(["", " ", "\n\t"])
    pieces = [
        f'{data.draw(space)}"{n}"{data.draw(space)}:{data.draw(space)}[1E1,{{}}]{data.draw(space)}' for n in names
    ]
    body = ("{" + ",".join(pieces) + data.draw(space) + "}").encode()
    found = {m.name: MemberSpan(m.start, m.value_start, m.end) for m in members_of(body)}
    spans = MemberSpans(found, len(body) - 1)
    for _ in range(3):
        removed = set(data.draw(st.lists(st.sampled_from(["a", "b", "c"]))))
        changes = dict.fromkeys(data.draw(st.lists(st.sampled_from(["d", "e", "f", "g"]))), 1)
        expected = {**{k: v for k, v in json.loads(body).items() if k not in removed}, **changes}
        body, spans = spans.edited(body, changes, removed)
        assert json.loads(body) == expected
        assert body.count(b"1E1") == sum(value == [10.0, {}] for value in expected.values())

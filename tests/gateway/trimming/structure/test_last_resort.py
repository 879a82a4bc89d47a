"""A text that is cut off, nested deep or in one piece is divided all the same, and what parsed still parses."""

from __future__ import annotations

import ast
import inspect
import json
import random
import tempfile
import types
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from gateway.trimming.passages import extract
from gateway.trimming.structure.layout import layout_of

FACT = "the spare key of the lighthouse hangs in locker 4417"
QUESTION = "In which locker does the spare key of the lighthouse hang?"
NUM_PARTS = 150
NUM_BYTES = 3000

Remark = Callable[[int], str]


def remark(number: int) -> str:
    return FACT if number == 83 else f"the gate number {number} was painted in a calm colour by the crew"


JAVA = "import java.util.List;\n\npublic class Harbour {\n" + "".join(
    f"    int berth{n}(int depth) {{\n        // {remark(n)}\n        if (depth > {n}) {{\n            return depth;\n"
    f"        }}\n        return {n};\n    }}\n\n"
    for n in range(NUM_PARTS)
)
JAVASCRIPT = "describe('harbour', () => {\n" + "".join(
    f"  it('opens gate {n}', () => {{\n    // {remark(n)}\n    expect(open({n})).toBe(true);\n  }});\n\n"
    for n in range(NUM_PARTS)
)
NESTED = "".join(f"{'  ' * n}while (part{n}) {{\n" for n in range(14)) + "".join(
    f"    go({n}); // {remark(n)}\n" for n in range(NUM_PARTS)
)
PYTHON = "import os\n\n\nclass Harbour:\n" + "".join(
    f"    def berth{n}(self, depth):\n        # {remark(n)}\n        return sail(depth{'' if n == 3 else ')'}\n\n"
    for n in range(NUM_PARTS)
)
STRAY = "".join(
    f"function berth{n}(depth) {{\n  // {remark(n)}\n  return sail(depth{'' if n == 3 else ')'};\n}}\n\n"
    for n in range(NUM_PARTS)
)
MINIFIED = ";".join(f'f{n}=function(){{return"{remark(n)}"}}' for n in range(NUM_PARTS))
DIFF = "diff --git a/gates b/gates\nnew file mode 100644\n--- /dev/null\n+++ b/gates\n@@ -0,0 +1,150 @@\n" + "".join(
    f"+{remark(n)}\n" for n in range(NUM_PARTS)
)
ANCHORS = "base: &base\n  colour: grey\ngates:\n" + "".join(
    f"  gate{n}:\n    <<: *base\n    note: {remark(n)}\n" for n in range(NUM_PARTS)
)
CUT_OFF = {
    "class": JAVA,
    "class within a method": f"{JAVA}    int last(int depth) {{\n        if (depth > 1) {{\n",
    "fenced class": f"```java\n{JAVA}```",
    "call": JAVASCRIPT,
    "nested blocks": NESTED,
    "bracket in Python": PYTHON,
    "bracket in JavaScript": STRAY,
    "one line": MINIFIED,
    "new file": DIFF,
    "anchors": ANCHORS,
    "JSON": json.dumps({"gates": [{"number": n, "note": remark(n)} for n in range(NUM_PARTS)]})[:-9],
    "XML": "<gates>\n" + "".join(f"<gate><note>{remark(n)}</note></gate>\n" for n in range(NUM_PARTS)),
}


@pytest.mark.parametrize("text", CUT_OFF.values(), ids=CUT_OFF.keys())
def test_a_text_that_is_cut_off_keeps_its_answer(text: str) -> None:
    after = extract(text, QUESTION, NUM_BYTES)
    assert "locker 4417" in after
    assert NUM_BYTES / 2 < len(after.encode()) <= NUM_BYTES


@pytest.mark.parametrize("text", CUT_OFF.values(), ids=CUT_OFF.keys())
def test_no_character_of_it_is_lost_while_all_stays(text: str) -> None:
    layout = layout_of(text, NUM_BYTES)
    for segment in layout.segments():
        segment.retain()
    assert layout.rendered() == text


ROWS = [remark(n) for n in range(NUM_PARTS)]


def levels(depth: int, value: object) -> object:
    for number in range(depth):
        value = {"level": number, "name": f"part {number}", "inner": value}
    return value


DEEP_JSON = {
    "chain": '{"part":' * 70 + json.dumps(ROWS) + "}" * 70,
    "long chain": '{"part":[' * 240 + json.dumps(ROWS) + "]}" * 240,
    "levels": json.dumps(levels(50, ROWS), indent=1),
    "many levels": json.dumps(levels(150, ROWS)),
    "many levels in a list": json.dumps([levels(150, ROWS), "é"], ensure_ascii=False),
    "string in two spellings": json.dumps({"text": "<" + ". ".join(ROWS)})[:-1] + ', "other": "\\u003c < >"}',
    "escapes": json.dumps({"text": '\\u003c<"' + '"\\ é\n'.join(ROWS)}).replace("<", "\\u003c", 1),
}


@pytest.mark.parametrize("text", DEEP_JSON.values(), ids=DEEP_JSON.keys())
@pytest.mark.parametrize("num_bytes", [2000, NUM_BYTES, 6000])
def test_deep_json_stays_json_and_keeps_its_answer(text: str, num_bytes: int) -> None:
    after = extract(text, QUESTION, num_bytes)
    json.loads(after)
    assert "locker 4417" in after
    assert len(after.encode()) <= num_bytes
    fenced = extract(f"Look:\n\n```json\n{text}\n```\n\nThanks.", QUESTION, num_bytes)
    json.loads(fenced.split("```json\n")[1].split("\n```")[0])


def test_a_line_of_json_lines_is_cut_at_its_members() -> None:
    rows = [json.dumps({"number": n, "notes": ROWS if n == 2 else []}) for n in range(5)]
    after = extract("\n".join(rows), QUESTION, NUM_BYTES)
    assert all(json.loads(line) for line in after.splitlines())
    assert "locker 4417" in after


@pytest.mark.parametrize("depth", [45, 70, 120])
def test_deep_markup_stays_in_pairs(depth: int) -> None:
    rows = "".join(f"<p>{row}</p>" for row in ROWS)
    after = extract("<div>" * depth + rows + "</div>" * depth, QUESTION, NUM_BYTES)
    ElementTree.fromstring(after)
    assert "locker 4417" in after


def test_markup_that_branches_at_each_level_stays_in_pairs() -> None:
    rows = "".join(f"<p>{row}</p>" for row in ROWS)
    opened = "".join(f"<div><b>{n}</b>\n" for n in range(55))
    after = extract(opened + rows + "</div>\n" * 55, QUESTION, NUM_BYTES)
    ElementTree.fromstring(after)
    assert "locker 4417" in after


@pytest.mark.parametrize("depth", [60, 100])
def test_elements_deeper_than_any_are_cut_as_text(depth: int) -> None:
    rows = "".join(f"<p>{row}</p>" for row in ROWS)
    after = extract("<div><b>x</b>" * depth + rows + "</div>" * depth, QUESTION, NUM_BYTES)
    assert "locker 4417" in after


@pytest.mark.parametrize("module", [types, tempfile, inspect], ids=lambda module: module.__name__)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_whole_code_still_parses_in_a_small_room(module: types.ModuleType, share: float) -> None:
    source = inspect.getsource(module)
    ast.parse(extract(source, "What raises an error?", max(1200, int(len(source) * share))))


def test_a_string_that_is_most_of_the_code_is_cut_within_its_marks() -> None:
    lines = "\n".join(f"{row}." for row in ROWS)
    after = extract(
        f'"""Notes on the gates.\n\n{lines}\n"""\n\nimport os\n\n\ndef main():\n    return 1\n', QUESTION, NUM_BYTES
    )
    ast.parse(after)
    assert "locker 4417" in after


def test_any_cut_of_any_text_keeps_the_answer() -> None:
    rng = random.Random(7)
    wholes = [*CUT_OFF.values(), *DEEP_JSON.values()]
    lost = []
    for number in range(60):
        text = wholes[number % len(wholes)]
        place = text.index(FACT)
        piece = text[rng.randint(0, place) if rng.random() < 0.5 else 0 : rng.randint(place + len(FACT), len(text))]
        after = extract(piece, QUESTION, max(NUM_BYTES, len(piece.encode()) // 3))
        if "locker 4417" not in after:
            lost.append((number, len(piece)))
    assert lost == []


def test_parts_are_divided_alike_while_a_room_changes_little() -> None:
    found = {tuple(segment.text for segment in layout_of(STRAY, room).segments()) for room in range(5000, 6000, 50)}
    assert len(found) == 1

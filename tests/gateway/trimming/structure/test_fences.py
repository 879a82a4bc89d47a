"""A fence that had both of its marks before trimming has both afterwards, or none."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.trimming.passages import extract
from gateway.trimming.structure.fences import fences_of
from gateway.trimming.structure.layout import layout_of

MARK = re.compile(r"[ \t]*(?:>[ \t]?)*(?:(?:[-*+]|\d+[.)])[ \t]+)?(`{3,}|~{3,})(.*)")
CODE = "".join(f"total = total + {n}\nprint(total)\n\n" for n in range(12))


def is_balanced(text: str) -> bool:
    """Read marks as CommonMark does, without a look at what the gateway makes of them."""
    mark, begin = "", 0
    for number, line in enumerate(text.splitlines()):
        found = MARK.match(line)
        if found is None:
            continue
        if not mark:
            mark, begin = found.group(1), number
        elif found.group(1)[0] == mark[0] and len(found.group(1)) >= len(mark) and not found.group(2).strip():
            if number == begin + 1:
                return False  # nothing between the marks
            mark = ""
    return not mark


PIECES = {
    "plain": f"```python\n{CODE}```\n",
    "without a language": f"```\n{CODE}```\n",
    "tildes": f"~~~text\n{CODE}~~~\n",
    "nested": f"````md\nLook:\n\n```sh\nls\n```\n\n{'One. Two. ' * 20}\n````\n",
    "in a list": f"- ```js\n  {CODE.replace(chr(10), chr(10) + '  ')}\n  ```\n",
    "below a bullet": f"1. Run this:\n\n   ```sh\n{'   make all' + chr(10)}   ```\n",
    "in a quotation": "> She wrote:\n> ```sql\n" + "> SELECT one. Two;\n" * 12 + "> ```\n> Yes.\n",
    "unknown": f"```mermaid\n{'graph TD; A-->B' + chr(10)}```\n",
    "within a string": f'"""\nSome text. More.\n\n```sh\n{"make all" + chr(10)}```\n\nThe end.\n"""\n',
    "one line": "Use ```make all``` here. Then `go. On` there. Done.\n",
    "JSON": '```json\n{"a": [1, 2, 3], "b": "' + "x. " * 90 + '"}\n```\n',
    "in markup": f"<note>\nSome words.\n\n```sh\n{'make all' + chr(10)}```\n\n{'More words. ' * 30}\n</note>\n",
}
PROSE = "The gate was painted in a calm colour. The crew went home. Nobody minded that very much.\n"


@pytest.mark.parametrize("num_bytes", [200, 500, 900, 1500])
@pytest.mark.parametrize("kind", PIECES)
def test_marks_stay_in_pairs(kind: str, num_bytes: int) -> None:
    rng = Random(num_bytes)
    for _ in range(6):
        pieces = [PIECES[kind], *(rng.choice([*PIECES.values(), PROSE, PROSE]) for _ in range(8))]
        rng.shuffle(pieces)
        text = "\n".join(pieces)
        assert is_balanced(text)
        after = extract(text, rng.choice(["What is the total?", "What did the crew do?", "make all"]), num_bytes)
        assert is_balanced(after), after
        assert after.count("```") % 2 == 0


@settings(deadline=None)
@given(st.lists(st.sampled_from([*PIECES.values(), PROSE]), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_part_of_a_text_has_marks_in_pairs(pieces: list[str], rng: Random) -> None:
    layout = layout_of("\n".join(pieces))
    for segment in layout.segments():
        if rng.random() < 0.3:
            segment.retain()
    assert is_balanced(layout.rendered())


LEADS = {"indent": ("  ", "  "), "bullet": ("- ", "  "), "number": ("10. ", "    "), "deep": (">> ", ">> ")} | {
    "bullet in a quotation": ("> - ", ">   "),
    "quotation in a list": ("  > ", "  > "),
}
BODIES = {
    "python": "".join(f"def gate_{n}():\n    x = {n}\n    return x\n\n" for n in range(40)),
    "js": "".join(f"function gate{n}() {{\n  return {n};\n}}\n" for n in range(40)),
    "text": "".join(f"line {n} about gate {n}\n" for n in range(60)),
    "": "".join(f"The gate {n} is here. It is blue.\n" for n in range(60)),
    "yaml": "".join(f"gate{n}:\n  number: {n}\n" for n in range(60)),
    "csv": "".join(f"gate,{n},{n}\n" for n in range(90)),
    "mermaid": "".join(f"gate{n}-->gate{n + 1}\n" for n in range(90)),
}


@pytest.mark.parametrize("language", BODIES)
@pytest.mark.parametrize("lead", LEADS.values(), ids=LEADS.keys())
def test_each_line_of_a_fence_begins_as_its_item_does(lead: tuple[str, str], language: str) -> None:
    first, later = lead
    body = "".join(f"{later}{line}".rstrip() + "\n" for line in BODIES[language].splitlines())
    text = f"Read this.\n\n{first}```{language}\n{body}{later}```\n\n{PROSE * 3}"
    layout, rng = layout_of(text), Random(3)
    for segment in layout.segments():
        if rng.random() < 0.3 or segment.text.startswith("Read"):
            segment.retain()
    after = layout.rendered()
    assert "[…]" in after
    inside = after[after.index("```") : after.rindex("```")].splitlines()[1:]
    assert [line for line in inside if line.strip() and not line.startswith(later.rstrip())] == []


def test_a_mark_behind_words_opens_a_fence() -> None:
    text = f"Here is the code: ```python\n{CODE}```\n\nAnd more of it: ```sh\nmake all\n```\n{PROSE * 20}"
    assert len(fences_of(text)) == 2
    for num_bytes in (200, 700):
        after = extract(text, "make all", num_bytes)
        assert after.count("```") % 2 == 0
        assert "```sh\nmake all\n```" in after


def test_code_within_a_line_is_not_cut() -> None:
    text = f"{PROSE * 20}Call `open(). Then close()` twice. {PROSE * 20}"
    assert "Call `open(). Then close()` twice." in extract(text, "close twice?", 300)


def test_a_mark_without_a_partner_does_not_stay_alone() -> None:
    text = f"{PROSE * 10}\n```python\nThe key is green.\n{PROSE * 10}"
    assert "```python\nThe key is green." in extract(text, "Which key?", 200)
    assert "```" not in extract(text, "crew home", 200)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("```\na\n```\n", 1),
        ("```\na\n````\n", 1),
        ("````\n```\na\n```\n````\n", 1),
        ("```\na\n~~~\n", 0),
        ("> ```\n> a\n\n> ```\n", 0),
        ("`a```b`\n", 0),
        ("```a```\nb\n", 0),
        ("```\n" * 8, 4),
        ("".join("`" * width + "\n" for width in range(3, 31)), 14),
    ],
)
def test_fences_are_those_of_markdown(text: str, count: int) -> None:
    assert len(fences_of(text)) == count

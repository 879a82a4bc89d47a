"""XML is cut at its elements: what parsed before still parses, whatever part of it stays."""

from __future__ import annotations

import itertools
import json
import random
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from gateway.trimming.passages import extract
from gateway.trimming.structure.blocks import blocks_of
from gateway.trimming.structure.layout import layout_of
from gateway.trimming.structure.segment import num_bytes_of

ROWS = "".join(
    f'  <item id="{n}" note="a > b">\n    <title>Part {n} &amp; more</title>\n    <!-- about {n} -->\n'
    f"    <text>The part {n} is blue. It weighs {n} kg &#8212; at least. Nobody minds, of course.\n"
    f"    A second line is here, so that an element of this kind is long enough to divide.</text>\n    <empty/>\n"
    f"  </item>\n"
    for n in range(40)
)
DOCUMENTS = {
    "rows": f"<?xml version='1.0' encoding='utf-8'?>\n<!-- Parts. -->\n<items>\n{ROWS}</items>\n<!-- The end. -->\n",
    "compact": "<items>" + "".join(line.strip() for line in ROWS.splitlines()) + "</items>",
    "namespaces": f'<a:items xmlns:a="urn:a" xmlns="urn:b">\n{ROWS}</a:items>',
    "entities": '<!DOCTYPE items [\n<!ENTITY co "Comp]any > &#x20AC;">\n<!-- \' ]> -->\n<!ELEMENT items ANY>\n]>\n'
    f"<items>\n<who>&co;</who>\n{ROWS}</items>",
    "mixed": "<p>"
    + "Some <b>bold</b> words are here, and more. Then <i>others</i> follow &lt;soon&gt;. " * 60
    + "</p>",
    "literal": "<items>\n<code><![CDATA[\nif (a < b && c) {\n  x(&amp);\n}\n"
    f"{'One. Two! ' * 90}]]></code>\n{ROWS}</items>",
    "references": f"<items>\n<text>{'&amp;' * 400}</text>\n{ROWS}</items>",
    "deep": "<a>" * 60 + ROWS + "</a>" * 60,
    "JSON within": f"<items>\n{json.dumps([{'id': n, 'text': 'x' * 40} for n in range(90)])}\n</items>",
    "script": "<svg>\n<script>\n" + "function f() {\n  return 1;\n}\n\n" * 60 + f"</script>\n{ROWS}</svg>",
    "fence within": f"<items>\n<text>\nLook:\n\n```python\nx = 1\n```\n\n{'One. Two. ' * 60}</text>\n{ROWS}</items>",
}


def part(text: str, share: float, seed: int) -> str:
    layout, rng = layout_of(text), random.Random(seed)
    segments = [*layout.segments()]
    paid = num_bytes_of(layout.rendered())
    for segment in segments:
        if rng.random() < share:
            paid += segment.cost_bytes
            segment.retain()
    if not layout.is_retained:
        segments[-1].retain()
    elif share:
        assert num_bytes_of(layout.rendered()) <= paid, "no part costs more than was paid for it"
    return layout.rendered()


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_what_parsed_still_parses(document: str) -> None:
    ElementTree.fromstring(document)
    assert [block.kind for block in blocks_of(document) if block.text.strip()] == ["markup"]
    layout = layout_of(document)
    for segment in layout.segments():
        segment.retain()
    assert layout.rendered() == document
    for share in (0.03, 0.3, 0.8):
        for seed in range(6):
            ElementTree.fromstring(part(document, share, seed))
            fenced = part(f"Look:\n\n`````xml\n{document}\n`````\n\nWhat?", share, seed)
            if "```xml" in fenced:
                ElementTree.fromstring(fenced.split("```xml\n")[1].rsplit("\n`````", 1)[0])


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
@pytest.mark.parametrize("num_bytes", [300, 1200, 4000])
def test_a_budget_leaves_markup_that_parses(document: str, num_bytes: int) -> None:
    after = extract(document, "How heavy is part 17?", num_bytes)
    if after != "...":
        ElementTree.fromstring(after)


def test_a_comment_marks_the_gap_between_elements() -> None:
    after = extract(DOCUMENTS["rows"], "How heavy is part 17?", 900)
    assert "<!-- […] -->" in after
    assert "It weighs 17 kg" in after
    assert after.startswith("<?xml")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("br", "img", "meta", "input", "hr", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_tags_of_html_stay_in_pairs() -> None:
    body = "".join(
        f"<div class=x><p>Part {n} is blue.<br>It weighs {n} kg, they say, and more than that in winter.</p>\n"
        f'<img src="a.png"><INPUT disabled>{"<b>Bold.</b> Plain. " * 12}</div>\n'
        for n in range(40)
    )
    document = (
        '<!DOCTYPE html>\n<html>\n<head><meta charset="utf-8">\n<script>\nif (a < b) { x("</p>") }\n</script></head>\n'
        f"<body>\n{body}</body>\n</html>\n"
    )
    for seed in range(8):
        tags = _Tags()
        tags.feed(part(document, 0.2, seed))
        assert tags.open == []


def test_elements_around_a_text_stay_in_pairs_beside_words() -> None:
    documents = "".join(f"<document>\n{'The pump is old. ' * 20}It weighs {n} kg.\n</document>\n" for n in range(20))
    after = extract(f"Some documents:\n\n{documents}\nWhat weighs 12 kg?", "What weighs 12 kg?", 700)
    assert after.count("<document>") == after.count("</document>") > 0
    assert "It weighs 12 kg." in after


@pytest.mark.parametrize(
    "text",
    [
        "<nick> hello there\n<other> hello you\n" * 90,
        "<a>\n" * 900,
        "Text.\n<!-- open\n" * 90,
        "<p>One.\n<p>Two.\n" * 90,
        'PAGE = """\n<html>\n<p>One.</p>\n</html>\n"""\n' + "x = 1\n" * 90,
    ],
    ids=["chat", "open elements", "open comments", "open paragraphs", "string"],
)
def test_what_is_no_markup_is_read_as_before(text: str) -> None:
    assert "markup" not in [block.kind for block in blocks_of(text)]
    assert "".join(block.text for block in blocks_of(text)) == text


FACT = "The pump weighs 35 kg."
FILLER = "".join(f"Gate number {n} was painted in a calm colour by the crew. " for n in range(60))
QUESTION = "How much does the pump weigh?"


@pytest.mark.parametrize("before", ["We like AT&T!", "We do R&D", "Q&A:\n\n", "See http://a.b/c?x=1&y=2\n", "x &amp;"])
def test_an_ampersand_leaves_the_text_around_it_to_cut(before: str) -> None:
    after = extract(f"<doc>\n{FILLER}{before} {FACT} {FILLER}</doc>", QUESTION, 700)
    assert FACT in after
    assert after.count("<doc>") == after.count("</doc>") == 1


@pytest.mark.parametrize("name", ["String", "T"])
def test_a_word_like_a_tag_is_text(name: str) -> None:
    documents = "".join(
        f'<document index="{n}">\nUse List<{name}> for gate {n}. {FILLER[:400]}\n{FACT if n == 7 else ""}</document>\n'
        for n in range(12)
    )
    after = extract(f"{documents}<{name}>{FILLER[:80]}</{name}>\n", QUESTION, 700)
    assert FACT in after
    assert after.count("<document") == after.count("</document>") > 0


@pytest.mark.parametrize("end", ["", "</p>"], ids=["no end", "one end"])
@pytest.mark.parametrize("name", ["p", "li", "P"])
def test_elements_of_html_need_no_end(name: str, end: str) -> None:
    body = "".join(f'<{name} title="A. Gate. {n}">Gate {n} was painted. It was calm there.\n' for n in range(60))
    page = f"<html>\n<body>\n<div>\n{body}</div>\n<ul>\n{body}{FACT}{end}</ul>\n</body>\n</html>\n"
    assert [block.kind for block in blocks_of(page) if block.text.strip()] == ["markup"]
    after = extract(page, QUESTION, 500)
    assert FACT in after
    assert after.startswith("<html>\n<body>\n")
    assert after.endswith("</ul>\n</body>\n</html>")
    for seed in range(8):
        rest = part(page, 0.2, seed)
        assert rest.count("<div>") == rest.count("</div>")
        assert rest.count("<") == rest.count(">"), "no tag is cut"


ITEMS = "".join(
    f"<item id='{n}'>\n<t>Gate {n}</t>\n<p>{FILLER[:300]}{FACT if n == 9 else ''}</p>\n</item>\n" for n in range(20)
)
ROOTS = {
    "indented": "".join(f"  {line}\n" for line in f"<items>\n{ITEMS}</items>".splitlines()),
    "indented below words": "Look at this:\n\n"
    + "".join(f"\t{line}\n" for line in f"<items>\n{ITEMS}</items>".splitlines()),
    "behind a label": f"Page: <items>{ITEMS}</items>\n",
    "behind three marks": f'The mark """ opens a string.\n\n<items>\n{ITEMS}</items>\n',
    "a script": f"<HTML>\n<BODY>\n<SCRIPT>if (a<b) c();</SCRIPT>\n<items>\n{ITEMS}</items></BODY>\n</HTML>\n",
    "a bracket in quotes": f"<items onclick=\"if (a<b) c()\" title='<'>\n{ITEMS}</items>\n",
    "other letters": f"<items>\n<документ>\n{ITEMS}</документ>\n<文書 番号='1'>{ITEMS}</文書></items>",
    "other letters first": f"<éléments>\n<items>\n{ITEMS}</items></éléments>",
}


@pytest.mark.parametrize("text", ROOTS.values(), ids=ROOTS.keys())
def test_elements_are_seen_wherever_a_line_begins(text: str) -> None:
    assert "markup" in [block.kind for block in blocks_of(text)]
    after = extract(text, QUESTION, 900)
    assert FACT in after
    assert after.count("<items") == after.count("</items>") == 1
    assert 0 < after.count("<item id") == after.count("</item>") < 20
    assert after.count("<p>") == after.count("</p>")


def test_names_in_any_letters_stay_in_pairs() -> None:
    text = "".join(
        f"<документ номер='{n}'>\nВорота {n} синие. Было тихо. Никто не пришёл.\n</документ>\n" for n in range(40)
    )
    after = extract(text, "Ворота 17?", 500)
    assert "Ворота 17" in after
    assert after.count("<документ номер") == after.count("</документ>")


def test_a_diff_of_elements_stays_a_diff() -> None:
    hunks = "".join(
        f"@@ -{n},5 +{n},5 @@\n \n <div class='gate'>\n-  <b>Old {n}</b>\n+  <b>New {n}</b>\n </div>\n"
        for n in range(1, 60)
    )
    text = f"--- a/x.html\n+++ b/x.html\n{hunks}"
    assert [block.kind for block in blocks_of(text)] == ["diff"]


def test_data_in_a_script_stays_valid() -> None:
    data = {"@type": "Gates", "items": [{"name": f"Gate {n}", "note": "Painted <b>calmly</b>."} for n in range(40)]}
    page = f'<html>\n<script type="application/ld+json">\n{json.dumps(data, indent=1)}\n</script>\n{ITEMS}</html>\n'
    after = extract(page, "What is the note of Gate 17?", 900)
    assert "Gate 17" in after
    inside = after.split('ld+json">')[1].split("</script>")[0]
    assert 0 < len(json.loads(inside)["items"]) < 40


def test_a_short_element_behind_a_label_is_prose() -> None:
    text = "Key: <b>The gate is blue.</b> It is old.\n" * 40
    assert [block.kind for block in blocks_of(text)] == ["prose"]


@pytest.mark.parametrize("comment", ["<!-- Key: A. B. C. D -->", f"<!--\n{FILLER[:300]}\n-->"])
@pytest.mark.parametrize("rest", ["", "<doc>\n<p>" + FILLER + "</p>\n</doc>\n", "<open>\n"])
def test_a_comment_of_its_own_goes_whole(comment: str, rest: str) -> None:
    text = f"{FILLER}\n\n{comment}\n{rest}\n{FILLER}\n"
    for seed in range(20):
        after = part(text, 0.4, seed)
        assert comment in after or ("Key" not in after and after.count("-->") == after.count("<!--"))


@pytest.mark.parametrize("mixed", [False, True], ids=["escapes", "escapes beside signs"])
def test_json_in_markup_keeps_its_escapes(mixed: bool) -> None:
    spoken = "<b>Gate & co</b> was painted. " * 60
    data = json.dumps([{"id": n, "h": spoken} for n in range(5)])
    data = data.replace("<", "\\u003c").replace(">", "\\u003E").replace("&", "\\u0026")
    data = data.replace("painted. ", "painted &amp; &gt; done. ") if mixed else data
    for document in (f"<items>\n{data}\n</items>\n", f"<a>\n<c><![CDATA[{data}]]></c>{ITEMS}</a>\n"):
        for seed in range(8):
            after = part(document, 0.3, seed)
            assert "b" not in {element.tag for element in ElementTree.fromstring(after).iter()}


def test_entities_are_never_expanded() -> None:
    names = "abcdefghij"
    entities = "".join(f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in itertools.pairwise(names))
    bomb = f'<!DOCTYPE x [<!ENTITY a "lol">{entities}]>\n<x>\n<y>&j;</y>\n{ROWS}</x>'
    after = extract(bomb, "How heavy is part 17?", 1500)
    assert "It weighs 17 kg" in after
    assert len(after) < 3000

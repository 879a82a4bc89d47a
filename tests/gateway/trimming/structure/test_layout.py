"""A text as a tree: whole it is the text, and whatever part of it stays is still valid JSON, code, diff or table."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import random
import re
import sched
import statistics
import time
import tomllib
import types
from types import ModuleType

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.trimming.structure.blocks import blocks_of
from gateway.trimming.structure.layout import layout_of
from gateway.trimming.structure.segment import num_bytes_of

SHARES = (0.1, 0.4, 0.8)


def whole(text: str) -> str:
    layout = layout_of(text)
    for segment in layout.segments():
        segment.retain()
    return layout.rendered()


def part(text: str, share: float, seed: int = 1) -> str:
    layout, rng = layout_of(text), random.Random(seed)
    segments = [*layout.segments()]
    for segment in segments:
        if rng.random() < share:
            segment.retain()
    segments[-1].retain()
    return layout.rendered()


TEXTS = st.text(alphabet="ab1 .,:;!?\n\t\"'`~{}[]()#|-+@/\\=é。？", max_size=300)


PIECES = (
    "One sentence here. Another one!   A third; é.",
    "# A heading\n\nText below it. More text.\n\n\n",
    "Anna: One is here. Two is there. Three is gone.",
    "```python\nimport os\n\ndef f(x):\n    return x\n\n\ndef g(x):\n    return x\n```",
    "| name | age |\n|---|---|\n| a | 1 |\n| b | 2 |\n| c | 3 |",
    json.dumps({"rows": [{"id": number, "text": "x" * 100} for number in range(9)], "long": "One. Two! " * 200}),
    "\n".join(f'{{"id": {number}, "name": "n{number}"}}' for number in range(4)),
    "--- a/x\n+++ b/x\n" + "".join(f"@@ -{n} +{n} @@ f{n}\n-a\n+b\n" for n in (1, 9, 20)),
)


@settings(deadline=None)
@given(TEXTS)
def test_no_character_is_lost(text: str) -> None:
    assert whole(text) == text
    assert "".join(block.text for block in blocks_of(text)) == text


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_what_stays_is_no_longer_than_the_costs_paid_for_it(pieces: list[str], rng: random.Random) -> None:
    layout = layout_of("\n\n".join(pieces))
    paid = num_bytes_of(layout.rendered())
    segments = [*layout.segments()]
    for segment in rng.sample(segments, len(segments)):
        paid += segment.cost_bytes
        segment.retain()
        assert num_bytes_of(layout.rendered()) <= paid


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=60),
        lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
        max_leaves=60,
    ),
    st.sampled_from([None, 1, 4]),
    st.sampled_from(SHARES),
)
def test_json_stays_json(value: object, indent: int | None, share: float) -> None:
    document = json.dumps({"value": value, "long": "One. Two! " * 200, "rows": [[1, "a"]] * 60}, indent=indent)
    assert json.loads(whole(document)) == json.loads(document)
    json.loads(part(document, share))
    fenced = part(f"Look:\n```json\n{document}\n```\nWhat?", share)
    if "```json" in fenced:
        json.loads(fenced.split("```json\n")[1].split("\n```")[0])


def test_a_json_value_goes_whole_and_a_marker_counts_what_is_left_out() -> None:
    document = json.dumps({"rows": [{"id": number, "text": "x" * 100} for number in range(9)], "end": 1})
    layout = layout_of(document)
    next(segment for segment in layout.segments() if '"id": 4' in segment.text).retain()
    found = json.loads(layout.rendered())
    assert found == {"rows": ["[… 4 left out]", {"id": 4, "text": "x" * 100}, "[… 4 left out]"], "[…]": "1 left out"}


MODULES: tuple[ModuleType, ...] = (json, inspect, random, ast)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
@pytest.mark.parametrize("share", SHARES)
def test_python_stays_python(module: ModuleType, share: float) -> None:
    source = inspect.getsource(module)
    assert [block.kind for block in blocks_of(source)] == ["code"], "it needs no fence"
    for seed in range(3):
        ast.parse(part(source, share, seed))


@pytest.mark.parametrize("module", [copy, sched, statistics, types], ids=lambda module: module.__name__)
@pytest.mark.parametrize("share", SHARES)
def test_python_between_words_stays_python_and_the_words_stay_words(module: ModuleType, share: float) -> None:
    text = f"Look:\n\n{inspect.getsource(module)}\n\nreturn only the name of the function that fails"
    assert [block.kind for block in blocks_of(text)] == ["prose", "code", "prose"]
    layout = layout_of(text)
    segments = [*layout.segments()]
    segments[0].retain()
    segments[-1].retain()
    rng = random.Random(1)
    for segment in segments:
        if rng.random() < share:
            segment.retain()
    rest = layout.rendered()
    assert rest.startswith("Look:\n\n")
    assert rest.endswith("return only the name of the function that fails")
    ast.parse(rest.removeprefix("Look:").removesuffix("return only the name of the function that fails"))


@pytest.mark.parametrize("question", ["What does it do with errors?", "这个函数做什么？", "fix the bug in it please"])
def test_a_question_behind_code_with_brackets_left_open_is_no_code(question: str) -> None:
    text = f"import re\n\nPATTERN = re.compile(r'[(]')\nx = (1,\ny = 2\nz = [3,\n\n{question}"
    assert blocks_of(text)[-1].text == question


GO = """package main

import (
\t"fmt"
\t"os"
)

// Greet says hello.
func Greet(name string) string {
\tif name == "" {
\t\treturn "nobody {"
\t}
\treturn fmt.Sprintf("hello %s", name)
}

type Point struct {
\tX int
\tY int
}

func main() {
\tfmt.Println(Greet(os.Args[1]))
}
"""
JAVASCRIPT = """const fs = require('fs');

class Shop {
  constructor(name) {
    this.name = name; // a "name" {
    this.items = [];
  }

  add(item) {
    if (item) {
      this.items.push(item);
    } else {
      throw new Error(`no item } for ${this.name}`);
    }
  }

  total() {
    return this.items
      .map((item) => item.price)
      .reduce((sum, price) => sum + price, 0);
  }

  describe() {
    const pattern = /[{"]+/g;
    return this.name.replace(pattern, '') + ' sells ' + this.items.length + ' things, and has done so for years';
  }

  save(path) {
    fs.writeFileSync(path, JSON.stringify({ name: this.name, items: this.items, saved: Date.now() }));
  }
}

module.exports = Shop;
"""


@pytest.mark.parametrize("source", [GO, JAVASCRIPT], ids=["Go", "JavaScript"])
@pytest.mark.parametrize("share", SHARES)
def test_code_in_braces_keeps_whole_bodies(source: str, share: float) -> None:
    text = f"Here is the file:\n\n{source}\nWhat does it do?"
    assert "code" in [block.kind for block in blocks_of(text)]
    for seed in range(10):
        rest = part(text, share, seed).replace('"nobody {"', "").replace('// a "name" {', "").replace('/[{"]+/g', "")
        rest = rest.replace("no item } for", "")
        assert rest.count("{") == rest.count("}")
        assert rest.count("(") == rest.count(")")
        for header in ("func Greet(name string) string {", "  total() {"):
            if header in rest:
                assert ('return fmt.Sprintf("hello %s", name)' if "Greet" in header else ".reduce(") in rest


def test_the_package_clause_and_a_class_around_a_method_stay_with_it() -> None:
    layout = layout_of(GO)
    next(segment for segment in layout.segments() if "func main" in segment.text).retain()
    assert layout.rendered().startswith("package main\n")
    layout = layout_of(JAVASCRIPT)
    next(segment for segment in layout.segments() if "total()" in segment.text).retain()
    rest = layout.rendered()
    assert rest.startswith("const fs = require('fs');\n\nclass Shop {\n  // […]\n  total() {")
    assert rest.endswith("  // […]\n}\n\n// […]\n")


def test_a_table_keeps_its_head_and_marks_gaps_by_a_row() -> None:
    table = "| name | age |\n|---|---|\n" + "".join(f"| n{number} | {number} |\n" for number in range(9))
    layout = layout_of(f"See:\n\n{table}\nWhat?")
    next(segment for segment in layout.segments() if "n4" in segment.text).retain()
    assert "| name | age |\n|---|---|\n| […] |\n| n4 | 4 |\n| […] |\n" in layout.rendered()


def test_json_lines_stay_json_lines() -> None:
    lines = "".join(f'{{"id": {number}, "name": "n{number}"}}\n' for number in range(9))
    rest = part(lines, 0.3)
    assert all(json.loads(line) for line in rest.splitlines())
    assert '["[…]"]' in rest


def test_a_diff_keeps_whole_hunks_below_the_header_of_their_file() -> None:
    hunks = "".join(f"@@ -{n},2 +{n},2 @@ def f{n}\n-old {n}\n+new {n}\n same {n}\n" for n in (1, 20, 40))
    diff = f"diff --git a/x.py b/x.py\nindex 123456..abcdef 100644\n--- a/x.py\n+++ b/x.py\n{hunks}"
    layout = layout_of(f"Review:\n\n{diff}")
    next(segment for segment in layout.segments() if "new 20" in segment.text).retain()
    rest = layout.rendered()
    assert "--- a/x.py\n+++ b/x.py\n@@ -20,2 +20,2 @@ […] def f20\n-old 20\n+new 20\n same 20\n" in rest
    assert "new 40" not in rest


@pytest.mark.parametrize("fence", ["```", "~~~", "````text"])
def test_text_behind_a_fence_without_an_end_is_divided_like_any(fence: str) -> None:
    layout = layout_of(f"Look:\n\n{fence}\nOne. Two.\n\n```sh\nls\n```\n\nWhat is it?")
    next(segment for segment in layout.segments() if "What" in segment.text).retain()
    assert layout.rendered() == "...\n\nWhat is it?"


def test_json_is_divided_at_any_usual_depth() -> None:
    document = '{"body":[' * 16 + json.dumps([{"id": number, "text": "x" * 100} for number in range(9)]) + "]}" * 16
    layout = layout_of(document)
    next(segment for segment in layout.segments() if '"id": 4' in segment.text).retain()
    json.loads(layout.rendered())
    assert num_bytes_of(layout.rendered()) < num_bytes_of(document) / 2


def test_a_heading_stays_with_what_stands_below_it() -> None:
    layout = layout_of("# First\n\nOne. Two.\n\n# Second\n\nThree. Four.\n")
    next(segment for segment in layout.segments() if "Four" in segment.text).retain()
    assert layout.rendered() == "...\n\n# Second\n\n... Four.\n"


def test_a_speaker_stays_with_what_was_stated() -> None:
    layout = layout_of("Anna: One is here. Two is there. Three is gone.\nBoris: Four is new. Five is old.\n")
    next(segment for segment in layout.segments() if "Two" in segment.text).retain()
    assert layout.rendered() == "Anna: ... Two is there. ...\n...\n"


@pytest.mark.parametrize(
    "prose",
    [
        "Let us meet at noon; then we go.\nIf it rains, we stay:\nfor a while, with tea.\n",
        "- one item\n- another item (small)\n- a third one; the last\n",
        "# Title\n\nSome words here.\n\n## Part\n\nMore words here.\n",
        "Anna: import the data, please\nBoris: return it then\nCarla: while you wait, class is over\n",
    ],
)
def test_prose_is_no_code(prose: str) -> None:
    assert [block.kind for block in blocks_of(prose)] == ["prose"]


LARGE_BODY = "".join(f"    if mode == {n}:\n        value = run({n})\n        log.append(value)\n" for n in range(60))
LARGE_PYTHON = {
    "function": f"import os\n\n\ndef main(mode):\n    log = []\n{LARGE_BODY}    limit = 4711\n    return log\n",
    "method": "class Shop:\n    def a(self):\n        pass\n\n    def handle(self, mode):\n"
    + "".join(f"    {line}\n" for line in LARGE_BODY.splitlines())
    + "        limit = 4711\n",
    "literal": "PRICES = {\n"
    + "".join(f'    "part {n}": {{"eur": {n}}},\n' for n in range(120))
    + '    "last": 4711\n}\n',
    "clauses": f"try:\n    limit = 4711\n{LARGE_BODY}except ValueError:\n    pass\n",
    "comment on a condition": f"def main(mode):\n    # if limit\n    limit = 4711\n{LARGE_BODY}    # if mode\n"
    + "    return 1\n",
    "shebang": '#!/usr/bin/env python3\n"""What it does, in words."""\n\ndef main(mode):\n    limit = 4711\n'
    + f"{LARGE_BODY}\n",
    "comments": f"def main(mode):\n    # first\n\n{LARGE_BODY}    limit = 4711\n    # last\n",
}


@pytest.mark.parametrize("source", LARGE_PYTHON.values(), ids=LARGE_PYTHON.keys())
def test_a_large_python_statement_is_divided_and_stays_python(source: str) -> None:
    for text in (f"```python\n{source}```", source):
        layout = layout_of(text)
        assert max(segment.num_bytes for segment in layout.segments()) < 1000
        segments = [*layout.segments()]
        next((segment for segment in segments if "4711" in segment.text + segment.context), segments[0]).retain()
        rest = layout.rendered()
        assert "4711" in rest
        assert len(rest) < len(source) / 2
        ast.parse(rest.removeprefix("```python\n").removesuffix("```"))
        for number in range(len(segments)):
            layout = layout_of(text)
            [*layout.segments()][number].retain()
            ast.parse(layout.rendered().removeprefix("```python\n").removesuffix("```"))
        for seed in range(5):
            ast.parse(part(source, 0.2, seed))


CPLUSPLUS = re.compile(r"#ifdef __cplusplus\n.*?#endif\n", re.DOTALL)
"""Parts that a compiler of C does not read."""
LARGE_BRACED = {
    "javascript": "describe('shop', () => {\n"
    + "".join(f"  it('adds {n}', () => {{\n    expect(add({n}, 1)).toBe({n + 1});\n  }});\n\n" for n in range(60))
    + "});\n",
    "typescript": "export const prices = {\n" + "".join(f"  part{n}: {{ eur: {n} }},\n" for n in range(120)) + "};\n",
    "c": '#ifndef A_H\n#define A_H\n#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
    + "".join(f"int f{n}(int x)\n{{\n    return x + {n};\n}}\n\n" for n in range(60))
    + "#ifdef __cplusplus\n}\n#endif\n#endif\n",
    "css": "".join(f".part-{n} {{\n  color: #{n:03d};\n}}\n\n" for n in range(100)),
    "sql": "INSERT INTO t (id) VALUES\n" + "".join(f"  ({n}, 'part {n}'),\n" for n in range(120)) + "  (990, 'end');\n",
    "rust": "fn f(x: u32) -> u32 {\n    match x {\n"
    + "".join(f"        {n} => {n + 1},\n" for n in range(150))
    + "    }\n}\n",
}


@pytest.mark.parametrize(("language", "source"), LARGE_BRACED.items(), ids=LARGE_BRACED.keys())
def test_a_large_statement_in_brackets_is_divided_and_its_brackets_match(language: str, source: str) -> None:
    text = f"```{language}\n{source}```"
    assert max(segment.num_bytes for segment in layout_of(text).segments()) < 1000
    for seed in range(8):
        rest = part(text, 0.2, seed)
        rest = CPLUSPLUS.sub("", rest)
        for pair in ("()", "[]", "{}"):
            assert rest.count(pair[0]) == rest.count(pair[1])
        assert ("/* […] */" in rest) is (language == "css")
        assert rest.count("#if") == rest.count("#endif")
        if language == "sql":
            assert rest.endswith("(990, 'end');\n```")


@pytest.mark.parametrize(
    "fence",
    [
        "```html\n" + "<p>One word.</p>\n" * 90 + "```",
        "```json\n{\n" + '  "key": 1,\n' * 90 + "```",
        "```\n| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 90 + "```",
        "```\n" + "Some words are here. " * 90 + "\n```",
        "```unknown\n" + "one two three\n" * 90 + "```",
    ],
    ids=["HTML", "invalid JSON", "table", "prose", "unknown"],
)
def test_a_fence_around_anything_is_divided(fence: str) -> None:
    layout = layout_of(fence)
    assert max(segment.num_bytes for segment in layout.segments()) < 100
    assert whole(fence) == fence


YAML = "version: 3\nservices:\n" + "".join(
    f"  part{n}:\n    image: part:{n}\n    command: >-\n      run the part\n      and wait\n    ports:\n    - {n}:80\n"
    + "    environment:\n      LEVEL: info\n      REGION: north\n      # a remark\n"
    + "      NAME: something long enough to divide\n"
    + "      OTHER: something else, also of some length, so that it counts\n"
    for n in range(9)
)
TOML = "".join(
    f'[part.p{n}]\nport = {n}\nnames = [\n  "a",\n  "b",\n]\ntext = """\nOne.\n[two]\n"""\n\n' for n in range(9)
)


@pytest.mark.parametrize("share", SHARES)
def test_yaml_stays_yaml_below_its_keys(share: float) -> None:
    for text in (YAML, f"```yaml\n{YAML}```"):
        assert whole(text) == text
        for seed in range(8):
            rest = part(text, share, seed).removeprefix("```yaml\n").removesuffix("```")
            found = yaml.safe_load(rest)
            assert found["services"].keys() <= {f"part{n}" for n in range(9)}


@pytest.mark.parametrize("share", SHARES)
def test_settings_stay_below_the_name_of_their_section(share: float) -> None:
    for text in (TOML, f"```toml\n{TOML}```"):
        assert whole(text) == text
        for seed in range(8):
            rest = part(text, share, seed).removeprefix("```toml\n").removesuffix("```")
            for section in tomllib.loads(rest).get("part", {}).values():
                assert section.keys() <= {"port", "names", "text"}


def test_a_sentence_over_several_lines_stays_whole() -> None:
    fact = "The keeper of the lighthouse, who had served since the great\nstorm, received a pension of forty crowns."
    text = f"Another sentence begins here and goes on to the end of the\nline and further. {fact} More.\n"
    layout = layout_of(text)
    assert [segment.text.strip() for segment in layout.segments()][1] == fact
    assert whole(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "{\n" * 9000 + "}\n" * 9000,
        "```c\n" + "#if A\n" * 9000 + "x();\n" + "#endif\n" * 9000 + "```",
        "```python\n" + "".join(" " * n + f"if x{n}:\n" for n in range(900)) + " " * 900 + "pass\n```",
        "```yaml\n" + "".join(" " * n + "key:\n" for n in range(900)) + " " * 900 + "- a\n```",
    ],
    ids=["braces", "conditions", "Python", "YAML"],
)
def test_deep_nesting_is_read_to_a_bounded_depth(text: str) -> None:
    assert whole(text) == text


@pytest.mark.parametrize("language", ["toml", "ini", "csv", "tsv", "yaml", "json", "diff", "python", ""])
def test_a_fence_without_a_body_stays(language: str) -> None:
    text = f"```{language}\n```\n"
    assert whole(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a: b\n" * 8000,
        "```\na {\n" + "\n" * 40_000 + "b {\n```\n",
        "```js\nf(\n" + "\n" * 40_000 + ");\n```\n",
        "```python\nx = [\n" + " # a\n" * 8000 + " 1,\n 2,\n]\n```\n",
        "/*\n" * 13_000 + "a = 1;\nb = 2;\nc = 3;\n",
        "```js\nx = [\n a,\n" + " //" * 13_000 + '"\n b,\n c,\n];\n```\n',
        "```c\n" + "#ifdef __cplusplus\n" * 2000 + "```\n",
    ],
    ids=["settings", "blank lines", "blank lines in brackets", "comments", "open comments", "slashes", "conditions"],
)
def test_time_grows_with_the_length_of_a_text_and_not_with_its_square(text: str) -> None:
    began = time.process_time()
    assert whole(text) == text
    assert time.process_time() - began < 1.5, "several times what it takes here; with the square it takes longer"

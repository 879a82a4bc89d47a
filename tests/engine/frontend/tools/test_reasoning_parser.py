"""Reasoning is parted from the answer however the text is cut, and marks anywhere else are text."""

from __future__ import annotations

import pytest

from engine.config import Reasoning
from engine.frontend.tools.call_scanner import Parsed
from engine.frontend.tools.reasoning_format import choose_reasoning_format
from engine.frontend.tools.reasoning_parser import ReasoningParser

IDS = {"<think>": 7, "</think>": 8}


def parser(family: Reasoning = "think", *, inside: bool = False, has_tokens: bool = False) -> ReasoningParser:
    form = choose_reasoning_format(family, "", IDS if has_tokens else {})
    assert form is not None
    return ReasoningParser(form, starts_inside=inside)


def parsed(found: ReasoningParser, output: str, size: int) -> tuple[str, str]:
    whole = Parsed()
    for start in range(0, len(output), size):
        whole += found.feed(output[start : start + size])
    whole += found.finish()
    return whole.reasoning, whole.text


@pytest.mark.parametrize(
    ("output", "reasoning", "text"),
    [
        ("<think>\nhm, 2\n\n</think>\n\nIt is 4.\n", "hm, 2", "It is 4.\n"),
        ("\n<think>hm</think>4", "hm", "4"),
        ("<think></think>4", "", "4"),
        ("<think>\n\n</think>\n\n4", "", "4"),
        ("4 ", "", "4 "),
        ("\n\n 4", "", "\n\n 4"),
        ("", "", ""),
        ("<thin", "", "<thin"),
        ("<thinking>x", "", "<thinking>x"),
        ("Use <think>x</think>.", "", "Use <think>x</think>."),
        ("<think>hm</think>Use <think> and </think>.", "hm", "Use <think> and </think>."),
        ("<think>a <think>b</think>c</think>", "a <think>b", "c</think>"),
        ("<think>no end", "no end", ""),
        ("<think>no end</thi", "no end</thi", ""),
        ("<think>a < b </ c </thinking> d</think>x", "a < b </ c </thinking> d", "x"),
        ("<think>日本\n 語</think>\né", "日本\n 語", "é"),
        ("<think>hm</think>", "hm", ""),
        ("</think>x", "", "</think>x"),
    ],
)
def test_reasoning_is_parted_from_the_answer_however_it_is_cut(output: str, reasoning: str, text: str) -> None:
    for size in (1, 2, 3, 5, 1000):
        assert parsed(parser(), output, size) == (reasoning, text), size


@pytest.mark.parametrize(
    ("output", "reasoning", "text"),
    [
        ("\nhm\n</think>\n\n4", "hm", "4"),
        ("<think>hm</think>4", "<think>hm", "4"),
        ("hm", "hm", ""),
        ("</think>4", "", "4"),
    ],
)
def test_an_answer_may_start_inside_its_reasoning(output: str, reasoning: str, text: str) -> None:
    for size in (1, 3, 1000):
        assert parsed(parser(inside=True), output, size) == (reasoning, text)


@pytest.mark.parametrize(
    ("family", "output", "reasoning", "text"),
    [
        ("think_response", "<think>hm</think>\n<response>4 < 5</response>\n", "hm", "4 < 5"),
        ("think_response", "<think>hm</think>4", "hm", "4"),
        ("think_response", "<response>4</response>", "", "4"),
        ("think_response", "<think>hm</think><respond>", "hm", "<respond>"),
        ("think_response", "<think>hm</think><response>4</resp", "hm", "4</resp"),
        ("thought_process", "Here is my thought process: hm\n\nHere is my response: 4", "hm", "4"),
        ("thought_process", "Here's my thought process:\nhm\nHere's my response:\n4", "hm", "4"),
        ("thought_process", "Here is my house.", "", "Here is my house."),
        ("mistral", "[THINK]hm[/THINK]4", "hm", "4"),
    ],
)
def test_families_have_marks_of_their_own(family: Reasoning, output: str, reasoning: str, text: str) -> None:
    for size in (1, 2, 7, 1000):
        assert parsed(parser(family), output, size) == (reasoning, text), size


def test_where_marks_are_tokens_their_spelling_is_text() -> None:
    found = parser(has_tokens=True)
    assert found.feed("\n") == Parsed()
    assert found.mark("<think>") == Parsed()
    assert found.feed("the tags <think> and </think> ") == Parsed(reasoning="the tags <think> and </think>")
    assert found.mark("<think>") == Parsed(reasoning=" <think>")
    assert found.mark("</think>") == Parsed()
    assert found.feed("\n") == Parsed()
    assert found.feed("</think>") == Parsed("</think>")
    assert found.is_over

    quoting = parser(has_tokens=True)
    assert quoting.feed("<think>") == Parsed("<think>")
    assert quoting.mark("<think>") == Parsed("<think>")


def test_reasoning_is_shown_as_soon_as_it_cannot_be_a_mark() -> None:
    found = parser()
    assert found.feed("<think>a <") == Parsed(reasoning="a")
    assert found.feed("b") == Parsed(reasoning=" <b")
    assert found.feed("</think>\n") == Parsed()
    phases = [found.phase]
    assert found.feed("x") == Parsed("x")
    assert [*phases, found.phase] == ["reasoning", "answer"]

"""Messages of gpt-oss become reasoning, text and calls, by their channels and recipients."""

from __future__ import annotations

import re

import pytest

from engine.frontend.tools.call_scanner import CallDelta, Parsed
from engine.frontend.tools.harmony_parser import HarmonyParser
from engine.frontend.tools.tool_format import HARMONY_MARKERS

MARKER = re.compile(f"({'|'.join(map(re.escape, HARMONY_MARKERS))})")
NOTE = "<|channel|>analysis<|message|>hm, 2<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>It is 4.<|return|>"
CALL = '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'


def parser(max_calls: int | None = None, *, hides: bool = True) -> HarmonyParser:
    return HarmonyParser({"f", "g"}, lambda: "id", max_calls, hides_reasoning=hides)


def parsed(found: HarmonyParser, output: str, size: int) -> Parsed:
    """Feed the output, its markers as tokens and its text in pieces."""
    whole = Parsed()
    for i, part in enumerate(MARKER.split(output)):
        if i % 2:
            whole += found.mark(part)
            continue
        for start in range(0, len(part), size):
            whole += found.feed(part[start : start + size])
    return whole + found.finish()


def calls_of(whole: Parsed) -> list[tuple[str, str]]:
    calls: list[tuple[str, str]] = []
    for piece in whole.calls:
        if piece.name is not None:
            assert (piece.index, piece.id) == (len(calls), "id")
            calls.append((piece.name, ""))
        else:
            calls[piece.index] = (calls[piece.index][0], calls[piece.index][1] + piece.arguments)
    return calls


@pytest.mark.parametrize(
    ("output", "reasoning", "text", "calls"),
    [
        (NOTE + FINAL, "hm, 2", "It is 4.", []),
        ("<|channel|>final<|message|>4", "", "4", []),
        (NOTE + CALL, "hm, 2", "", [("f", '{"a": 1}')]),
        (" to=functions.g<|channel|>commentary json<|message|>{}<|call|>", "", "", [("g", "{}")]),
        ("<|channel|>commentary to=f<|message|>{}", "", "", [("f", "{}")]),
        ("<|channel|>commentary to=functions.f<|message|><|call|>", "", "", [("f", "{}")]),
        (NOTE + CALL + CALL, "hm, 2", "", [("f", '{"a": 1}')] * 2),
        ("<|channel|>commentary<|message|>Let me look.<|end|>" + CALL, "", "Let me look.", [("f", '{"a": 1}')]),
        ("<|channel|>commentary to=functions.h<|message|>{}<|call|>", "", "{}", []),
        ("<|channel|>analysis to=python code<|message|>1+1<|call|>", "1+1", "", []),
        (NOTE + "<|start|>assistant" + NOTE + FINAL, "hm, 2\n\nhm, 2", "It is 4.", []),
        (NOTE[:-7], "hm, 2", "", []),
        ("plain answer", "", "plain answer", []),
        (NOTE + " tail", "hm, 2", "tail", []),
        ("<|channel|>analysis<|message|>hm<|channel|>final<|message|>4", "hm", "4", []),
        ("<|channel|>final", "", "", []),
        ("", "", "", []),
    ],
)
def test_an_output_is_taken_apart_by_its_markers(
    output: str, reasoning: str, text: str, calls: list[tuple[str, str]]
) -> None:
    for size in (1, 3, 1000):
        whole = parsed(parser(), output, size)
        assert (whole.reasoning, whole.text, calls_of(whole)) == (reasoning, text, calls), size


def test_markers_spelled_in_a_message_are_text() -> None:
    found = parser()
    found.mark("<|channel|>")
    found.feed("final")
    found.mark("<|message|>")
    assert found.feed("<|end|><|start|>") == Parsed("<|end|><|start|>")


def test_reasoning_may_be_part_of_the_text() -> None:
    whole = parsed(parser(hides=False), NOTE + FINAL, 4)
    assert (whole.reasoning, whole.text) == ("", "hm, 2\n\nIt is 4.")


def test_behind_the_only_call_that_may_be_made_nothing_counts() -> None:
    found = parser(max_calls=1)
    whole = parsed(found, NOTE + CALL + CALL + FINAL, 1000)
    assert (calls_of(whole), whole.text, found.is_full) == ([("f", '{"a": 1}')], "", True)


def test_the_name_is_known_before_the_arguments() -> None:
    found = parser()
    found.mark("<|channel|>")
    found.feed("commentary to=functions.f")
    assert found.mark("<|message|>").calls == (CallDelta(index=0, id="id", name="f"),)
    assert found.feed('{"a"').calls == (CallDelta(index=0, arguments='{"a"'),)

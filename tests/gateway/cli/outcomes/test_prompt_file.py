"""Files of prompts and of outcomes: what is read, what is refused with its place, and how a run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomeFile, OutcomesError, read_prompts

NAMES = ("s", "l")


def line(prompt: str) -> dict[str, object]:
    return {"messages": ComparedPrompt(prompt=prompt).conversation, "outcomes": {"s": 1.0, "l": 0.0}}


def test_a_prompt_that_occurs_twice_is_compared_once(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    again = '{"messages": [{"role": "user", "content": "a"}]}'
    path.write_text(f'{{"prompt": "a", "category": "x"}}\n\n{again}\n{{"prompt": "b", "answer": "2"}}')
    first, second = read_prompts(path)
    assert (first.category, first.answers, second.answers) == ("x", (), ("2",))
    assert first.conversation == ({"role": "user", "content": "a"},)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no prompts"),
        ("{", r"prompts\.jsonl:1: "),
        ('{"prompt": "a"}\n{"text": "b"}', r"prompts\.jsonl:2: has neither"),
        ('{"prompt": 3}', "Expected `str`"),
    ],
)
def test_prompts_that_cannot_be_read_are_reported_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(content)
    with pytest.raises(OutcomesError, match=message):
        read_prompts(path)
    with pytest.raises(OutcomesError, match="cannot be read"):
        read_prompts(tmp_path / "none")


def test_a_later_run_goes_on_behind_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with OutcomeFile(path, NAMES) as file:
        file.add(line("a"))
    path.write_bytes(path.read_bytes() + b'{"messages": [{"ro')
    again = OutcomeFile(path, NAMES)
    assert again.keys == {ComparedPrompt(prompt="a").key}
    with again:
        again.add(line("b"))
    assert OutcomeFile(path, NAMES).keys == {ComparedPrompt(prompt="a").key, ComparedPrompt(prompt="b").key}
    assert path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [("hello\n", "no line of outcomes"), ('{"outcomes": {"x": 1, "l": 1}}\n', "has outcomes of l and x")],
)
def test_a_file_of_something_else_stays_as_it_is(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(content)
    with pytest.raises(OutcomesError, match=message):
        OutcomeFile(path, NAMES)
    assert path.read_text() == content


def test_an_unwritable_place_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(OutcomesError, match="cannot be written"), OutcomeFile(tmp_path / "no" / "out", NAMES):
        pass

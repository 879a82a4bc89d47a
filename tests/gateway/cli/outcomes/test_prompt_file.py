"""Files of prompts and of outcomes: what is read, what is refused with its place, and how a run goes on."""

from __future__ import annotations

import resource
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
        ('{"messages": [{"role": "system", "content": "Hi."}]}', "no message of the user"),
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
    path.write_bytes(path.read_bytes() + b'{"messages":[{"ro')
    again = OutcomeFile(path, NAMES)
    assert again.keys == {ComparedPrompt(prompt="a").key}
    with again:
        again.add(line("b"))
    assert OutcomeFile(path, NAMES).keys == {ComparedPrompt(prompt="a").key, ComparedPrompt(prompt="b").key}
    assert path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello\n", "no line of outcomes"),
        ("hello", "last line is no line of outcomes"),
        ('{"weak": "s"}', "last line is no line of outcomes"),
        ('{"outcomes": {"x": 1, "l": 1}}\n', "has outcomes of l and x"),
    ],
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


def test_prompts_saved_with_a_byte_order_mark_and_answers_as_numbers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a", "answer": 5}\r\n{"prompt": "b", "answer": [0.5, "half"]}\r\n')
    assert [one.answers for one in read_prompts(path)] == [("5",), ("0.5", "half")]


def test_text_parts_count_as_text(tmp_path: Path) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "four"}, {"type": "image_url"}]}
    assert ComparedPrompt(messages=(message,)).num_chars == 4


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    second, third = OutcomeFile(path, NAMES), OutcomeFile(path, NAMES)
    with OutcomeFile(path, NAMES) as first:
        with pytest.raises(OutcomesError, match="another run writes to it"), second:
            pass
        first.add(line("a"))
    with pytest.raises(OutcomesError, match="another run wrote to it meanwhile"), third:
        pass
    assert len(OutcomeFile(path, NAMES).keys) == 1


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with OutcomeFile(path, NAMES) as file:
        file.add(line("a"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
        try:
            with pytest.raises(OutcomesError, match="cannot be written"):
                file.add(line("b"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        file.add(line("c"))
    assert OutcomeFile(path, NAMES).keys == {ComparedPrompt(prompt=text).key for text in "ac"}


def test_a_device_is_no_file_of_outcomes() -> None:
    with pytest.raises(OutcomesError, match="is a device"):
        OutcomeFile(Path("/dev/full"), NAMES)

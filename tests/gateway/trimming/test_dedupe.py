"""Repeated blocks: the earliest copy stays, later ones go, and the last turn is left alone."""

from __future__ import annotations

from gateway.trimming.conversation import Conversation
from gateway.trimming.dedupe import MIN_BLOCK_BYTES, dedupe

BLOCK = "This paragraph is long enough to be worth its bytes. " * 4
LAST = {"role": "user", "content": f"And now?\n\n{BLOCK}"}


def texts(*contents: str) -> list[str]:
    messages = [{"role": "user", "content": content} for content in contents]
    return [message["content"] for message in dedupe(Conversation([*messages, LAST])).messages]


def test_a_block_that_was_reported_before_goes_from_later_messages_of_old_turns() -> None:
    assert len(BLOCK) >= MIN_BLOCK_BYTES
    first, second, last = texts(f"One\n\n{BLOCK}", f"Two\n\n{BLOCK}\n\nthree")
    assert first == f"One\n\n{BLOCK}"
    assert second == "Two\n\n[said before]\n\nthree"
    assert last == LAST["content"], "what is asked now stays whole"


def test_white_space_makes_no_other_block_and_short_ones_may_repeat() -> None:
    spread = BLOCK.replace(" ", "  ")
    assert texts(BLOCK, spread)[1] == "[said before]"
    short = "x" * (MIN_BLOCK_BYTES - 1)
    assert texts(short, short)[1] == short


def test_code_and_instructions_stay() -> None:
    code = f"```\n{BLOCK}\n```"
    assert texts(code, code)[1] == code
    system = {"role": "system", "content": BLOCK}
    messages = [{"role": "user", "content": BLOCK}, system, {"role": "user", "content": "?"}]
    assert dedupe(Conversation(messages)).messages[1] == system


def test_what_instructions_report_need_not_be_reported_again() -> None:
    talk = Conversation([{"role": "system", "content": BLOCK}, {"role": "user", "content": BLOCK}, LAST])
    assert [message["content"] for message in dedupe(talk).messages[:2]] == [BLOCK, "[said before]"]

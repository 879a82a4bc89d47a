"""The question of a conversation stands apart from the orders beside it."""

from __future__ import annotations

import pytest

from gateway.trimming.pinning import pin_ends, pin_orders, question_text, without_orders
from gateway.trimming.structure.layout import layout_of


@pytest.mark.parametrize(
    ("text", "questions", "orders"),
    [
        ("Where is the key? Answer in one word.", "Where is the key? ", "Answer in one word."),
        ("I lost the key. Where is it? Please be brief.", "I lost the key. Where is it? ", "Please be brief."),
        ("Summarize the rules about keys.", "Summarize the rules about keys.", ""),
    ],
)
def test_orders_beside_a_question_are_no_part_of_it(text: str, questions: str, orders: str) -> None:
    assert without_orders(text) == (questions, orders)


def test_a_question_within_a_text_is_the_question_where_its_ends_have_none() -> None:
    layout = layout_of(
        f"Answer briefly.\n\n{'It rained. ' * 90}\nWhere is the key?\n{'It rained. ' * 90}\n\nThanks a lot!"
    )
    ends = pin_ends(layout)
    within = pin_orders(layout, 4000)
    questions, orders = question_text(ends, within)
    assert questions.strip() == "Where is the key?"
    assert "Answer briefly." in orders


def test_questions_within_a_text_have_room_beside_instructions() -> None:
    rules = "".join(f"You must keep rule {n} of this long list at all times.\n" for n in range(90))
    layout = layout_of(f"Hello there.\n\n{rules}Who wrote them?\n{rules}\nThanks a lot!")
    found = pin_orders(layout, 2000)
    assert [segment.text.strip() for segment in found] == ["Who wrote them?"]

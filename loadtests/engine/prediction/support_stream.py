"""Questions to the support of a shop: what was answered before, and what comes next, near it or far from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

_SYSTEM: Final = "You are the support assistant of an online shop. Answer in a few complete sentences."
# A topic a line: two wordings of one question.
_TOPICS: Final = """
My order {order} has not arrived. What can I do? | Order {order} has not come yet. What should I do?
How do I cancel order {order}? | How can I cancel my order {order}?
I was charged twice for order {order}. What should I do? | You charged me twice for order {order}. What now?
The lamp from order {order} is broken. How do I get a new one? | The lamp of order {order} broke. How can I get another?
Where do I find the invoice for order {order}? | Where is the invoice for order {order}?
I entered the wrong address for order {order}. Can you help? | The address of order {order} is wrong. Can you help me?
I ordered on {day}. When will my parcel arrive? | My order is of {day}. When does the parcel come?
I paid {price} euros by card. How do I get a receipt? | I paid {price} euros by card. How can I get a receipt?
I live in {town}. Do you deliver to me? | Do you deliver to {town}, where I live?
I bought a gift card for {price} euros. How do I use it? | How can I use my gift card for {price} euros?
My name is {name}. I would like to close my account. How? | I am {name}. How can I close my account?
I sent order {order} back on {day}. When do I get my money? | Order {order} went back on {day}. When is the refund?
"""
_DETAILS: Final[Sequence[Mapping[str, object]]] = (
    {"order": 48213, "day": "3 May", "price": 25, "town": "Leeds", "name": "Anna"},
    {"order": 77102, "day": "9 May", "price": 40, "town": "Bristol", "name": "Peter"},
)

Conversation = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportQuestion:
    """A question of the stream, and the earlier one whose answer is its prediction."""

    stored: Conversation
    sent: Conversation


def support_stream(seed: int) -> dict[str, list[SupportQuestion]]:
    """Questions by how they differ from the stored one: `detail`, `wording`, `equal`, `unrelated`.

    A detail is a number, a day, a name or a town: a cache must not serve the stored answer, and most of its text is
    right.
    """
    topics = [[wording.strip() for wording in line.split("|")] for line in _TOPICS.strip().splitlines()]
    stream: dict[str, list[SupportQuestion]] = {"detail": [], "wording": [], "equal": [], "unrelated": []}
    before, now = _DETAILS
    for number, (wording, other) in enumerate(topics):
        stored = _conversation(wording.format(**before))
        following = {
            "detail": wording.format(**now),
            "wording": other.format(**before),
            "equal": wording.format(**before),
            "unrelated": topics[(number + 5) % len(topics)][0].format(**now),
        }
        for kind, text in following.items():
            stream[kind].append(SupportQuestion(stored=stored, sent=_conversation(text)))
    order = Random(seed).sample(range(len(topics)), len(topics))
    return {kind: [questions[place] for place in order] for kind, questions in stream.items()}


def _conversation(text: str) -> Conversation:
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}]

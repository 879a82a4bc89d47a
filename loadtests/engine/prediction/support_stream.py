"""Questions to the support of a shop: what was answered before, and what comes next, near it or far from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

SYSTEM: Final = (
    "You are the support assistant of Harbour Goods, an online shop for household goods. Our rules: parcels leave our "
    "warehouse within two working days. Returns are free for 30 days after delivery; print the label in your account "
    "under Orders, put it on the parcel and hand it in at any post office; the refund comes within five working days "
    "after the parcel has arrived. Damaged goods are replaced free of charge; send us a photo of the damage and the "
    "order number. The guarantee covers defects of material for two years. Addresses can be changed until the parcel "
    "has left. Answer the customer's question from these rules in complete sentences."
)
# A topic a line: wordings of one question.
_TOPICS: Final = """
How do I return the {0}? | How can I return the {0}? | I want to send the {0} back. How do I do that?
My {0} arrived with a scratch. What should I do? | My {0} came with a scratch. What can I do? | There is a scratch on my new {0}. What now?
When will the {0} that I ordered be sent? | When do you send the {0} that I ordered? | How long does it take until my {0} is sent?
Can I change the delivery address for the {0}? | Could I change the address my {0} is sent to? | Is it possible to change the address for the {0}?
How long is the guarantee of the {0}? | How long does the guarantee on the {0} last? | For how many years is the {0} guaranteed?
When do I get the money back for the {0}? | When will you refund the {0}? | How long does the refund for the {0} take?
"""  # noqa: E501
_GOODS: Final = ("kettle", "toaster", "desk lamp", "vacuum cleaner", "coffee grinder", "bread knife", "wall clock")

Conversation = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportQuestion:
    """A question of the stream, and the earlier one whose answer is its prediction."""

    stored: Conversation
    sent: Conversation


def support_stream(seed: int) -> dict[str, list[SupportQuestion]]:
    """Questions by how they differ from the stored one: `wording`, `detail`, `equal`, `unrelated`."""
    topics = [[wording.strip() for wording in line.split("|")] for line in _TOPICS.strip().splitlines()]
    stream: dict[str, list[SupportQuestion]] = {"wording": [], "detail": [], "equal": [], "unrelated": []}
    for number, wordings in enumerate(topics):
        for place in range(2):
            goods, other = (_GOODS[(number + place + step) % len(_GOODS)] for step in (0, 3))
            stored = _conversation(wordings[0].format(goods))
            far = topics[(number + 2) % len(topics)][0].format(other)
            following = {
                "wording": wordings[1 + place].format(goods),
                "detail": wordings[0].format(other),
                "equal": wordings[0].format(goods),
                "unrelated": far,
            }
            for kind, text in following.items():
                stream[kind].append(SupportQuestion(stored=stored, sent=_conversation(text)))
    for questions in stream.values():
        Random(seed).shuffle(questions)
    return stream


def _conversation(text: str) -> Conversation:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]

"""Native blocks: content that chat completions cannot express, carried through the chat document as it was written.

A message of the document holds them in the member `content_blocks`, each with its place among the message's blocks:

    blocks     `thinking`, signed │ `text` │ `tool_use`
    message    content_blocks: [{"index": 0, "type": "thinking", …}], content: "…", tool_calls: [{…}]
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

Block = dict[str, Any]

OWN_SIGNATURE: Final = "penstock"
"""Signature of reasoning that a deployment of chat completions made, which signs nothing."""
_EXPRESSIBLE: Final = frozenset({"text", "tool_use"})
_REASONING_KINDS: Final = frozenset({"thinking", "redacted_thinking"})
_RANKS: Final = {**dict.fromkeys(_REASONING_KINDS, 0), "text": 1, "tool_use": 2}
"""Order of the blocks that a message of chat completions stands for: its reasoning, its text, its calls."""
_UNKNOWN_RANK: Final = 3


def placed(index: int, block: Block) -> Block:
    """Return a block with its place among the blocks of its message."""
    return {"index": index, **block}


def kind_of(block: Block) -> str:
    """Return the type of a block; empty where it has none, or none that is a string."""
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def is_own_reasoning(block: Block) -> bool:
    """Return whether the block is reasoning without a maker's signature, which only chat completions can read."""
    return block.get("type") == "thinking" and block.get("signature") in (None, "", OWN_SIGNATURE)


def is_expressible(block: Block) -> bool:
    """Return whether chat completions can express the block of an answer without loss."""
    return kind_of(block) in _EXPRESSIBLE and not block.get("citations")


def is_reasoning(block: Block) -> bool:
    """Return whether the block is reasoning, readable or not."""
    return kind_of(block) in _REASONING_KINDS


def is_in_chat_order(earlier: Block, later: Block) -> bool:
    """Return whether one block of an answer may follow another where chat completions express both.

    They have no order of texts and calls, and no bounds between texts: first reasoning, then one text, then calls.
    """
    first, second = (_RANKS.get(kind_of(block), _UNKNOWN_RANK) for block in (earlier, later))
    return first <= second and not first == second == _RANKS["text"]


def native_of_answer(blocks: list[Block]) -> list[Block]:
    """Return the blocks of an answer to be carried: all, or its reasoning where chat completions express the rest."""
    num_first = next((index for index, block in enumerate(blocks) if not is_reasoning(block)), len(blocks))
    is_usual = all(is_in_chat_order(earlier, later) for earlier, later in pairwise(blocks))
    if is_usual and all(is_expressible(block) for block in blocks[num_first:]):
        blocks = blocks[:num_first]
    return [placed(index, block) for index, block in enumerate(blocks)]


def restored(texts: list[Block], calls: list[Block], stored: Any) -> list[Block]:
    """Return all blocks of a message in order.

    Args:
        texts: Blocks of the message's content.
        calls: Blocks of its tool calls.
        stored: Blocks that were carried, as they arrived; what is no block counts for nothing. Texts and calls among
            them stand for the message's own.
    """
    stored = sorted(blocks_in(stored), key=_place)
    kinds = {kind_of(block) for block in stored}
    others = [*(() if "text" in kinds else texts), *(() if "tool_use" in kinds else calls)]
    blocks: list[Block] = []
    for block in stored:
        while len(blocks) < _place(block) and others:
            blocks.append(others.pop(0))
        blocks.append({name: value for name, value in block.items() if name != "index"})
    return blocks + others


def blocks_in(value: Any) -> list[Block]:
    """Return the blocks of a list that a client or a server wrote."""
    return [block for block in value if isinstance(block, dict)] if isinstance(value, list) else []


def _place(block: Block) -> int:
    index = block.get("index")
    return index if type(index) is int else 0

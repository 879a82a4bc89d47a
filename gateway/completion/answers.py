"""Whole answers by operation: how one ended, and whether it may be stored."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.chat.operation import CHAT, Operation
from gateway.completion.answer_end import AnswerEnd, end_of_plain
from gateway.completion.answer_json import decode_answer, document_of, is_utf8

_ENDED: Final = "stop"
_CONTENT: Final = {CHAT.name: ("message", dict), "completions": ("text", str)}
"""Member of a choice that has its content, by operation."""


class _EmbeddingsFrame(msgspec.Struct, gc=False):
    """JSON around the vectors of an answer; their numbers are not decoded."""

    data: list[msgspec.Raw] | None = None
    error: Any = None


_decode_frame: Final = msgspec.json.Decoder(_EmbeddingsFrame).decode


def end_of_answer(body: bytes, operation: Operation) -> AnswerEnd:
    """Return how a plain answer to this operation ended; anything but an answer is incomplete."""
    return end_of_plain(body) if operation.generates else _end_of_embeddings(body)


def is_whole(answer: bytes, operation: Operation = CHAT) -> bool:
    """Return whether a plain JSON answer may be stored: it is complete, and each choice ended by itself."""
    if not end_of_answer(answer, operation).is_lasting:
        return False
    try:
        document = decode_answer(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):  # NaN or infinity, which many readers refuse
        return False
    if not operation.generates:
        return True
    choices: list[dict[str, Any]] = document["choices"]
    name, kind = _CONTENT[operation.name]
    return all(isinstance(choice.get(name), kind) for choice in choices)


def _end_of_embeddings(body: bytes) -> AnswerEnd:
    end = AnswerEnd()
    end.has_done = True
    try:
        frame = _decode_frame(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        end.see(document_of(body))
        return end
    if frame.error:
        end.see(document_of(body))
    elif frame.data and (body.isascii() or is_utf8(body)):
        end.see_choice(0, _ENDED)
    return end

"""AnswerEnd: how an answer ended. One idea of "complete" for streams, plain answers, caches, cascades and audits."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.completion.stated_errors import (
    StatedError,
    document_of,
    is_failed_reason,
    stated_aside,
    stated_error,
    stated_in_choice,
)
from gateway.completion.usage_parser import usage_in
from gateway.telemetry.records.record import Usage

MAX_CHOICES: Final = 1024
"""Choices of one answer whose ends are told apart; nobody may ask for as many."""
_MAX_OBJECTS: Final = 50_000
_MAX_VALUES: Final = 250_000
"""Of JSON that is decoded at once: more would hold up the event loop, and a thread as well."""
_LASTING: Final = frozenset(
    {
        *("stop", "length", "tool_calls", "function_call"),
        *("eos", "eos_token", "end_turn", "stop_sequence", "complete", "tool_use", "max_tokens", "model_length"),
    }
)
"""Why a choice of an answer worth keeping ended, in any case; a filtered one is nobody else's answer."""


def is_too_detailed(data: bytes) -> bool:
    """Whether decoding `data` makes so many values that the event loop would notice."""
    return len(data) > _MAX_OBJECTS and (data.count(b"{") > _MAX_OBJECTS or data.count(b",") > _MAX_VALUES)


class ChoiceFrame(msgspec.Struct, gc=False):
    """What surrounds the text of one choice, in an event or a plain answer."""

    index: int = 0
    finish_reason: Any = None
    error: Any = None
    usage: Any = None


class AnswerFrame(msgspec.Struct, gc=False):
    """What surrounds the text of an event or of a plain answer."""

    choices: list[ChoiceFrame] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None


_decode_frame: Final = msgspec.json.Decoder(AnswerFrame).decode


class AnswerEnd:
    """Told of documents in their order; read it after the last one."""

    __slots__ = ("_reasons", "error", "has_done", "is_coarse", "is_strange", "usage")

    def __init__(self) -> None:
        self._reasons: dict[int, object] = {}
        """Of every choice seen; None until it has told why it ended."""
        self.error: StatedError | None = None
        """The first failure that the upstream itself reported; some say `[DONE]` after it."""
        self.has_done = False
        """The end was marked: by `[DONE]`, or because a plain answer is whole."""
        self.usage: Usage | None = None
        self.is_strange = False
        """Something in it was no document: a mark of the end alone does not make it whole."""
        self.is_coarse = False
        """Too much for a close look: one choice that ended stands for all."""

    @property
    def is_complete(self) -> bool:
        """Whether the answer is whole.

        A finish reason for every choice suffices. So does a marked end when no choice tells why it ended: some
        servers never do. An error makes it incomplete, whatever follows.
        """
        if self.error is not None:
            return False
        reasons = self._reasons.values()
        if self.is_coarse:
            return self.has_done or any(reasons)
        if not reasons:
            return False
        return all(reasons) or (self.has_done and not self.is_strange and not any(reasons))

    @property
    def is_lasting(self) -> bool:
        """Whether the answer is worth keeping for others: complete, and each choice ended by itself."""
        return (
            self.is_complete
            and not self.is_coarse
            and all(isinstance(reason, str) and reason.lower() in _LASTING for reason in self._reasons.values())
        )

    def see_frames(self, frames: list[AnswerFrame]) -> int:
        """Take events, as most are; returns how many, up to the first that wants a closer look."""
        reasons = self._reasons
        for number, frame in enumerate(frames):
            choices, told = frame.choices, frame.usage
            if frame.error or frame.x_groq or not (choices or told):
                return number
            for choice in choices or ():
                reason, index = choice.finish_reason, choice.index
                if choice.error or choice.usage is not None or (reason is not None and is_failed_reason(reason)):
                    return number
                if reason or index not in reasons:
                    self.see_choice(index, reason)
            if told is not None:
                self.usage = usage_in({"usage": told}) or self.usage
        return len(frames)

    def see(self, document: Any, event: str = "message") -> None:
        """Take one document, whatever it is."""
        error = stated_error(document, event)
        if error is not None:
            self.error = self.error or error
        if not isinstance(document, dict):
            self.is_strange = self.is_strange or event == "message"
            return
        self.usage = usage_in(document) or self.usage
        choices = document.get("choices")
        if not isinstance(choices, list):
            return
        if len(choices) > MAX_CHOICES:
            self.is_coarse = True
        for choice in choices[:MAX_CHOICES]:
            if isinstance(choice, dict):
                self.error = self.error or stated_in_choice(choice)
                self.see_choice(choice.get("index"), choice.get("finish_reason"))

    def see_stray(self, document: Any) -> None:
        """Take what stands outside the events of a stream: no client reads an answer there, but it may be an error."""
        self.is_strange = True
        self.error = self.error or stated_aside(document)

    def see_choice(self, index: object, reason: object) -> None:
        number = index if isinstance(index, int) and not isinstance(index, bool) else 0
        if reason:
            self._reasons[number] = reason
        else:
            self._reasons.setdefault(number, None)
        if len(self._reasons) > MAX_CHOICES:
            self._reasons.clear()
            self.is_coarse = True


def end_of_plain(body: bytes) -> AnswerEnd:
    """How a plain answer ended. What is no JSON object with choices is incomplete."""
    end = AnswerEnd()
    end.has_done = True
    if is_too_detailed(body):
        end.is_coarse, end.has_done = True, b'"choices"' in body
        return end
    try:
        frame = _decode_frame(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        end.see(document_of(body))
        return end
    choices = frame.choices or ()
    is_odd = any(choice.error or is_failed_reason(choice.finish_reason) for choice in choices)
    if is_odd or frame.error or frame.x_groq or not 0 < len(choices) <= MAX_CHOICES:
        end.see(document_of(body))
        return end
    for position, choice in enumerate(choices):
        end.see_choice(position, choice.finish_reason)
    return end

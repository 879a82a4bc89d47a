"""End of an answer: finish reasons, usage, and the timing that is added to it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gateway.chat.json_members import encoded
from gateway.chat.strict_json import LONG_BYTES
from gateway.completion.answer_json import as_written, decode_answer, document_of, is_utf8, written_number
from gateway.completion.stated_errors import (
    StatedError,
    is_failed_reason,
    stated_aside,
    stated_error,
    stated_in_choice,
)
from gateway.telemetry.records.record import Usage

MAX_CHOICES: Final = 1024
"""Maximum number of choices of one answer whose ends are recorded apart; no request may have as many."""
_MAX_OBJECTS: Final = 50_000
_MAX_VALUES: Final = 250_000
"""Maximum number of JSON values decoded at once; more would delay the event loop, even from a thread."""
_LASTING: Final = frozenset(
    {
        *("stop", "length", "tool_calls", "function_call"),
        *("eos", "eos_token", "end_turn", "stop_sequence", "complete", "tool_use", "max_tokens", "model_length"),
    }
)
"""Finish reasons, in lower case, of a choice whose answer may be stored; a filtered one fits no other client."""

_USUAL_REASONS: Final = (None, "stop", "length", "tool_calls")
"""Finish reasons of an answer without failure."""


def is_too_detailed(data: bytes) -> bool:
    """Return whether decoding `data` makes so many values that the event loop would be held up."""
    return len(data) > _MAX_OBJECTS and (data.count(b"{") > _MAX_OBJECTS or data.count(b",") > _MAX_VALUES)


_NULL: Final = msgspec.Raw(b"null")
_MAX_SHORT_BYTES: Final = 4096
"""Size beyond which a finish reason, an error or a usage is not decoded with the frame of a long answer."""


class ChoiceFrame(msgspec.Struct, gc=False):
    """JSON around the text of one choice, in an event or a plain answer."""

    index: int = 0
    finish_reason: Any = None
    error: Any = None
    usage: Any = None


class AnswerFrame(msgspec.Struct, gc=False):
    """JSON around the text of an event or of a plain answer."""

    choices: list[ChoiceFrame] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None


class _LongChoiceFrame(msgspec.Struct, gc=False):
    """ChoiceFrame whose values are not decoded."""

    index: int = 0
    finish_reason: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL
    usage: msgspec.Raw = _NULL


class _LongAnswerFrame(msgspec.Struct, gc=False):
    """AnswerFrame whose values are not decoded."""

    choices: list[_LongChoiceFrame] | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL
    x_groq: msgspec.Raw = _NULL


_decode_frames: Final = msgspec.json.Decoder(list[AnswerFrame], float_hook=as_written).decode
_decode_frame: Final = msgspec.json.Decoder(AnswerFrame, float_hook=as_written).decode
_decode_long_frames: Final = msgspec.json.Decoder(list[_LongAnswerFrame]).decode


def frames_of(events: bytes) -> list[AnswerFrame]:
    """Return the frames of a JSON list of events; of a long one, values that no frame has are left undecoded.

    Raises:
        msgspec.DecodeError: A value is no frame.
        UnicodeDecodeError: The text is no UTF-8.
        RecursionError: A value is nested too deep.
    """
    if len(events) <= LONG_BYTES:
        return _decode_frames(events)
    frames = _decode_long_frames(events)
    return [
        AnswerFrame(
            None if frame.choices is None else [_short_choice(choice) for choice in frame.choices],
            *map(_short, (frame.usage, frame.error, frame.x_groq)),
        )
        for frame in frames
    ]


def _short_choice(choice: _LongChoiceFrame) -> ChoiceFrame:
    return ChoiceFrame(choice.index, *map(_short, (choice.finish_reason, choice.error, choice.usage)))


def _short(value: msgspec.Raw) -> Any:
    """Decode a value; one that is too large for what it should be stays undecoded, and true."""
    return value if len(memoryview(value)) > _MAX_SHORT_BYTES else decode_answer(value)


def _may_have_failed(reason: object) -> bool:
    """Return whether a finish reason names a failure, or is so long that it was not decoded."""
    return isinstance(reason, msgspec.Raw) or is_failed_reason(reason)


class AnswerEnd:
    """End of an answer: feed documents in order; read it after the last one."""

    __slots__ = ("_reasons", "error", "has_done", "is_coarse", "is_strange", "is_unreadable", "mended", "usage")

    def __init__(self) -> None:
        self._reasons: dict[int, object] = {}
        """Finish reason of every choice seen; None until it is known."""
        self.error: StatedError | None = None
        """First failure that the upstream itself reported; some send `[DONE]` after it."""
        self.has_done = False
        """True if the end was marked: by `[DONE]`, or because a plain answer is whole."""
        self.usage: Usage | None = None
        self.is_strange = False
        """True if a part of it was no document; an end mark alone then does not make it whole."""
        self.is_unreadable = False
        """True if a part that clients read is no JSON: it may be text, so that the answer is not whole."""
        self.mended: bytes | None = None
        """A plain answer as JSON, where it was written with what few readers take, such as NaN."""
        self.is_coarse = False
        """True if it is too large to inspect closely: one choice that ended stands for all."""

    @property
    def is_complete(self) -> bool:
        """Return whether the answer is whole.

        A finish reason for every choice suffices. So does a marked end when no choice has a reason: some servers never
        send one. An error, or a part that cannot be read, makes the answer incomplete, whatever follows.
        """
        if self.error is not None or self.is_unreadable:
            return False
        reasons = self._reasons.values()
        if self.is_coarse:
            return self.has_done or any(reasons)
        if not reasons:
            return False
        return all(reasons) or (self.has_done and not self.is_strange and not any(reasons))

    @property
    def is_lasting(self) -> bool:
        """Return whether the answer may be stored for others: it is complete, and each choice ended by itself."""
        return (
            self.is_complete
            and not self.is_coarse
            and all(isinstance(reason, str) and reason.lower() in _LASTING for reason in self._reasons.values())
        )

    def see_frames(self, frames: list[AnswerFrame]) -> int:
        """Take usual events; return how many were taken before the first that needs a full parse."""
        reasons = self._reasons
        for number, frame in enumerate(frames):
            choices, stated = frame.choices, frame.usage
            if frame.error or frame.x_groq or not (choices or stated):
                return number
            for choice in choices or ():
                reason, index = choice.finish_reason, choice.index
                if choice.error or choice.usage is not None:
                    return number
                if reason not in _USUAL_REASONS and _may_have_failed(reason):
                    return number
                if reason or index not in reasons:
                    self.see_choice(index, reason)
            if stated is not None:
                self.usage = usage_in({"usage": stated}) or self.usage
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
        """Note one choice and its finish reason; a false `reason` only registers the choice."""
        number = index if isinstance(index, int) and not isinstance(index, bool) else 0
        if reason:
            self._reasons[number] = reason
        else:
            self._reasons.setdefault(number, None)
        if len(self._reasons) > MAX_CHOICES:
            self._reasons.clear()
            self.is_coarse = True


def end_of_plain(body: bytes) -> AnswerEnd:
    """Return how a plain answer ended; anything but a JSON object with choices is incomplete."""
    end = AnswerEnd()
    end.has_done = True
    if len(body) > _MAX_OBJECTS and body.count(b"{") > _MAX_OBJECTS:
        end.is_coarse, end.has_done = True, b'"choices"' in body
        return end
    try:
        frame = _decode_frame(body) if len(body) <= LONG_BYTES else frames_of(b"[%b]" % body)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if is_too_detailed(body):  # perhaps for a NaN among many numbers
            end.is_coarse, end.has_done = True, b'"choices"' in body
        else:
            document = document_of(body)
            end.see(document)
            end.mended = _strict(document) if end.is_complete else None
        return end
    if not body.isascii() and not is_utf8(body):
        end.is_unreadable = True
        return end
    choices = frame.choices or ()
    has_failed = any(choice.error or _may_have_failed(choice.finish_reason) for choice in choices) or frame.error
    if has_failed or frame.x_groq or not 0 < len(choices) <= MAX_CHOICES:
        if not is_too_detailed(body):
            end.see(document_of(body))
            return end
        end.is_coarse, end.has_done = True, bool(choices)
        end.error = StatedError() if has_failed else None
        return end
    for position, choice in enumerate(choices):
        end.see_choice(position, choice.finish_reason)
    return end


def _strict(document: Any) -> bytes | None:
    """Return an answer as JSON that every reader takes, with null for what is no number; None where there is none."""
    try:
        return encoded(document)
    except UnicodeEncodeError:  # half of a surrogate pair
        return None


_FIRST_TOKEN: Final = re.compile(
    rb'"(?:content|reasoning_content|reasoning|refusal)"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[|"text"\s*:\s*"[^"]'
)
_USAGE: Final = b'"usage"'


_MAX_TOKENS: Final = 1_000_000_000
"""Tokens of one request above which a figure is impossible; it would spoil quotas, prices and forecasts for hours."""
_NumTokens = Annotated[int, Meta(ge=0, le=_MAX_TOKENS)]


class _TokenDetails(msgspec.Struct, frozen=True):
    cached_tokens: _NumTokens | None = None


class _CompletionDetails(msgspec.Struct, frozen=True):
    accepted_prediction_tokens: _NumTokens | None = None
    rejected_prediction_tokens: _NumTokens | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: _NumTokens
    completion_tokens: _NumTokens | None = 0
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Answer(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def has_first_token(piece: bytes) -> bool:
    """Return whether `piece` carries text or a tool call; a role-only delta and a comment do not count."""
    return _FIRST_TOKEN.search(piece) is not None


def usage_of(answer: bytes) -> Usage | None:
    """Return the usage of one JSON answer or event, wherever it stands; None if it is absent or impossible."""
    try:
        usage = _decode_answer(answer).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        usage = None
    if usage is not None:
        details = usage.prompt_tokens_details
        cached = None if details is None else details.cached_tokens
        found = Usage(usage.prompt_tokens, usage.completion_tokens or 0, cached)
        if (made := usage.completion_tokens_details) is not None and made.accepted_prediction_tokens is not None:
            found.predicted_tokens = made.accepted_prediction_tokens, made.rejected_prediction_tokens or 0
        return found
    return usage_in(document_of(answer)) if _USAGE in answer else None


def usage_in(document: Any) -> Usage | None:
    """Return the usage in a decoded answer or event: its own, or that of a choice or of `x_groq`."""
    if not isinstance(document, dict):
        return None
    choices = document.get("choices")
    holders = (document, document.get("x_groq"), *(choices[:1] if isinstance(choices, list) else ()))
    for holder in holders:
        usage = _usage(holder.get("usage")) if isinstance(holder, dict) else None
        if usage is not None:
            return usage
    return None


def _usage(stated: Any) -> Usage | None:
    if not isinstance(stated, dict):
        return None
    prompt, made_tokens = token_count(stated.get("prompt_tokens")), stated.get("completion_tokens")
    completion = token_count(made_tokens)
    if prompt is None or (completion is None and written_number(made_tokens) is not None):
        return None
    details, made = stated.get("prompt_tokens_details"), stated.get("completion_tokens_details")
    found = Usage(
        prompt, completion or 0, token_count(details.get("cached_tokens")) if isinstance(details, dict) else None
    )
    if isinstance(made, dict) and (accepted := token_count(made.get("accepted_prediction_tokens"))) is not None:
        found.predicted_tokens = accepted, token_count(made.get("rejected_prediction_tokens")) or 0
    return found


def token_count(stated: Any) -> int | None:
    """Return a stated number of tokens; None for anything that cannot be one of a single request."""
    if type(stated) is int:  # as nearly all are
        return stated if 0 <= stated <= _MAX_TOKENS else None
    number = written_number(stated)
    if isinstance(number, float):
        number = int(number) if number.is_integer() else None
    return number if number is not None and 0 <= number <= _MAX_TOKENS else None


def merge_timing(answer: bytes, timing: dict[str, float]) -> bytes:
    """Return `answer` with the gateway's stages under `penstock.timing.gateway`; unchanged if it is no JSON object."""
    try:
        document: Any = decode_answer(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return answer
    if not isinstance(document, dict):
        return answer
    extension = document.get("penstock")
    extension = dict(extension) if isinstance(extension, dict) else {}
    stages = extension.get("timing")
    extension["timing"] = {**(stages if isinstance(stages, dict) else {}), "gateway": timing}
    document["penstock"] = extension
    return encoded(document)

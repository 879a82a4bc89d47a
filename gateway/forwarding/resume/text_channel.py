"""TextChannel: the text of a stream whose engine reports no tokens, and the way on behind it at another server.

The next server gets the client's messages and the beginning of the answer, up to the last word. Of text without spaces
it lacks the last few characters. It computes that end anew, and the stream goes on behind it only where it is the one
that the client has. So a template that strips spaces, or a server that begins a new message instead, can neither repeat
nor lose a byte.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded
from gateway.completion.answer_json import document_of, written_number
from gateway.completion.stream_outcome import DONE
from gateway.errors import InvalidRequest
from gateway.upstreams.http1.errors import ExchangePhase, OtherAnswer
from routing_policies.policy.values import Continuation

_EVENT_END: Final = b"\n\n"
_FIELD: Final = b"data:"
_MAX_HELD_BYTES: Final = 1024 * 1024
_MAX_WORD_CHARS: Final = 64
_MIN_JOINT_CHARS: Final = 8
"""Characters of a longer word that the next server computes anew, at least."""
_LAST_WORD: Final = re.compile(r"\s\S*\Z")
_LIMITS: Final = ("max_completion_tokens", "max_tokens")
_TEXT_MEMBERS: Final = frozenset(("role", "content"))


class TextChannel:
    """Reader of a stream of plain text, and editor of one that continues another; it implements `BodyTranslator`."""

    __slots__ = (
        *("_ends", "_held", "_is_at_seam", "_is_continued", "_is_read", "_missing", "_num_given", "_text"),
        *("created", "id", "is_resumable"),
    )

    is_handed_over: Final = False
    """False: such servers hand nothing over."""

    def __init__(self, begun: TextChannel | None = None) -> None:
        """Read a stream; `begun` is the one that it continues."""
        self._held = b""
        self._is_read = True
        self.is_resumable = True
        """False once anything but text was passed on, or the answer's end: the stream cannot be continued."""
        self._is_continued = self._is_at_seam = begun is not None
        self.id: str | None = None if begun is None else begun.id
        """Id of the answer; None before its first event."""
        self.created: int = 0 if begun is None else begun.created
        """Unix time of the answer, in seconds."""
        self._text: str = "" if begun is None else begun._text
        """Text that was passed on, that of earlier servers included."""
        self._ends: list[int] = [] if begun is None else list(begun._ends)
        """Length of the text behind each event that added to it."""
        beginning, self._missing = _beginning_of(self._text, self._ends)
        """Text that the server is given, and text that the client has and the server has not computed yet."""
        self._num_given = bisect_right(self._ends, len(beginning))
        """Tokens of the former, one for each event."""

    @property
    def num_tokens(self) -> int:
        """Number of events with text that were passed on."""
        return len(self._ends)

    @property
    def has_begun(self) -> bool:
        """True if events were passed on."""
        return self.id is not None

    def continued_body(self, body: bytes, continuation: Continuation) -> bytes:
        """Return the request that continues the stream, from the body of the one that began it.

        Raises:
            InvalidRequest: The answer has all the tokens that the client allows.
        """
        beginning, _ = _beginning_of(self._text, self._ends)
        num_given = bisect_right(self._ends, len(beginning))
        document = msgspec.json.decode(body)
        for name in _LIMITS:
            if document.get(name) is not None:
                document[name] -= num_given
                if document[name] < 1:
                    raise InvalidRequest(f"The answer has as many tokens as `{name}` allows.", param=name)
        if beginning:
            document["messages"] = [*document["messages"], {"role": "assistant", "content": beginning}]
            if continuation == "continue_final_message":
                document |= {"continue_final_message": True, "add_generation_prompt": False}
        return encoded(document)

    def feed(self, piece: bytes) -> bytes:
        """Return the whole events so far, as the client gets them.

        Raises:
            OtherAnswer: The stream does not continue the one that it should.
        """
        data = self._held + piece if self._held else piece
        if not self._is_read:
            return data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        whole, mark, self._held = data.rpartition(_EVENT_END)
        if len(self._held) > _MAX_HELD_BYTES:
            self._is_read, self.is_resumable, self._held = False, False, b""
            return data
        return b"".join(map(self._translated, whole.split(_EVENT_END))) if mark else b""

    def finish(self) -> bytes:
        """Return what may be passed on at the end of the body: nothing of an answer that has not ended."""
        rest, self._held = self._held, b""
        return b"" if self.is_resumable else rest

    def _translated(self, event: bytes) -> bytes:
        """Note what an event adds, and return it as the client gets it."""
        whole = event + _EVENT_END
        data = b"\n".join(line[len(_FIELD) :].strip() for line in event.split(b"\n") if line.startswith(_FIELD))
        if data == DONE and self._missing and self._is_continued:
            raise _other_answer()
        if not data or data == DONE:
            return whole
        document = document_of(data)
        choices = _choices_of(document)
        if choices is None:
            self.is_resumable = False  # an error, or nothing of a conversation
            return whole
        text, has_ended = self._read(choices)
        if self.id is None:
            self.id, self.created = str(document.get("id")), _count_in(document.get("created")) or 0
        new = self._new_part(text)
        if new:
            self._text += new
            self._ends.append(len(self._text))
        if has_ended:
            if self._missing and self._is_continued:
                raise _other_answer()
            self.is_resumable = False
        return self._edited(document, choices, new) if self._is_continued else whole

    def _read(self, choices: list[dict[str, Any]]) -> tuple[str, bool]:
        """Return the text of an event, and whether the answer ends with it."""
        text, has_ended = "", False
        for choice in choices:
            delta = choice.get("delta") or {}
            content = delta.get("content") or ""
            others = any(delta[name] for name in delta.keys() - _TEXT_MEMBERS)
            if others or choice.get("index") or not isinstance(content, str):
                self.is_resumable = False
            else:
                text += content
            has_ended = has_ended or bool(choice.get("finish_reason"))
        return text, has_ended

    def _new_part(self, text: str) -> str:
        """Return what the client does not have yet; raises OtherAnswer where the server writes something else."""
        if not self._is_continued or not self._missing or not text:
            return text
        missing = self._missing
        if self._is_at_seam and not text[0].isspace():  # some servers drop the space before their first token
            missing = missing.lstrip()
        self._is_at_seam = False
        if text.startswith(missing):
            self._missing = ""
            return text[len(missing) :]
        if not missing.startswith(text):
            raise _other_answer()
        self._missing = missing[len(text) :]
        return ""

    def _edited(self, document: dict[str, Any], choices: list[dict[str, Any]], new: str) -> bytes:
        """Return an event with the answer's identity, without a second role, and with the usage of the whole answer."""
        document |= {"id": self.id, "created": self.created}
        is_needed = not choices
        for choice in choices:
            delta = choice.get("delta") or {}
            delta.pop("role", None)
            if "content" in delta:
                delta["content"] = new
            is_needed = is_needed or any(delta.values()) or bool(choice.get("finish_reason"))
        usage = document.get("usage")
        if isinstance(usage, dict):
            is_needed = True
            for name, num_more in (("prompt_tokens", -self._num_given), ("completion_tokens", self._num_given)):
                count = _count_in(usage.get(name))
                if count is not None:
                    usage[name] = max(count + num_more, 0)
        return _FIELD + b" " + encoded(document) + _EVENT_END if is_needed else b""


def _other_answer() -> OtherAnswer:
    return OtherAnswer("the server did not continue the answer", phase=ExchangePhase.BODY, response_started=True)


def _choices_of(document: Any) -> list[dict[str, Any]] | None:
    """Return the choices of an event of a conversation; None for anything else."""
    choices = document.get("choices") if isinstance(document, dict) else None
    if not isinstance(choices, list):
        return None
    are_read = all(isinstance(one, dict) and isinstance(one.get("delta") or {}, dict) for one in choices)
    return choices if are_read else None


def _count_in(stated: object) -> int | None:
    """Return the whole number that an event states; None where it states none."""
    number = written_number(stated)
    if isinstance(number, float):
        return int(number) if isfinite(number) else None
    return number


def _beginning_of(text: str, ends: Sequence[int]) -> tuple[str, str]:
    """Return a text without its last word and the spaces around it, and that rest.

    A long word is cut in front of its last events, whose ends `ends` has: there one of its tokens ends.
    """
    stripped = text.rstrip()
    start = max(len(stripped) - _MAX_WORD_CHARS, 0)
    word = _LAST_WORD.search(stripped, start)
    cut = 0
    if word is not None:
        cut = word.start()
    elif start:
        num_before = bisect_right(ends, len(stripped) - _MIN_JOINT_CHARS)
        cut = ends[num_before - 1] if num_before else 0
    beginning = text[:cut].rstrip()
    return beginning, text[len(beginning) :]

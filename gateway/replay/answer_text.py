"""AnswerText: the text, reasoning and tool calls of an answer, and the first difference of two answers."""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec

from gateway.completion.answer_json import decode_answer

_AROUND_BYTES: Final = 60
"""Bytes that a difference shows before and behind its place."""
_CONTENT: Final = "content"
_NO_CHOICE: Final = (TypeError, AttributeError)
"""Errors of reading members of what is no object."""
_PARTS: Final = ("reasoning_content", "reasoning", _CONTENT, "refusal")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference of two texts."""

    at: int
    """Number of equal bytes before it, in UTF-8."""
    then: str
    """Text around the place on the recorded side; characters that the cut splits are replaced."""
    now: str


class AnswerText(msgspec.Struct, frozen=True):
    """Text, reasoning, tool calls and finish reason of an answer, as one text."""

    text: str

    @classmethod
    def of(cls, answer: bytes) -> Self:
        """Return the text of a whole JSON completion. Raises ValueError for bytes that are none."""
        try:
            choices: list[dict[str, Any]] = decode_answer(answer)["choices"]
            texts = [_text_of(choice) for choice in sorted(choices, key=lambda choice: choice.get("index", 0))]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, *_NO_CHOICE) as error:
            raise ValueError("the answer is no chat completion") from error
        return cls(texts[0] if len(texts) == 1 else "".join(f"[choice {i}]\n{one}\n" for i, one in enumerate(texts)))

    @property
    def num_bytes(self) -> int:
        """Return the length in UTF-8."""
        return len(self._bytes)

    @property
    def _bytes(self) -> bytes:
        return self.text.encode(errors="surrogatepass")

    def difference(self, now: AnswerText) -> Difference | None:
        """Return the first difference of another answer; None for the same bytes."""
        one, other = self._bytes, now._bytes
        if one == other:
            return None
        at = _num_equal(one, other)
        return Difference(at=at, then=_around(one, at), now=_around(other, at))


def _text_of(choice: dict[str, Any]) -> str:
    message: dict[str, Any] = choice["message"]
    parts = [(name, text) for name in _PARTS if (text := message.get(name))]
    parts += [("tool call", _called(call)) for call in message.get("tool_calls") or ()]
    if (finish := choice.get("finish_reason")) not in (None, "stop"):
        parts.append(("finish", str(finish)))
    if not parts or [name for name, _ in parts] == [_CONTENT]:
        return str(message.get(_CONTENT) or "")
    return "\n".join(str(text) if name == _CONTENT else f"[{name}] {text}" for name, text in parts)


def _called(call: dict[str, Any]) -> str:
    function: dict[str, Any] = call.get("function") or call.get("custom") or {}
    return f"{function.get('name')} {function.get('arguments', function.get('input', ''))}"


def _num_equal(one: bytes, other: bytes) -> int:
    """Return the number of equal bytes at the beginning; halving compares a megabyte without a step for each byte."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _around(text: bytes, at: int) -> str:
    return text[max(at - _AROUND_BYTES, 0) : at + _AROUND_BYTES].decode(errors="replace")

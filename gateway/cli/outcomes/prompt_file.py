"""Prompts to compare models on, and the file of their outcomes, which a later run goes on with."""

from __future__ import annotations

import fcntl
import os
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

MAX_FILE_BYTES: Final = 1 << 30
_LINE_BEGINNING: Final = b'{"messages":['
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class OutcomesError(ValueError):
    """Outcomes cannot be gathered; the message has the place, the cause and what to do."""


class PromptError(OutcomesError):
    """One prompt cannot be compared, whatever the servers do with others."""


class ComparedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file of prompts."""

    prompt: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    """Conversation in place of `prompt`."""
    category: str = ""
    answer: str | int | float | tuple[str | int | float, ...] = ()
    """Right answers, for a check."""

    @property
    def conversation(self) -> tuple[dict[str, Any], ...]:
        """Return the messages to send."""
        return self.messages or ({"role": "user", "content": self.prompt},)

    @property
    def answers(self) -> tuple[str, ...]:
        """Return the right answers."""
        found = self.answer if isinstance(self.answer, tuple) else (self.answer,)
        return tuple(map(str, found))

    @property
    def key(self) -> str:
        """Return what names the prompt in the file of outcomes: a digest of its messages."""
        return key_of_messages(self.conversation)

    @property
    def num_chars(self) -> int:
        """Return the number of characters of the messages."""
        return sum(len(text_of_message(one)) for one in self.conversation)


def text_of_message(message: dict[str, Any]) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(text for part in parts if isinstance(part, dict) and isinstance(text := part.get("text"), str))


def key_of_messages(messages: tuple[dict[str, Any], ...]) -> str:
    """Return the digest of a conversation."""
    return sha256(msgspec.json.encode(messages, order="deterministic")).hexdigest()


def read_prompts(path: Path) -> list[ComparedPrompt]:
    """Return the different prompts of a file, in its order. Raises OutcomesError."""
    decoder = msgspec.json.Decoder(ComparedPrompt)
    found: dict[str, ComparedPrompt] = {}
    for number, line in enumerate(_content(path).removeprefix(_BYTE_ORDER_MARK).splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OutcomesError(f"{path}:{number}: {error}") from None
        if not one.prompt and not one.messages:
            raise OutcomesError(f"{path}:{number}: has neither `prompt` nor `messages`")
        if not any(message.get("role") == "user" for message in one.conversation):
            raise OutcomesError(f"{path}:{number}: `messages` has no message of the user")
        found.setdefault(one.key, one)
    if not found:
        raise OutcomesError(f'{path}: has no prompts; expected lines such as {{"prompt": "Add 2 and 3."}}')
    return list(found.values())


class _Compared(msgspec.Struct, frozen=True):
    outcomes: dict[str, float]
    messages: tuple[dict[str, Any], ...] = ()
    logprobs: dict[str, Any] = {}


class OutcomeFile:
    """File that outcomes are appended to, one JSON object a line; use it as a context manager."""

    def __init__(self, path: Path, names: tuple[str, str]) -> None:
        """Read what an earlier run left; `names` are the models that a line must have outcomes of.

        Raises:
            OutcomesError: The file is no file of outcomes, or of other models.
        """
        self._path = path
        self.keys: set[str] = set()
        """Keys of the prompts that have outcomes."""
        self.has_odds = False
        """True if some line has log probabilities."""
        self.num_bytes = self._size = 0  # of whole lines, and of the file when it was read
        if path.exists():
            self._read(names)

    def _read(self, names: tuple[str, str]) -> None:
        content = _content(self._path)
        self._size = len(content)
        self.num_bytes = content.rfind(b"\n") + 1  # a run that was killed may have left half a line
        left = content[self.num_bytes :]
        if left[: len(_LINE_BEGINNING)] != _LINE_BEGINNING[: len(left)]:
            raise OutcomesError(f"{self._path}: its last line is no line of outcomes; name another file with --out")
        decoder = msgspec.json.Decoder(_Compared)
        for number, line in enumerate(content[: self.num_bytes].splitlines(), 1):
            try:
                one = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise OutcomesError(
                    f"{self._path}:{number}: no line of outcomes ({error}); name another file"
                ) from None
            if set(one.outcomes) != set(names):
                others = " and ".join(sorted(one.outcomes))
                raise OutcomesError(f"{self._path}:{number}: has outcomes of {others}; name another file with --out")
            self.keys.add(key_of_messages(one.messages))
            self.has_odds = self.has_odds or bool(one.logprobs)

    def __enter__(self) -> OutcomeFile:
        """Open the file behind its last whole line, for this run alone. Raises OutcomesError."""
        try:
            self._stream = self._path.open("r+b" if self._path.exists() else "xb", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._begin()
        except BaseException:
            self._stream.close()
            raise
        return self

    def _begin(self) -> None:
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_as_read = os.fstat(self._stream.fileno()).st_size == self._size
        except BlockingIOError:
            raise OutcomesError(f"{self._path}: another run writes to it; wait for its end") from None
        except OSError as error:
            raise self._unwritable(error) from error
        if not is_as_read:
            raise OutcomesError(f"{self._path}: another run wrote to it meanwhile; run this again")
        self._cut()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._stream.close()

    def add(self, line: dict[str, Any]) -> None:
        """Append one prompt's outcomes; they are in the file when this returns.

        Raises:
            OutcomesError: They are not, and the file ends with the line before.
        """
        content = msgspec.json.encode(line) + b"\n"
        left = memoryview(content)
        try:
            while left:
                left = left[self._stream.write(left) :]
        except OSError as error:
            self._cut()  # half a line would spoil those that follow
            raise self._unwritable(error) from error
        self.num_bytes += len(content)

    def _cut(self) -> None:
        """Cut the file behind its last whole line. Raises OutcomesError."""
        try:
            self._stream.truncate(self.num_bytes)
            self._stream.seek(self.num_bytes)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> OutcomesError:
        return OutcomesError(f"{self._path}: cannot be written ({error.strerror})")


def _content(path: Path) -> bytes:
    try:
        if path.is_char_device() or path.is_block_device():
            raise OutcomesError(f"{path}: is a device, not a file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise OutcomesError(f"{path}: is larger than {MAX_FILE_BYTES >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise OutcomesError(f"{path}: cannot be read ({error.strerror})") from error

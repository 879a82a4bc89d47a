"""Conversations as prompts, by the tokenizer's own template, so that no message can play another role.

A template is text with special tokens in it, and message text is pasted between them. A message that contains
`<|im_start|>` must not start a turn, so a prompt is a list of segments that say who wrote them, and only segments
the template wrote may turn into special tokens (see `tokenizer.encode_segments`).

How the segments are found: each text of the client is replaced by a placeholder with 128 random bits, the template
is rendered, and the output is cut at the placeholders. White space around a text stays outside its placeholder, for
templates that trim. Templates that look inside a message (Qwen cuts old reasoning at `</think>`) would not see it
that way; so when no text of the conversation has even the beginning or the end of a special token in it, which is
nearly always, the true text is rendered and the prompt is one segment, exactly what `transformers` makes. A template
that replaces text could join harmless pieces to a special token; its prompt must then have the special tokens that it
has with placeholders, in the same order.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from engine.config import EngineConfigError
from engine.frontend.request.requests import Message
from engine.frontend.text.sandbox import BoundedEnvironment, TemplateError, render

MAX_TEMPLATE_BYTES = 1024 * 1024
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a prompt; special tokens are recognised only in `trusted` ones."""

    text: str
    trusted: bool


class ChatTemplate:
    """The template of one model. Thread-safe."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        special_texts: Iterable[str],
        *,
        nonce: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        """`special_texts`: every text that the tokenizer turns into one special token. Raises EngineConfigError."""
        try:
            self._template = BoundedEnvironment(now).bounded_template(source)
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError) as error:  # the last three: nesting
            raise EngineConfigError(f"chat template: {error}") from error
        self.source = source
        self._special_tokens = dict(special_tokens)
        special_texts = list(special_texts)
        self._disarm = _Disarmer(special_texts, by_edges="replace" in source)
        self._suspicious = _edges_pattern(special_texts)
        self._find_special = _any_of(special_texts).findall
        self._may_join_pieces = "replace" in source
        self._knows_developer = "developer" in source
        self._nonce = nonce
        self._clock = clock

    def segments(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> list[Segment]:
        """The prompt that asks for the assistant's next turn; `tools` in OpenAI's form.

        Raises TemplateError, also when the template refuses.
        """
        turns = [self._variables(message) for message in messages]
        calls = [self._calls(message) for message in messages]
        shown_tools = self._disarm(list(tools)) if tools else None
        is_harmless = not self._is_suspicious(turns)
        if is_harmless and not self._may_join_pieces:
            return [Segment(self._render(turns, calls, shown_tools), trusted=True)]
        placeholders = _Placeholders(self._nonce())
        hidden = self._render([placeholders.hide(turn) for turn in turns], calls, shown_tools)
        if is_harmless:
            shown = self._render(turns, calls, shown_tools)
            if self._find_special(shown) == self._find_special(hidden):
                return [Segment(shown, trusted=True)]
        return placeholders.cut(hidden)

    def _calls(self, message: Message) -> list[Any]:
        """The message's calls of tools, as the template sees them."""
        calls: list[Any] = self._disarm([call.as_json() for call in message.tool_calls or ()])
        return calls

    def _variables(self, message: Message) -> dict[str, str]:
        role = "system" if message.role == "developer" and not self._knows_developer else message.role
        turn = {"role": role, "content": message.text}
        if message.name is not None:
            turn["name"] = message.name
        if message.tool_call_id is not None:
            turn["tool_call_id"] = message.tool_call_id
        return turn

    def _is_suspicious(self, turns: list[dict[str, str]]) -> bool:
        search = self._suspicious.search
        return any(search(text) for turn in turns for key, text in turn.items() if key != "role")

    def _render(self, turns: list[dict[str, str]], calls: list[list[Any]], tools: Any) -> str:
        messages = [{**turn, "tool_calls": made} if made else turn for turn, made in zip(turns, calls, strict=True)]
        variables = {**self._special_tokens, "messages": messages, "add_generation_prompt": True, "tools": tools}
        return render(self._template, {**variables, "documents": None}, self._clock)


class _Disarmer:
    """Makes special tokens harmless inside tools and calls, which templates write as JSON.

    A placeholder cannot stand for text that will be escaped. So the first character of every special token in there
    is written as JSON escapes it, `\\u003c|im_start|>`: a model still reads it, a tokenizer does not.
    """

    def __init__(self, special_texts: Sequence[str], *, by_edges: bool) -> None:
        """`by_edges`: break every beginning and end of a special token too, for templates that join pieces."""
        if by_edges:
            self._pattern = _edges_pattern(special_texts)
        else:
            self._pattern = _any_of(special_texts)

    def __call__(self, value: Any) -> Any:
        """The value with every text in it disarmed, keys too. Nested as deep as a request may be."""
        if isinstance(value, str):
            return self._pattern.sub(lambda match: f"\\u{ord(match[0][0]):04x}{match[0][1:]}", value)
        if isinstance(value, dict):
            return {self(key): self(child) for key, child in value.items()}
        return [self(child) for child in value] if isinstance(value, list) else value


class _Placeholders:
    """Stand-ins for the texts of one conversation."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._texts: list[str] = []

    def hide(self, turn: dict[str, str]) -> dict[str, str]:
        """The turn with each text replaced, the white space around it kept."""
        return {key: value if key == "role" else self._replace(value) for key, value in turn.items()}

    def _replace(self, text: str) -> str:
        core = text.strip()
        if not core:
            return text
        start = text.index(core)
        self._texts.append(core)
        return f"{text[:start]}{self._nonce}x{len(self._texts) - 1}x{text[start + len(core) :]}"

    def cut(self, rendered: str) -> list[Segment]:
        """The rendered prompt in segments. Raises TemplateError when the template took a placeholder apart."""
        pieces = re.split(f"{self._nonce}x([0-9]+)x", rendered)
        segments = []
        for i, piece in enumerate(pieces):
            if i % 2:
                segments.append(Segment(self._texts[int(piece)], trusted=False))
            elif self._nonce.lower() in piece.lower():
                raise TemplateError("the model's chat template changes message text that has special tokens in it")
            elif piece:
                segments.append(Segment(piece, trusted=True))
        return segments


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Matches each of the texts, the longest where several could."""
    found = sorted((text for text in texts if text), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, found)) if found else r"(?!)")


def _edges_pattern(special_texts: Iterable[str]) -> re.Pattern[str]:
    """Matches any text that holds the first or the last two characters of a special token."""
    edges = {edge for text in special_texts if text for edge in (text[:2], text[-2:])}
    return re.compile("|".join(map(re.escape, sorted(edges))) if edges else r"(?!)")


def load_chat_template(model_dir: Path, special_texts: Iterable[str], nonce: Callable[[], str]) -> ChatTemplate | None:
    """The model directory's template, or None when it has none. Raises EngineConfigError."""
    config = read_json(model_dir / "tokenizer_config.json")
    source = _template_source(model_dir, config)
    if source is None:
        return None
    if len(source.encode()) > MAX_TEMPLATE_BYTES:
        raise EngineConfigError(f"{model_dir}: the chat template exceeds {MAX_TEMPLATE_BYTES} bytes")
    return ChatTemplate(source, special_tokens(config), special_texts, nonce=nonce)


def special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Named special tokens (`bos_token`, …) and their texts."""
    found = {}
    for name in _SPECIAL_NAMES:
        value = tokenizer_config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the model directory; empty when there is none. Raises EngineConfigError."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise EngineConfigError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise EngineConfigError(f"{path}: expected a JSON object")
    return value


def _template_source(model_dir: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    jinja_file = model_dir / "chat_template.jinja"
    if jinja_file.is_file():
        try:
            return jinja_file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise EngineConfigError(f"{jinja_file}: not valid UTF-8: {error}") from error
    value = read_json(model_dir / "chat_template.json").get("chat_template", tokenizer_config.get("chat_template"))
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default")
    if value is None or isinstance(value, str):
        return value
    raise EngineConfigError(f"{model_dir}: chat_template: expected a string or a list with one named 'default'")

"""Chat templates rendered so that message text cannot forge another role.

A template produces text with special tokens, and the message text lies between them. A message that contains
`<|im_start|>` must not start a turn. A prompt is therefore a list of segments, and only segments of the template
may turn into special tokens (see `tokenizer.encode_segments`).

To find the segments, each text of the client is replaced by a placeholder with 128 random bits. The template is
rendered, and its output is cut at the placeholders. White space around a text stays outside its placeholder, for
templates that trim.

Some templates inspect messages (Qwen drops old reasoning up to `</think>`) and would miss the hidden text. So when no
text of the conversation contains the beginning or end of a special token, the true text is rendered. This is the
usual case; the prompt is then one segment, equal to the one of `transformers`. A template that uses `replace` could
join harmless pieces to a special token. Its prompt must have the same special tokens as with placeholders.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta

from engine.config import EngineConfigError
from engine.frontend.request.requests import Message
from engine.frontend.request.template_options import SYSTEM_SWITCHES, TemplateSwitches
from engine.frontend.text.placeholders import Segment, TextPlaceholders
from engine.frontend.text.sandbox import BoundedEnvironment, render
from engine.frontend.text.template_nodes import compared_texts, reasoning_member

MAX_TEMPLATE_BYTES = 1024 * 1024
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_DEFAULT = "default"
_TOOL_USE = "tool_use"
"""Name of the template for requests with tools."""
_OTHER_TEMPLATES = "additional_chat_templates"
"""Folder of templates that are named by their files, beside the default one."""
_OWN_VARIABLES = frozenset(
    {*_SPECIAL_NAMES, "messages", "tools", "documents", "add_generation_prompt", "range", "loop", "caller"}
)
"""Variables that the engine sets."""


class ChatTemplate:
    """Chat template of one model. Thread-safe."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        special_texts: Iterable[str],
        *,
        nonce: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
        with_tools: ChatTemplate | None = None,
    ) -> None:
        """Compile the template.

        Args:
            source: Jinja source.
            special_tokens: Named special tokens (`bos_token`, …) for the template's variables.
            special_texts: Every text that the tokenizer turns into one special token.
            nonce: Returns 128 random bits as hexadecimal digits.
            clock: Monotonic clock of the rendering deadline.
            now: Current time for `strftime_now`.
            with_tools: Template for requests with tools; None: this one.

        Raises:
            EngineConfigError: The template has a syntax error.
        """
        try:
            environment = BoundedEnvironment(now)
            self._template = environment.bounded_template(source)
            tree = environment.parse(source)
            read = jinja2.meta.find_undeclared_variables(tree)
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError) as error:  # nesting: the last three
            raise EngineConfigError(f"chat template: {error}") from error
        self.source = source
        self._special_tokens = dict(special_tokens)
        self.options = frozenset(read) - _OWN_VARIABLES - special_tokens.keys() - environment.globals.keys()
        """Variables that the template reads and a request may set."""
        self.switches = TemplateSwitches(
            variables=self.options,
            efforts=compared_texts(tree, "reasoning_effort"),
            is_harmony="<|channel|>" in source,
            has_system_switch=SYSTEM_SWITCHES[False] in source,
        )
        """Ways to choose how much the model reasons."""
        self.reasoning_member = reasoning_member(tree)
        """Member of an assistant message that the template reads as its reasoning; None: it reads none."""
        special_texts = list(special_texts)
        self._disarm = _Disarmer(special_texts, by_edges="replace" in source)
        self._disarm_edges = _Disarmer(special_texts, by_edges=True)
        self._suspicious = _edges_pattern(special_texts)
        self._find_special = _any_of(special_texts).findall
        self._may_join_pieces = "replace" in source
        self._knows_developer = "developer" in source
        self._nonce = nonce
        self._clock = clock
        self._with_tools = with_tools

    @property
    def tool_source(self) -> str:
        """Jinja source of the template that renders requests with tools."""
        return self.source if self._with_tools is None else self._with_tools.source

    def segments(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> list[Segment]:
        """Render the prompt for the assistant's next turn.

        Args:
            messages: The conversation.
            tools: Tools in the form of the OpenAI API.
            options: Further variables of the template; a string with part of a special token in it is escaped.

        Raises:
            TemplateError: The template refuses the conversation, fails or exceeds a bound.
        """
        if tools and self._with_tools is not None:
            return self._with_tools.segments(messages, tools, options)
        turns = [self._variables(message) for message in messages]
        calls = [self._calls(message) for message in messages]
        shown_tools = self._disarm(list(tools)) if tools else None
        rendered = partial(self._render, tools=shown_tools, options=self._disarm_edges(dict(options or {})))
        is_harmless = not self._is_suspicious(turns)
        if is_harmless and not self._may_join_pieces:
            return [Segment(rendered(turns, calls), trusted=True)]
        placeholders = TextPlaceholders(self._nonce())
        hidden = rendered([placeholders.hide(turn) for turn in turns], calls)
        if is_harmless:
            shown = rendered(turns, calls)
            if self._find_special(shown) == self._find_special(hidden):
                return [Segment(shown, trusted=True)]
        return placeholders.cut(hidden)

    def _calls(self, message: Message) -> list[Any]:
        """Return the message's tool calls as the template's value."""
        calls: list[Any] = self._disarm([call.as_json() for call in message.tool_calls or ()])
        return calls

    def _variables(self, message: Message) -> dict[str, str]:
        role = "system" if message.role == "developer" and not self._knows_developer else message.role
        turn = {"role": role, "content": message.text}
        if message.name is not None:
            turn["name"] = message.name
        if message.tool_call_id is not None:
            turn["tool_call_id"] = message.tool_call_id
        if self.reasoning_member is not None and message.reasoning_content is not None:
            reasoning = message.reasoning_content
            if self.reasoning_member == "thinking" and message.tool_calls and message.text:
                # gpt-oss's template takes one text beside calls, which it writes as reasoning.
                reasoning, turn["content"] = f"{reasoning}\n\n{message.text}", ""
            turn[self.reasoning_member] = reasoning
        return turn

    def _is_suspicious(self, turns: list[dict[str, str]]) -> bool:
        search = self._suspicious.search
        return any(search(text) for turn in turns for key, text in turn.items() if key != "role")

    def _render(self, turns: list[dict[str, str]], calls: list[list[Any]], tools: Any, options: Any) -> str:
        messages = [{**turn, "tool_calls": made} if made else turn for turn, made in zip(turns, calls, strict=True)]
        variables = {
            **options,
            **self._special_tokens,
            "messages": messages,
            "add_generation_prompt": True,
            "tools": tools,
        }
        return render(self._template, {**variables, "documents": None}, self._clock)


class _Disarmer:
    r"""Escaper of special tokens inside tools and calls, which templates write as JSON.

    A placeholder cannot replace text that the template escapes. Instead, the first character of every special token is
    written as a JSON escape, `\u003c|im_start|>`. A model reads it as before, a tokenizer finds no special token.
    """

    def __init__(self, special_texts: Sequence[str], *, by_edges: bool) -> None:
        """Build the pattern of texts to escape.

        Args:
            special_texts: Texts of the special tokens.
            by_edges: True to break every beginning and end of a special token too, for templates that join pieces.
        """
        if by_edges:
            self._pattern = _edges_pattern(special_texts)
        else:
            self._pattern = _any_of(special_texts)

    def __call__(self, value: Any) -> Any:
        """Return the value with every text in it escaped, keys included; recursion is bounded by a request's depth."""
        if isinstance(value, str):
            return self._pattern.sub(lambda match: f"\\u{ord(match[0][0]):04x}{match[0][1:]}", value)
        if isinstance(value, dict):
            return {self(key): self(child) for key, child in value.items()}
        return [self(child) for child in value] if isinstance(value, list) else value


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches each of the texts, the longest where several match."""
    found = sorted((text for text in texts if text), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, found)) if found else r"(?!)")


def _edges_pattern(special_texts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches the first or the last two characters of each special token."""
    edges = {edge for text in special_texts if text for edge in (text[:2], text[-2:])}
    return re.compile("|".join(map(re.escape, sorted(edges))) if edges else r"(?!)")


def load_chat_template(model_dir: Path, special_texts: Iterable[str], nonce: Callable[[], str]) -> ChatTemplate | None:
    """Load the chat template of a model folder.

    Returns:
        The template, or None if the folder has none.

    Raises:
        EngineConfigError: The template is too long or cannot be parsed.
    """
    path = model_dir / "tokenizer_config.json"
    config = read_json(path)
    sources = _template_sources(model_dir, config)
    if not sources:
        return None
    if _DEFAULT not in sources:
        names = ", ".join(ascii(name)[1:-1] for name in sources)
        raise EngineConfigError(f"{model_dir}: none of the chat templates is named {_DEFAULT!r}: {names}")
    if any(len(source.encode()) > MAX_TEMPLATE_BYTES for source in sources.values()):
        raise EngineConfigError(f"{model_dir}: the chat template exceeds {MAX_TEMPLATE_BYTES} bytes")
    special_texts = list(special_texts)

    def compiled(name: str, with_tools: ChatTemplate | None = None) -> ChatTemplate:
        return ChatTemplate(sources[name], named, special_texts, nonce=nonce, with_tools=with_tools)

    named = special_tokens(config, path)
    return compiled(_DEFAULT, compiled(_TOOL_USE) if _TOOL_USE in sources else None)


def special_tokens(tokenizer_config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the named special tokens (`bos_token`, …) and their texts.

    Args:
        tokenizer_config: Content of the model's `tokenizer_config.json`.
        path: That file, for errors.

    Raises:
        EngineConfigError: A token is not a text.
    """
    found = {}
    for name in _SPECIAL_NAMES:
        value = tokenizer_config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if value is not None:
            found[name] = _checked_text(text, f"{path}: {name}", "a text or an object with `content`")
    return found


def _checked_text(value: Any, where: str, expected: str) -> str:
    """Return a text that UTF-8 can hold. Raises EngineConfigError for any other value."""
    if not isinstance(value, str):
        raise EngineConfigError(f"{where}: expected {expected}, got {ascii(value)[:128]}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EngineConfigError(f"{where}: half of a surrogate pair at character {error.start}") from error
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; return an empty one if the file does not exist.

    Raises:
        EngineConfigError: The file is not a JSON object.
    """
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise EngineConfigError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise EngineConfigError(f"{path}: expected a JSON object")
    return value


def _template_sources(model_dir: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Return the model's templates by their names; a single one is the default."""
    jinja_file = model_dir / "chat_template.jinja"
    if jinja_file.is_file():
        others = (model_dir / _OTHER_TEMPLATES).glob("*.jinja")
        return {_DEFAULT: _read_source(jinja_file)} | {file.stem: _read_source(file) for file in sorted(others)}
    value = read_json(model_dir / "chat_template.json").get("chat_template", tokenizer_config.get("chat_template"))
    if value is None:
        return {}
    where, expected = f"{model_dir}: chat_template", "a string or a list with one named 'default'"
    if isinstance(value, list):
        items = [item for item in value if isinstance(item, dict) and isinstance(item.get("name"), str)]
        found = {item["name"]: item["template"] for item in items if isinstance(item.get("template"), str)}
        if found:
            return {name: _checked_text(source, where, expected) for name, source in found.items()}
    return {_DEFAULT: _checked_text(value, where, expected)}


def _read_source(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise EngineConfigError(f"{file}: not valid UTF-8: {error}") from error

"""Conversion between a model's text and a request's: prompts of conversations, grammars, and choices of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from engine.frontend.request.errors import ApiError, invalid_value
from engine.frontend.request.requests import ChatBody, Message
from engine.frontend.request.template_options import system_switch, template_options
from engine.frontend.request.tools import ToolUse
from engine.frontend.text.chat_template import ChatTemplate
from engine.frontend.text.choice import Choice
from engine.frontend.text.sandbox import TemplateError
from engine.frontend.text.tokenizer import Tokenizer
from engine.frontend.tools.call_scanner import CallScanner
from engine.frontend.tools.grammar import Grammar, make_grammar
from engine.frontend.tools.harmony_parser import HarmonyParser
from engine.frontend.tools.reasoning_format import ReasoningFormat, ReasoningStart
from engine.frontend.tools.reasoning_parser import OutputParser, ReasoningParser
from engine.frontend.tools.tagged_parser import TaggedCallParser
from engine.frontend.tools.tool_format import ToolFormat, call_id
from engine.frontend.tools.tool_parser import ToolParser

_NO_TEMPLATE = "`messages` is not supported by this engine: the model has no chat template; use /v1/completions."


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Rendered conversation."""

    token_ids: list[int]
    start: ReasoningStart
    """Place at which the answer starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHandling:
    """How a model's text becomes tokens, prompts, tool calls and reasoning."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    """None: the model has none, and takes no conversations."""
    tool_format: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    """Syntax of the model's reasoning; None: answers show it as they are."""

    @property
    def shows_reasoning_apart(self) -> bool:
        """True if answers may have reasoning apart from their text."""
        return self.reasoning is not None and self.reasoning.is_apart

    def chat_prompt(self, request: ChatBody) -> ChatPrompt:
        """Render a conversation and tokenize it.

        Raises:
            ApiError: The model has no chat template, or the template refuses the conversation (400).
        """
        if self.template is None:
            raise ApiError(400, _NO_TEMPLATE, param="messages", code="unsupported_parameter")
        switches, effort = self.template.switches, request.effort
        options = template_options(request.chat_template_kwargs, effort, switches)
        messages = _switched(request.messages, system_switch(effort, switches))
        tools = request.tool_use.tools if request.tool_use is not None else ()
        try:
            segments = self.template.segments(messages, [tool.as_json() for tool in tools], options)
        except TemplateError as error:
            message = f"`messages` must suit the model's chat template, which refused them: {error}."
            raise invalid_value("messages", message) from error
        # A message in a segment of its own never opens the reasoning.
        tail = segments[-1].text if segments and segments[-1].trusted else ""
        start: ReasoningStart = "behind" if self.reasoning is None else self.reasoning.start_of(tail)
        return ChatPrompt(self.tokenizer.encode_segments(segments), start)

    def grammar(self, request: ChatBody, start: ReasoningStart) -> Grammar | None:
        """Return the grammar of a conversation's answer; None: any text.

        Raises:
            ApiError: A strict tool cannot be enforced (400).
        """
        return make_grammar(request.response_format, request.tool_use, self.tool_format, self.reasoning, start)

    def choice(
        self,
        index: int,
        stops: Sequence[str],
        stop_token_ids: frozenset[int],
        use: ToolUse | None,
        start: ReasoningStart,
        *,
        hides_reasoning: bool = False,
    ) -> Choice:
        """Return one choice of an answer, which starts at this place."""
        token_bytes: Callable[[int], bytes] = self.tokenizer.token_bytes
        tools, form = None, self.tool_format
        parser, markers = self._reasoning_parser(use, start), {} if self.reasoning is None else self.reasoning.markers
        if use is not None and form is not None and form.family != "harmony":
            tools, token_bytes = _call_parser(form, use), form.token_bytes(token_bytes)
        return Choice(
            index=index,
            token_bytes=token_bytes,
            stop_token_ids=stop_token_ids,
            stops=stops,
            tools=tools,
            reasoning=parser,
            markers=markers,
            hides_reasoning=hides_reasoning,
        )

    def _reasoning_parser(self, use: ToolUse | None, start: ReasoningStart) -> OutputParser | None:
        reasoning = self.reasoning
        if reasoning is None or start == "behind":
            return None
        if reasoning.family != "harmony":
            return ReasoningParser(reasoning, starts_inside=start == "inside")
        names = {tool.function.name for tool in use.allowed} if use is not None else set()
        max_calls = None if use is None or use.may_be_many else 1
        return HarmonyParser(names, call_id, max_calls, hides_reasoning=reasoning.is_apart)


def _call_parser(form: ToolFormat, use: ToolUse) -> CallScanner:
    schemas = {tool.function.name: tool.function.schema for tool in use.allowed}
    max_calls = None if use.may_be_many else 1
    kind = TaggedCallParser if form.has_tagged_arguments else ToolParser
    return kind(form, schemas, form.make_id, max_calls)


def _switched(messages: list[Message], switch: str | None) -> list[Message]:
    """Return the conversation with a switch in its system message, which is added where there is none."""
    if switch is None:
        return messages
    if messages and messages[0].role in ("system", "developer"):
        first = msgspec.structs.replace(messages[0], content=f"{messages[0].text}\n{switch}".lstrip("\n"))
        return [first, *messages[1:]]
    return [Message(role="system", content=switch), *messages]

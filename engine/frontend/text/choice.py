"""One choice of a request: tokens in, text out. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from engine.frontend.text.detokenizer import Detokenizer
from engine.frontend.text.stop import StopMatcher
from engine.frontend.tools.tool_parser import CallDelta, ToolParser
from engine.protocol import SeqOutput, StageTimes, TokenLogprobs

Finish = Literal["stop", "length", "tool_calls"]
MIN_LOGPROB = -9999.0
"""Log probability that stands for minus infinity, which JSON cannot express."""


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """Generated token with its log probability in the API's form."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    offset: int
    """Number of characters of the answer before this token."""


@dataclass(frozen=True, slots=True)
class Delta:
    """New output of a choice: text, tool calls, their log probabilities and the finish reason at the end."""

    text: str = ""
    entries: tuple[TokenEntry, ...] = ()
    finish: Finish | None = None
    calls: tuple[CallDelta, ...] = ()

    @property
    def has_content(self) -> bool:
        """True if there is text or a tool call to send."""
        return bool(self.text or self.calls)


@dataclass(slots=True)
class Choice:
    """Text of one sequence so far, detokenized and cut at stop strings."""

    index: int
    token_bytes: Callable[[int], bytes]
    stop_token_ids: frozenset[int]
    stops: Sequence[str] = ()
    tools: ToolParser | None = None
    """Parser of tool calls in the text; None if the request offers no tools."""
    num_tokens: int = 0
    """Number of generated tokens, the end token included."""
    finish: Finish | None = None
    stages: StageTimes | None = None
    has_stopped_itself: bool = False
    """True if a stop string or the last allowed call ended it, so the core still generates."""
    _detokenizer: Detokenizer = field(default_factory=Detokenizer)
    _matcher: StopMatcher = field(init=False)
    _num_chars: int = 0
    """Number of detokenized characters, held-back ones included."""
    _num_shown: int = 0
    _entries: list[TokenEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._matcher = StopMatcher(self.stops)

    def feed(self, output: SeqOutput) -> Delta:
        """Add the output of a step. The caller handles the finish reasons `abort` and `error` before."""
        assert self.finish is None, "an answer that ended got more tokens"
        self.stages = output.stages or self.stages
        if self.tools is None or not self.tools.has_limit or len(output.token_ids) < 2:
            return self._feed(output)
        return self._feed_one_by_one(output)

    def _feed_one_by_one(self, output: SeqOutput) -> Delta:
        """Feed a step's tokens one by one, and stop after the last allowed call."""
        deltas: list[Delta] = []
        for part in _parts(output):
            deltas.append(self._feed(part))
            if self.finish is not None:
                break
        self.has_stopped_itself = self.has_stopped_itself and output.finish_reason is None
        return Delta(
            "".join(delta.text for delta in deltas),
            tuple(entry for delta in deltas for entry in delta.entries),
            self.finish,
            _joined(call for delta in deltas for call in delta.calls),
        )

    def _feed(self, output: SeqOutput) -> Delta:
        token_ids = output.token_ids
        ends = output.finish_reason
        assert ends in (None, "stop", "length"), f"unexpected finish reason {ends}"
        has_end_token = ends == "stop" and bool(token_ids) and token_ids[-1] in self.stop_token_ids
        text = self._feed_tokens(token_ids[:-1] if has_end_token else token_ids, output.logprobs)
        if has_end_token and self._matcher.matched is None:  # else a stop string ended it first
            self.num_tokens += 1
        if self._matcher.matched is None and ends is not None:
            text += self._show(self._detokenizer.flush())
            if self._matcher.matched is None:
                text += self._matcher.flush()
                self.finish = ends
        if self._matcher.matched is not None:
            self.finish = "stop"
            self.has_stopped_itself = ends is None
        self._num_shown += len(text)
        entries = self._release_entries()
        if self.tools is None:
            return Delta(text, entries, self.finish)
        return self._with_calls(self.tools, text, entries)

    def _with_calls(self, tools: ToolParser, text: str, entries: tuple[TokenEntry, ...]) -> Delta:
        """Separate the tool calls from the text."""
        parsed = tools.feed(text)
        shown, calls = parsed.text, parsed.calls
        if tools.is_full and self.finish != "stop":
            self.has_stopped_itself = self.finish is None
            self.finish = "stop"
        if self.finish is not None:
            rest = tools.finish()
            shown, calls = shown + rest.text, calls + rest.calls
            if self.finish == "stop" and tools.num_calls:
                self.finish = "tool_calls"
        return Delta(shown, entries, self.finish, calls)

    def _feed_tokens(self, token_ids: list[int], logprobs: list[TokenLogprobs] | None) -> str:
        if not self.stops and logprobs is None:
            self.num_tokens += len(token_ids)
            return self._detokenizer.feed(b"".join([self.token_bytes(token_id) for token_id in token_ids]))
        shown: list[str] = []
        for i, token_id in enumerate(token_ids):
            self.num_tokens += 1
            if logprobs is not None:
                self._entries.append(_entry(token_id, logprobs[i], self._num_chars))
            shown.append(self._show(self._detokenizer.feed(self.token_bytes(token_id))))
            if self._matcher.matched is not None:
                break
        return "".join(shown)

    def _show(self, text: str) -> str:
        self._num_chars += len(text)
        return self._matcher.feed(text)

    def _release_entries(self) -> tuple[TokenEntry, ...]:
        """Return the log probabilities of the text shown so far.

        Entries of held-back text wait. Entries of a stop string are never returned.
        """
        if not self._entries:
            return ()
        if self.finish is not None and self._matcher.matched is None:
            released = self._entries
            self._entries = []
            return tuple(released)
        released = [entry for entry in self._entries if entry.offset < self._num_shown]
        self._entries = self._entries[len(released) :]
        return tuple(released)


def _entry(token_id: int, logprobs: TokenLogprobs, offset: int) -> TokenEntry:
    top = tuple((other, max(logprob, MIN_LOGPROB)) for other, logprob in logprobs.top)
    return TokenEntry(token_id, max(logprobs.logprob, MIN_LOGPROB), top, offset)


def _parts(output: SeqOutput) -> Iterator[SeqOutput]:
    """Yield one output for each token; only the last one has the finish reason."""
    last = len(output.token_ids) - 1
    for i, token_id in enumerate(output.token_ids):
        yield msgspec.structs.replace(
            output,
            token_ids=[token_id],
            logprobs=None if output.logprobs is None else [output.logprobs[i]],
            finish_reason=output.finish_reason if i == last else None,
        )


def _joined(calls: Iterable[CallDelta]) -> tuple[CallDelta, ...]:
    """Join consecutive pieces of the arguments of each call."""
    joined: list[CallDelta] = []
    for call in calls:
        if joined and joined[-1].index == call.index and joined[-1].name is None:
            joined[-1] = replace(joined[-1], arguments=joined[-1].arguments + call.arguments)
        else:
            joined.append(call)
    return tuple(joined)

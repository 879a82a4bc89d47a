"""One choice of a request: tokens in, text out. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from engine.frontend.text.detokenizer import Detokenizer
from engine.frontend.text.stop import StopMatcher
from engine.frontend.tools.call_scanner import CallDelta, CallScanner, Parsed
from engine.frontend.tools.harmony_parser import HarmonyParser
from engine.frontend.tools.reasoning_parser import OutputParser
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
    """Number of characters of the answer before this token; reasoning is not part of it."""


@dataclass(frozen=True, slots=True)
class Delta:
    """New output of a choice: text, tool calls, reasoning, their log probabilities and the finish reason at the end."""

    text: str = ""
    entries: tuple[TokenEntry, ...] = ()
    """Log probabilities of the answer's tokens."""
    finish: Finish | None = None
    calls: tuple[CallDelta, ...] = ()
    reasoning: str = ""
    reasoning_entries: tuple[TokenEntry, ...] = ()
    """Log probabilities of the reasoning's tokens, the marks around it included."""

    @property
    def has_content(self) -> bool:
        """True if there is text, reasoning or a tool call to send."""
        return bool(self.text or self.calls or self.reasoning)


@dataclass(slots=True)
class Choice:
    """Text of one sequence so far, detokenized, parted from its reasoning and cut at stop strings.

    Stop strings are looked for in the answer only: reasoning may contain them.
    """

    index: int
    token_bytes: Callable[[int], bytes]
    stop_token_ids: frozenset[int]
    stops: Sequence[str] = ()
    tools: CallScanner | None = None
    """Parser of tool calls in the text; None if the request offers no tools."""
    reasoning: OutputParser | None = None
    """Parser of the reasoning before the text; None if there can be none."""
    markers: Mapping[int, str] = field(default_factory=dict)
    """Marks around reasoning that are single tokens, by id."""
    hides_reasoning: bool = False
    """True if the reasoning is counted but not shown."""
    num_tokens: int = 0
    """Number of generated tokens, the end token included."""
    num_reasoning_tokens: int = 0
    """Number of tokens of the reasoning and the marks around it."""
    finish: Finish | None = None
    stages: StageTimes | None = None
    unreported: list[int] | None = None
    """Tokens that the gateway does not know of yet; None where it does not want them, or knows the end."""
    ended_by: Literal["stop", "length"] | None = None
    """Reason for which the core ended it; None before its end, and where its own text ended it."""
    has_stopped_itself: bool = False
    """True if a stop string or the last allowed call ended it, so the core still generates."""
    _detokenizer: Detokenizer = field(default_factory=Detokenizer)
    _matcher: StopMatcher = field(init=False)
    _num_chars: int = 0
    """Number of characters of the answer, held-back ones included."""
    _num_shown: int = 0
    _entries: list[TokenEntry] = field(default_factory=list)
    _reasoning_entries: list[TokenEntry] = field(default_factory=list)
    _open_entries: list[TokenEntry] = field(default_factory=list)
    """Log probabilities of tokens of which later tokens tell whether they are reasoning."""
    _num_open: int = 0
    """Number of such tokens."""

    def __post_init__(self) -> None:
        self._matcher = StopMatcher(self.stops)

    def feed(self, output: SeqOutput) -> Delta:
        """Add the output of a step. The caller handles the finish reasons `abort` and `error` before."""
        assert self.finish is None, "an answer that ended got more tokens"
        self.stages = output.stages or self.stages
        if self.unreported is not None:
            self.unreported += output.token_ids
        caller = self._caller
        if caller is None or not caller.has_limit or len(output.token_ids) < 2:
            return self._feed(output)
        return self._feed_one_by_one(output)

    def replay(
        self, token_ids: Sequence[int], finish: Literal["stop", "length"] | None = None, *, has_logprobs: bool
    ) -> None:
        """Add output that its client has received already; what it shows is dropped.

        Args:
            token_ids: Output so far, up to a place at which `has_open_logprobs` was false.
            finish: Reason for which the core ended it; None if it did not.
            has_logprobs: True if the request has log probabilities, whose offsets count the characters.
        """
        logprobs = [TokenLogprobs(0.0)] * len(token_ids) if has_logprobs else None
        self.feed(SeqOutput(seq_id=0, token_ids=list(token_ids), logprobs=logprobs, finish_reason=finish))

    @property
    def has_open_logprobs(self) -> bool:
        """True if log probabilities wait for later tokens to tell where they belong, and whether they are shown."""
        return bool(self._entries or self._open_entries or self._reasoning_entries)

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
            "".join(delta.reasoning for delta in deltas),
            tuple(entry for delta in deltas for entry in delta.reasoning_entries),
        )

    @property
    def matched_stop(self) -> str | None:
        """Stop string that ended the answer; None without one."""
        return self._matcher.matched

    @property
    def may_call(self) -> bool:
        """True if the answer may have tool calls."""
        return self._caller is not None

    @property
    def _caller(self) -> CallScanner | None:
        """Parser that finds tool calls; in harmony, the parser of the reasoning does."""
        return self.reasoning if isinstance(self.reasoning, HarmonyParser) else self.tools

    def _feed(self, output: SeqOutput) -> Delta:
        token_ids, ends = output.token_ids, output.finish_reason
        assert ends in (None, "stop", "length"), f"unexpected finish reason {ends}"
        self.ended_by = ends
        has_end_token = ends == "stop" and bool(token_ids) and token_ids[-1] in self.stop_token_ids
        parsed = self._feed_tokens(token_ids[:-1] if has_end_token else token_ids, output.logprobs)
        if has_end_token and self._matcher.matched is None:  # else a stop string ended it first
            self.num_tokens += 1
        if self._matcher.matched is None and ends is not None:
            parsed += self._feed_end()
            if self._matcher.matched is None:
                parsed += Parsed(self._matcher.flush())
                self.finish = ends
        if self._matcher.matched is not None:
            self.finish = "stop"
            self.has_stopped_itself = ends is None
        self._num_shown += len(parsed.text)
        entries, reasoning_entries = self._release_entries(), tuple(self._reasoning_entries)
        self._reasoning_entries.clear()
        if self._caller is not None:
            parsed = self._with_calls(self._caller, parsed)
        if self.hides_reasoning:
            return Delta(parsed.text, entries, self.finish, parsed.calls)
        return Delta(parsed.text, entries, self.finish, parsed.calls, parsed.reasoning, reasoning_entries)

    def _with_calls(self, caller: CallScanner, parsed: Parsed) -> Parsed:
        """Separate the tool calls from the text."""
        if caller is self.tools:
            parsed = caller.feed(parsed.text) + Parsed(reasoning=parsed.reasoning)
        if caller.is_full and self.finish != "stop":
            self.has_stopped_itself = self.finish is None
            self.finish = "stop"
        if self.finish is not None:
            parsed += caller.finish()
            if self.finish == "stop" and caller.num_calls:
                self.finish = "tool_calls"
        return parsed

    def _feed_tokens(self, token_ids: list[int], logprobs: list[TokenLogprobs] | None) -> Parsed:
        if not self.stops and logprobs is None and (self.reasoning is None or self.reasoning.is_over):
            self.num_tokens += len(token_ids)
            text = self._detokenizer.feed(b"".join([self.token_bytes(token_id) for token_id in token_ids]))
            return Parsed(text)
        found = Parsed()
        for i, token_id in enumerate(token_ids):
            self.num_tokens += 1
            entry = None if logprobs is None else _entry(token_id, logprobs[i], self._num_chars + self._num_held)
            if self.reasoning is None or self.reasoning.is_over:
                if entry is not None:
                    self._entries.append(entry)
                found += Parsed(self._show(self._detokenizer.feed(self.token_bytes(token_id))))
            else:
                found += self._read(self.reasoning, token_id, entry)
            if self._matcher.matched is not None:
                break
        return found

    @property
    def _num_held(self) -> int:
        return 0 if self.reasoning is None else self.reasoning.num_held

    def _read(self, parser: OutputParser, token_id: int, entry: TokenEntry | None) -> Parsed:
        """Feed a token to the parser of reasoning, and count it where it belongs."""
        was = parser.phase
        if (marker := self.markers.get(token_id)) is None:
            parsed = parser.feed(self._detokenizer.feed(self.token_bytes(token_id)))
        else:
            parsed = parser.feed(self._detokenizer.flush()) + parser.mark(marker)
        self._num_open += 1
        if entry is not None:
            self._open_entries.append(entry)
        has_answer = bool(parsed.text or parsed.calls)
        if not has_answer and "reasoning" in (was, parser.phase):
            if not self._detokenizer.is_incomplete:  # the rest of a character may belong to the answer
                self._decide_reasoning()
        elif has_answer or parser.phase == "answer":
            self._decide(self._entries if has_answer or not parser.has_heads else [])
        return Parsed(self._show(parsed.text), parsed.calls, parsed.reasoning)

    def _decide_reasoning(self) -> None:
        self.num_reasoning_tokens += self._num_open
        self._decide(self._reasoning_entries)

    def _decide(self, entries: list[TokenEntry]) -> None:
        """Move the tokens that waited for a decision."""
        entries += self._open_entries
        self._open_entries = []
        self._num_open = 0

    def _feed_end(self) -> Parsed:
        """Return the last output: an incomplete character, and what the parser of reasoning held back."""
        rest = self._detokenizer.flush()
        if self.reasoning is None:
            return Parsed(self._show(rest))
        parsed = self.reasoning.feed(rest)
        if self.reasoning.phase == "reasoning":
            self._decide_reasoning()
        parsed += self.reasoning.finish()
        self._decide(self._entries)
        return Parsed(self._show(parsed.text), parsed.calls, parsed.reasoning)

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

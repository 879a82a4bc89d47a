"""Affinity: which replica probably has the beginning of a conversation in its KV cache, from the bytes alone.

A conversation is cut at its messages, and a long message every few thousand characters. Each cut has a hash of all that
stands before it, chained from the one before and rooted in the tenant, as engines keep tenants' caches apart. Of the
cuts of a new request the longest one that was sent somewhere before says who has how much of it.

    system │ question │ answer │ question          cuts:  h1   h2   h3   h4
    ───────┴──────────┘ sent before to `a`: h1 h2 → `a` holds the characters up to h2
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatTextPart, ImagePart

MAX_CUTS: Final = 24
"""Of a longer conversation the first and the last count."""
MAX_ENTRIES: Final = 100_000
MAX_HOLDERS: Final = 4

_FIRST_CUTS: Final = 8
_SLICE_CHARS: Final = 4096
_MAX_SLICED_CHARS: Final = 16 * _SLICE_CHARS
"""Beyond it a message is told by its length and its end: nobody waits for a hash of megabytes."""

Prefix = tuple[tuple[int, int], ...]
"""Hash of, and characters before, each cut, shortest first."""


def prefix_of(request: ChatRequest, tenant: str) -> Prefix:
    """The cuts of a request; equal beginnings of one tenant have equal hashes in one process."""
    chain, size = hash((tenant, len(request.fields.tools or ()))), 0
    cuts: list[tuple[int, int]] = []
    for message in request.messages:
        content = message.content
        if type(content) is str and (num_chars := len(content)) <= _SLICE_CHARS:  # nearly all of them
            chain = hash((chain, type(message), content))
            size += num_chars
            cuts.append((chain, size))
            continue
        chain = hash((chain, type(message)))
        for piece, num_chars in _pieces(content):
            chain = hash((chain, piece))
            size += num_chars
            cuts.append((chain, size))
    if len(cuts) > MAX_CUTS:
        cuts = cuts[:_FIRST_CUTS] + cuts[_FIRST_CUTS - MAX_CUTS :]
    return tuple(cuts)


def _pieces(content: str | Sequence[object] | None) -> list[tuple[object, int]]:
    """What is hashed of a message's content, one after the other, with the characters it stands for."""
    if isinstance(content, str):
        return _slices(content)
    pieces: list[tuple[object, int]] = []
    for part in content or ():
        if isinstance(part, ChatTextPart):
            pieces += _slices(part.text)
        elif isinstance(part, ImagePart):
            url = part.image_url.url
            pieces.append(((len(url), url[-256:]), 0))
    return pieces or [("", 0)]


def _slices(text: str) -> list[tuple[object, int]]:
    pieces: list[tuple[object, int]] = [
        (text[start : start + _SLICE_CHARS], min(_SLICE_CHARS, len(text) - start))
        for start in range(0, min(len(text), _MAX_SLICED_CHARS), _SLICE_CHARS)
    ]
    rest = len(text) - _MAX_SLICED_CHARS
    return [*pieces, ((rest, text[-_SLICE_CHARS:]), rest)] if rest > 0 else pieces


class AffinityIndex:
    """Remembers where beginnings were sent; bounded, the least recently sent are forgotten first."""

    __slots__ = ("_holders", "_max_entries", "_sessions")

    def __init__(self, *, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        # A plain dict would look for its first entry behind all the places that forgotten ones left.
        self._holders: OrderedDict[int, tuple[str, ...]] = OrderedDict()
        """By a cut's hash, the latest first; least recently sent cuts first."""
        self._sessions: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def note(self, prefix: Prefix, session: int | None, deployment: str) -> None:
        """The request was sent there."""
        holders = self._holders
        before: tuple[str, ...] | None = None
        alone: tuple[str, ...] = (deployment,)
        after = alone
        for cut, _ in prefix:
            known = holders.get(cut)
            if known is None:
                holders[cut] = alone
                continue
            holders.move_to_end(cut)
            if known is not before:  # cuts that led to the same go on doing so
                before, after = known, _headed_by(deployment, known)
            if known is not after:
                holders[cut] = after
        while len(holders) > self._max_entries:
            holders.popitem(last=False)
        if session is not None:
            self._sessions[session] = deployment
            self._sessions.move_to_end(session)
            if len(self._sessions) > self._max_entries:
                self._sessions.popitem(last=False)

    def held_chars(self, prefix: Prefix) -> Mapping[str, int]:
        """By deployment, the characters of the longest beginning that was sent there."""
        held: dict[str, int] = {}
        find, before = self._holders.get, None
        for cut, num_chars in reversed(prefix):
            found = find(cut)
            if found is None or found is before:  # nobody, or nobody else: cuts of one request share what they lead to
                continue
            before = found
            for deployment in found:
                if deployment not in held:
                    held[deployment] = num_chars
        return held

    def last_of(self, session: int | None) -> str | None:
        """Who answered the session's last request."""
        return None if session is None else self._sessions.get(session)


def _headed_by(deployment: str, holders: tuple[str, ...]) -> tuple[str, ...]:
    """The holders once the request went to this one."""
    if holders[0] == deployment:
        return holders
    others = [other for other in holders if other != deployment]
    return (deployment, *others[: MAX_HOLDERS - 1])


def session_of(request: ChatRequest, tenant: str) -> int | None:
    """What tells a client's conversation apart, if it says so itself: its cache key."""
    key = request.fields.prompt_cache_key
    return None if key is None else hash((tenant, key))

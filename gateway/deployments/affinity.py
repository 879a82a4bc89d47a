"""Affinity: the replica that probably has a conversation's prefix in its KV cache, from the request's bytes alone.

A conversation is cut at its messages, and a long message every few thousand characters. The hash of each cut covers
everything before it. The chain starts from the tenant, because engines separate tenants' caches. The longest cut of a
new request that was sent before names the replicas that hold it.

    system │ question │ answer │ question          cuts:  h1   h2   h3   h4
    ───────┴──────────┘ sent before to `a`: h1 h2 → `a` holds the characters up to h2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatTextPart, ImagePart
from gateway.util.fair_bounded_dict import OwnerShares

MAX_CUTS: Final = 24
"""Number of cuts per request; a longer conversation keeps its first and last ones."""
MAX_ENTRIES: Final = 100_000
MAX_HOLDERS: Final = 4

_FIRST_CUTS: Final = 8
_SLICE_CHARS: Final = 4096
_MAX_SLICED_CHARS: Final = 16 * _SLICE_CHARS
"""Characters beyond which a message is identified by its length and end; hashing megabytes would take too long."""

_USER_PLACES: Final = frozenset({"field:user"})

Prefix = tuple[tuple[int, int], ...]
"""Hash of each cut and the number of characters before it, shortest first."""


def prefix_of(request: ChatRequest, tenant: str) -> Prefix:
    """Return the cuts of a request; within one process, equal beginnings of one tenant have equal hashes."""
    chain, size = hash((tenant, len(request.fields.tools or ()))), 0
    cuts: list[tuple[int, int]] = []
    for message in request.messages:
        content = message.content
        if type(content) is str and (num_chars := len(content)) <= _SLICE_CHARS:  # the usual case
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
    """Return the hashable pieces of a message's content in order, each with its number of characters."""
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
    """Bounded index of the prefixes sent to each deployment.

    Beyond the bound, the tenant with the most prefixes loses those that it sent least recently.
    """

    __slots__ = ("_holders", "_sessions")

    def __init__(self, *, max_entries: int = MAX_ENTRIES) -> None:
        self._holders: OwnerShares[int, tuple[str, ...]] = OwnerShares(max_entries)
        """Deployments by the hash of a cut, the latest first; a tenant's cuts in order of last use."""
        self._sessions: OwnerShares[int, str] = OwnerShares(max_entries)

    def __len__(self) -> int:
        return len(self._holders)

    def note(self, prefix: Prefix, session: int | None, deployment: str, tenant: str = "") -> None:
        """Record that a request of the tenant was sent to a deployment."""
        holders = self._holders.part(tenant)
        num_before = len(holders)
        before: tuple[str, ...] | None = None
        alone: tuple[str, ...] = (deployment,)
        after = alone
        for cut, _ in prefix:
            known = holders.get(cut)
            if known is None:
                holders[cut] = alone
                continue
            holders.move_to_end(cut)
            if known is not before:  # cuts that share a tuple of holders keep sharing one
                before, after = known, _headed_by(deployment, known)
            if known is not after:
                holders[cut] = after
        self._holders.settle(tenant, len(holders) - num_before)
        if session is not None:
            sessions = self._sessions.part(tenant)
            num_before = len(sessions)
            sessions[session] = deployment
            sessions.move_to_end(session)
            self._sessions.settle(tenant, len(sessions) - num_before)

    def held_chars(self, prefix: Prefix, tenant: str = "") -> Mapping[str, int]:
        """Return the characters of the longest prefix that the tenant sent to each deployment."""
        held: dict[str, int] = {}
        find, before = self._holders.find(tenant).get, None
        for cut, num_chars in reversed(prefix):
            found = find(cut)
            if found is None or found is before:  # no holder, or no further one: cuts of one request share their tuples
                continue
            before = found
            for deployment in found:
                if deployment not in held:
                    held[deployment] = num_chars
        return held

    def last_of(self, session: int | None, tenant: str = "") -> str | None:
        """Return the deployment of the session's last request, or None."""
        return None if session is None else self._sessions.find(tenant).get(session)


def _headed_by(deployment: str, holders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the holders with `deployment` moved to the front, at most MAX_HOLDERS."""
    if holders[0] == deployment:
        return holders
    others = [other for other in holders if other != deployment]
    return (deployment, *others[: MAX_HOLDERS - 1])


class NamedSession(NamedTuple):
    """A client's own name for what its request belongs to."""

    place: str
    """Place in the request that names the session, as the policy writes it."""
    value: str

    @property
    def is_conversation(self) -> bool:
        """Return whether it names one conversation, and not all conversations of a user."""
        return self.place not in _USER_PLACES

    def key(self, tenant: str) -> int:
        """Return the session's key in the index."""
        return hash((tenant, self.place, self.value))


class SessionPlaces:
    """Places of a request that may name its session, in order of precedence."""

    __slots__ = ("_headers", "_places")

    def __init__(self, places: Sequence[str]) -> None:
        """Read the policy's list of `field:NAME` and `header:NAME`."""
        self._places = [(place, *place.split(":", 1)) for place in places]
        self._headers = frozenset(name.encode("ascii") for _, kind, name in self._places if kind == "header")

    def find(self, request: ChatRequest, head: ChatHead) -> NamedSession | None:
        """Return the first session that the request names; empty names count as absent."""
        sent: dict[bytes, bytes] | None = None
        for place, kind, name in self._places:
            if kind == "field":
                value = getattr(request.fields, name)
            else:
                if sent is None:
                    sent = head.named(self._headers)
                value = sent.get(name.encode("ascii"), b"").decode("latin-1")
            if value:
                return NamedSession(place, value)
        return None

    def sender(self, head: ChatHead) -> str | None:
        """Return the first session that a header names."""
        sent = head.named(self._headers)
        for _, kind, name in self._places:
            if kind == "header" and (value := sent.get(name.encode("ascii"))):
                return value.decode("latin-1")
        return None

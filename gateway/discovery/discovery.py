"""Discovery: follows the sources that the policies in force name, and says when members have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from gateway.discovery.followed_source import FollowedSource
from gateway.discovery.source import Listing, MemberSource, SourceError
from gateway.timeline import Clock
from gateway.util.doubling_pauses import lasting
from routing_policies.policy.deployment import MemberSourceKey
from routing_policies.policy.document import Policy
from routing_policies.policy.members import Address

_SETTLE_LOOK_S: Final = 0.02


class OpenSource(Protocol):
    """Constructor of a source."""

    def __call__(self, key: MemberSourceKey) -> MemberSource:
        """Return the source of this kind and name; raises SourceError when this process cannot read it."""
        ...


class SourceWatcher(Protocol):
    """Callback for what becomes of a source, for metrics and the log."""

    def __call__(self, key: MemberSourceKey, source: FollowedSource, *, is_listed: bool) -> None:
        """Note a listing or a failure."""
        ...


class _Unreadable:
    """A source that this process cannot read; it reports the reason once."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def follow(self, listing: Listing) -> None:
        """Report the failure."""
        listing.fail(self._reason)


class Discovery:
    """One task for each source; a policy change keeps the sources that it still names."""

    def __init__(
        self,
        open_source: OpenSource,
        clock: Clock,
        *,
        on_change: Callable[[], None],
        watcher: SourceWatcher,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """Follow nothing.

        Args:
            open_source: Makes the source of a key.
            clock: Monotonic clock.
            on_change: Called once in a turn of the loop in which any members changed.
            watcher: Called after each listing or failure.
            on_crash: Called with an error that no source should ever raise.
        """
        self._open_source = open_source
        self._clock = clock
        self._on_change = on_change
        self._watcher = watcher
        self._on_crash = on_crash
        self.sources: dict[MemberSourceKey, FollowedSource] = {}
        """Sources that are followed."""
        self._tasks: dict[MemberSourceKey, asyncio.Task[None]] = {}
        self._crashed: set[MemberSourceKey] = set()
        """Sources that failed by an error of their own since they were opened."""
        self._source_of: dict[str, MemberSourceKey] = {}
        """Source of each group; of the first policy, where several name one for it."""
        self._is_due = False

    def members_for(self, policies: Iterable[Policy]) -> Mapping[MemberSourceKey, tuple[Address, ...]]:
        """Return the members of each source with which `follow` would begin or go on.

        A group whose source changes keeps its members until the new source lists its own: a change of the policy
        leaves no group empty meanwhile. Groups that share a new source keep theirs if they are the same.
        """
        found: dict[MemberSourceKey, tuple[Address, ...]] = {}
        for key, groups in _groups(policies).items():
            source = self.sources.get(key)
            if source is not None:
                found[key] = source.members
                continue
            before = {self._source_of.get(group) for group in groups}
            last = before.pop()
            found[key] = () if before or last is None else self.sources[last].members
        return found

    def follow(self, policies: Iterable[Policy]) -> None:
        """Follow the sources of these policies, and no others; a source that begins anew keeps its last members."""
        policies = tuple(policies)
        wanted = self.members_for(policies)
        for key in self.sources.keys() - wanted.keys():
            del self.sources[key]
            self._tasks.pop(key).cancel()
            self._crashed.discard(key)
        for key, members in wanted.items():
            task = self._tasks.get(key)
            is_crashed = key in self._crashed
            if task is None or task.done() or is_crashed:  # one that crashed, or could not be opened, begins anew
                if task is not None:
                    task.cancel()
                self._begin(key, members)
        self._source_of = {group: key for key, groups in reversed(_groups(policies).items()) for group in groups}

    async def settle(self, timeout_s: float) -> None:
        """Wait until every source has reported once, or until the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not all(source.has_reported for source in self.sources.values()):
                    await asyncio.sleep(_SETTLE_LOOK_S)
        await asyncio.sleep(0)  # changes are reported in the next turn of the loop

    async def aclose(self) -> None:
        """Stop following."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self.sources.clear()
        self._source_of.clear()

    def _begin(self, key: MemberSourceKey, members: tuple[Address, ...]) -> None:
        try:
            reader = self._open_source(key)
        except SourceError as error:
            reader = _Unreadable(str(error))
        source = self.sources.get(key)
        if source is None:
            note_look = partial(self._note_look, key)
            source = self.sources[key] = FollowedSource(self._clock, self._note_change, note_look, members=members)
        self._crashed.discard(key)
        name = f"members {key[0]} {key[1]}"
        following = lasting(partial(reader.follow, source), name, lambda _, error: self._note_crash(key, source, error))
        self._tasks[key] = asyncio.get_running_loop().create_task(following, name=name)

    def _note_look(self, key: MemberSourceKey, is_listed: bool) -> None:
        if key in self.sources:
            self._watcher(key, self.sources[key], is_listed=is_listed)

    def _note_crash(self, key: MemberSourceKey, source: FollowedSource, error: BaseException) -> None:
        """Report a source that failed by an error of its own; its last members stay until it is followed again."""
        self._crashed.add(key)
        source.fail(f"{type(error).__name__}: it is followed again after a pause, or when the policy changes")
        self._on_crash(error)

    def _note_change(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_due = False
        self._on_change()


def _groups(policies: Iterable[Policy]) -> dict[MemberSourceKey, list[str]]:
    """Return the ids of the groups of each source, in the order of the policies."""
    found: dict[MemberSourceKey, list[str]] = {}
    for policy in policies:
        for deployment in policy.deployments:
            if deployment.discover is not None:
                found.setdefault(deployment.discover.source, []).append(deployment.id)
    return found

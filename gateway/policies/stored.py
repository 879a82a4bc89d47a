"""StoredPolicy: the policy as the store's newest revision, adopted by every replica within a second of its apply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from gateway.policies.errors import InvalidPolicy, NoSuchRevision, RevisionConflict
from gateway.policies.history import SPACE, RevisionHistory, revision_number
from gateway.policies.local_copy import PolicyCopy, is_lost
from gateway.policies.policy_file import PolicyFileError, PolicyRevision, PolicyStatus, revision_of
from gateway.policies.reading import DocumentReader, PolicyHooks
from gateway.policies.revision import Revision, RevisionKind
from gateway.policies.seed import Seed
from gateway.store.base import Store, StoreUnavailable
from gateway.store.follower import FOLLOW_S, ChangeFollower
from routing_policies.policy.document import Policy

SYSTEM: Final = "system"
ANY: Final = "*"

Announce = Callable[[Revision], Awaitable[None]]
"""Callback just before a revision is written, for the audit log."""


async def _silent(revision: Revision) -> None:
    """Skip the announcement; the default callback."""


class StoredPolicy:
    """Policy in the store, for editors and for the replica that serves it; only parsing leaves the event loop."""

    def __init__(
        self,
        store: Store,
        *,
        reader: DocumentReader,
        seed: Seed,
        copy: PolicyCopy,
        hooks: PolicyHooks,
        wall: Callable[[], float],
        num_saved: int = 1000,
    ) -> None:
        """Create a follower; `load` adopts the first revision.

        `on_revision` gets each new policy and may refuse it with a ValueError; `on_status` follows it. The newest
        `num_saved` revisions stay in the store. `on_restored` gets a revision written back to a store that had lost it.
        """
        self._num_saved = num_saved
        self._hooks = hooks
        self.history = RevisionHistory(store)
        self.reader = reader
        self._seed = seed
        self._copy = copy
        self.wall = wall
        """Clock of revisions and of trials, in seconds since 1970."""
        self._follower = ChangeFollower(store, SPACE, self._take_key, wants=self._wants)
        self._newest: Revision | None = None
        self._head: Revision | None = None
        self._status: PolicyStatus | None = None
        self._applying = asyncio.Lock()
        self._num_gaps = 0
        """Number of gaps in the store's feed after which the newest revision was verified."""
        self._is_unverified = False
        """True after a start without the store, until its newest revision is compared with the one in force."""
        self.others: dict[str, Callable[[bytes | None], Awaitable[None]]] = {}
        """Callbacks for the values of other keys of the space, by key."""

    @property
    def head(self) -> Revision:
        """Revision in force in this process; only after `load`."""
        assert self._head is not None, "load() comes first"
        return self._head

    @property
    def newest(self) -> Revision:
        """Newest revision, in force unless this process cannot serve it."""
        return self._newest or self.head

    @property
    def status(self) -> PolicyStatus:
        """Status that shows whether the newest revision is in force here, and the reason if not."""
        assert self._status is not None, "load() comes first"
        return self._status

    async def load(self) -> None:
        """Adopt the newest revision; an empty store gets the local copy, else the seed. May raise PolicyFileError."""
        try:
            await self._load_newest()
        except StoreUnavailable as error:
            await self._load_without_store(error)
        except InvalidPolicy as error:
            message = "\n".join(problem.render(str(self._seed.path)) for problem in error.problems)
            raise PolicyFileError(message) from error

    async def _begin(self, revision: Revision) -> None:
        """Serve a revision, or else the local copy; only then is a canary put beside it. Raises PolicyFileError."""
        await self._take(revision)
        if self._head is None:
            await self._load_saved(f"the newest revision cannot be served: {self.status.error}")

    async def _load_saved(self, why: str) -> None:
        """Serve the local copy; the newest revision stays the newest. Raises PolicyFileError without a usable copy."""
        saved = await asyncio.to_thread(self._copy.read)
        if saved is None or saved == self._newest:
            raise PolicyFileError(why)
        try:
            self._put_in_force(saved, await asyncio.to_thread(self.reader.read, saved.document))
        except (InvalidPolicy, ValueError) as error:
            raise PolicyFileError(f"{why}\nthe last good revision, {saved.number}, is of no use: {error}") from error
        self._report(f"{why}\nstarted on the last good one, revision {saved.number}")

    async def watch(self) -> None:
        """Follow the store until cancelled."""
        while True:
            with suppress(StoreUnavailable):  # the store's observer reports it, and missed changes are read later
                await self.catch_up()
            await asyncio.sleep(FOLLOW_S)

    async def catch_up(self) -> None:
        """Adopt new revisions, and restore the newest one where the store has lost it. Raises StoreUnavailable."""
        await self._follower.catch_up()
        if self._is_unverified:
            await self._verify()
        if self._num_gaps != self._follower.num_gaps:
            num_gaps = self._follower.num_gaps
            if await self.history.newest_number() < self.newest.number:
                await self._give_back(self.newest)
            self._num_gaps = num_gaps

    async def apply(
        self,
        document: str,
        *,
        author: str,
        reason: str,
        if_match: str,
        kind: RevisionKind = "apply",
        of: int | None = None,
        evidence: dict[str, Any] | None = None,
        announce: Announce = _silent,
    ) -> Revision:
        """Make `document` the newest revision; return the current one when the documents are equal.

        Raises:
            RevisionConflict: The newest revision is not `if_match`, or another replica was faster.
            InvalidPolicy: The document fails its checks.
            StoreUnavailable: The store cannot be used.
        """
        async with self._applying:
            await self.catch_up()
            before = self.newest
            if if_match not in (ANY, before.etag):
                raise RevisionConflict(if_match, before)
            await asyncio.to_thread(self.reader.read, document)
            if document == before.document:
                return before
            revision = self._following(before, document, author, reason, kind)
            revision = msgspec.structs.replace(revision, of=of, evidence=evidence)
            await announce(revision)
            if not await self.history.append(revision):
                await self.catch_up()
                raise RevisionConflict(if_match, self.newest)
            with suppress(StoreUnavailable):  # already written: the feed delivers it, and the next apply prunes
                await self.catch_up()
                await self.history.prune(revision.number + 1 - self._num_saved)
            return revision

    async def revision(self, number: int) -> Revision:
        """Return one revision.

        Raises:
            NoSuchRevision: There is none of this number.
            StoreUnavailable: The store cannot be read.
        """
        found = await self.history.get(number)
        if found is None:
            raise NoSuchRevision(f"there is no revision {number}; the newest is {self.newest.number}")
        return found

    async def _load_newest(self) -> None:
        saved = await asyncio.to_thread(self._copy.read)
        number = await self.history.newest_number()
        try:
            newest = await self.history.get(number)
        except msgspec.DecodeError as error:  # damaged, or of a newer version; later revisions are still read
            if saved is None:
                raise PolicyFileError(_unreadable(number, error)) from error
            await self._begin(saved)
            await self._follower.catch_up()
            self._report(f"{_unreadable(number, error)}\nstarted on the last good one, revision {saved.number}")
            return
        if saved is not None and is_lost(saved, newest):
            await self._give_back(saved)
            newest = saved
        if newest is None or self._seed.replaces(newest):
            newest = await self._plant(newest)
        await self._begin(newest)
        await self._follower.catch_up()

    def _following(
        self, before: Revision | None, document: str, author: str, reason: str, kind: RevisionKind
    ) -> Revision:
        number = 0 if before is None else before.number
        return Revision(
            number=number + 1,
            revision=revision_of(document.encode()),
            parent=number or None,
            author=author,
            reason=reason,
            at=self.wall(),
            kind=kind,
            document=document,
        )

    async def _plant(self, before: Revision | None) -> Revision:
        """Write the seed; return the revision of another replica if that was faster."""
        document = self._seed.document()
        await asyncio.to_thread(self.reader.read, document)
        seed = self._following(before, document, SYSTEM, self._seed.reason, "seed")
        if await self.history.append(seed):
            return seed
        theirs = await self.history.get(await self.history.newest_number())
        assert theirs is not None, "a number that was taken has a revision"
        return theirs

    async def _give_back(self, revision: Revision) -> None:
        """Write a lost revision under its own number, so replicas with an older one adopt it."""
        if await self.history.append(revision):
            self._hooks.on_restored(revision)

    async def _load_without_store(self, lost: StoreUnavailable) -> None:
        """Serve the revision that was in force when this replica last reached the store."""
        saved = await asyncio.to_thread(self._copy.read)
        if saved is None and self._seed.serves_without_store:
            document = self._seed.document()
            saved = msgspec.structs.replace(
                self._following(None, document, SYSTEM, self._seed.reason, "seed"), number=0, parent=None
            )
        if saved is None:
            raise PolicyFileError(f"the policy is in the store, and the store cannot be used: {lost}") from lost
        self._is_unverified = True
        await self._begin(saved)
        self._report(f"the store cannot be used, so this may not be the newest revision: {lost}")

    async def _verify(self) -> None:
        """Do what a start with the store does: give back a revision that it lost, or adopt an older one made later."""
        with suppress(msgspec.DecodeError):  # the follower has reported it
            stored = await self.history.get(await self.history.newest_number())
            if is_lost(self.newest, stored):
                await self._give_back(self.newest)
            elif stored is not None and stored.number < self.newest.number:
                await self._take(stored)
            if self._newest == self._head:
                self._report(None)
        self._is_unverified = False

    def _wants(self, key: str) -> bool:
        number = revision_number(key)
        if number is None:
            return key in self.others
        return self._newest is None or number > self._newest.number

    async def _take_key(self, key: str, value: bytes | None) -> None:
        number = revision_number(key)
        if number is None:
            await self.others[key](value)
        elif value is not None:
            try:
                revision = msgspec.json.decode(value, type=Revision)
            except msgspec.DecodeError as error:
                self._report(_unreadable(number, error))
            else:
                await self._take(revision)

    async def _take(self, revision: Revision) -> None:
        self._newest = revision
        try:
            self._put_in_force(revision, await asyncio.to_thread(self.reader.read, revision.document))
        except (InvalidPolicy, ValueError) as error:  # a newer version's document, or a secret that this replica lacks
            self._report(f"revision {revision.number}: {error}")
            return
        self._report(None)
        await asyncio.to_thread(self._copy.write, revision)

    def _put_in_force(self, revision: Revision, policy: Policy) -> None:
        self._hooks.on_revision(PolicyRevision(policy=policy, revision=revision.revision, origin=revision))
        self._head = revision

    def _report(self, error: str | None) -> None:
        in_force = "" if self._head is None else self._head.revision
        status = PolicyStatus(revision=in_force, is_current=error is None, error=error)
        if status != self._status:
            self._status = status
            self._hooks.on_status(status)


def _unreadable(number: int, error: msgspec.DecodeError) -> str:
    return f"revision {number} cannot be read, it is damaged or of another version ({error})"

"""PolicySource: the policy as its editors see it, wherever it is kept."""

from __future__ import annotations

from collections.abc import Callable

from gateway.policies.errors import ReadOnlyPolicy
from gateway.policies.policy_file import PolicyFile, PolicyStatus
from gateway.policies.reading import DocumentReader
from gateway.policies.revision import Revision
from gateway.policies.stored import StoredPolicy
from routing_policies.policy.document import Policy


class PolicySource:
    """Either a file, which is its own editor, or the store, which anybody with the right may write to."""

    def __init__(
        self, source: PolicyFile | StoredPolicy, *, reader: DocumentReader, in_force: Callable[[], Policy]
    ) -> None:
        self._source = source
        self._in_force = in_force
        self.reader = reader

    @property
    def head(self) -> Revision:
        """What editors start from: the newest revision."""
        return self._source.newest if isinstance(self._source, StoredPolicy) else self._source.head

    @property
    def policy(self) -> Policy:
        """In force in this process."""
        return self._in_force()

    @property
    def status(self) -> PolicyStatus:
        """Whether the head is in force here."""
        return self._source.status

    @property
    def path(self) -> str | None:
        """The file, None when it is the store."""
        return str(self._source.path) if isinstance(self._source, PolicyFile) else None

    @property
    def read_only_why(self) -> str | None:
        """Why it cannot be changed here, None when it can."""
        if self.path is None:
            return None
        return f"the policy is the file {self.path}: change it there, or take the patch and apply it to the file"

    @property
    def stored(self) -> StoredPolicy:
        """The editor's end; raises ReadOnlyPolicy when the policy is a file."""
        if isinstance(self._source, StoredPolicy):
            return self._source
        raise ReadOnlyPolicy(self.read_only_why)

    async def revision(self, number: int) -> Revision:
        """One revision; raises NoSuchRevision, ReadOnlyPolicy or StoreUnavailable."""
        return self.head if number == self.head.number else await self.stored.revision(number)

"""PolicySource: the policy document and its revisions, from a file or from the store."""

from __future__ import annotations

from collections.abc import Callable

from gateway.policies.errors import ReadOnlyPolicy
from gateway.policies.policy_file import PolicyFile, PolicyStatus
from gateway.policies.reading import DocumentReader
from gateway.policies.revision import Revision
from gateway.policies.stored import StoredPolicy
from routing_policies.policy.document import Policy


class PolicySource:
    """Source of the policy: either a read-only file, or the store, which entitled admins may write to."""

    def __init__(
        self, source: PolicyFile | StoredPolicy, *, reader: DocumentReader, in_force: Callable[[], Policy]
    ) -> None:
        self._source = source
        self._in_force = in_force
        self.reader = reader

    @property
    def head(self) -> Revision:
        """Newest revision, the base of every edit."""
        return self._source.newest if isinstance(self._source, StoredPolicy) else self._source.head

    @property
    def policy(self) -> Policy:
        """Policy in force in this process."""
        return self._in_force()

    @property
    def status(self) -> PolicyStatus:
        """Status that shows whether the head is in force here."""
        return self._source.status

    @property
    def path(self) -> str | None:
        """Path of the policy file; None for the store."""
        return str(self._source.path) if isinstance(self._source, PolicyFile) else None

    @property
    def read_only_why(self) -> str | None:
        """Reason why the policy cannot be edited through the gateway; None when it can."""
        if self.path is None:
            return None
        return f"the policy is the file {self.path}: change it there, or take the patch and apply it to the file"

    @property
    def stored(self) -> StoredPolicy:
        """Store that edits are applied to; raises ReadOnlyPolicy when the policy is a file."""
        if isinstance(self._source, StoredPolicy):
            return self._source
        raise ReadOnlyPolicy(self.read_only_why)

    async def revision(self, number: int) -> Revision:
        """Return one revision; raises NoSuchRevision, ReadOnlyPolicy or StoreUnavailable."""
        return self.head if number == self.head.number else await self.stored.revision(number)

"""A replica that serves the policy of a store, and a store that nobody reaches."""

from __future__ import annotations

from pathlib import Path

from gateway.policies.local_copy import COPY_FILE, PolicyCopy
from gateway.policies.policy_file import PolicyRevision, PolicyStatus
from gateway.policies.reading import DocumentReader, PolicyChecks, PolicyHooks
from gateway.policies.revision import Revision
from gateway.policies.seed import Seed
from gateway.policies.stored import ANY, StoredPolicy
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.embedded import EmbeddedStore

GOOD = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"


def changed(number: int) -> str:
    return f"{GOOD}# {number}\n"


class PolicyReplica:
    """One gateway process that serves the policy of a store."""

    def __init__(self, store: Store, folder: Path, *, is_bundled: bool = False, num_saved: int = 1000) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "seed.yaml").write_text(GOOD)
        self.served: list[PolicyRevision] = []
        self.statuses: list[PolicyStatus] = []
        self.restored: list[Revision] = []
        self.policy = StoredPolicy(
            store,
            reader=DocumentReader(PolicyChecks()),
            seed=Seed(path=folder / "seed.yaml", is_bundled=is_bundled),
            copy=PolicyCopy(folder / COPY_FILE, wall=lambda: 1000.0),
            hooks=PolicyHooks(
                on_revision=self.served.append, on_status=self.statuses.append, on_restored=self.restored.append
            ),
            wall=lambda: 1000.0,
            num_saved=num_saved,
        )

    async def apply(self, document: str, if_match: str = ANY) -> Revision:
        return await self.policy.apply(document, author="anna", reason="why not", if_match=if_match)


class Lost(EmbeddedStore):
    """A store that nobody reaches."""

    async def _forward(self, operation: str, *arguments: object, **options: object) -> object:
        raise StoreUnavailable(StoreLoss.DOWN, "not there", was_sent=False)

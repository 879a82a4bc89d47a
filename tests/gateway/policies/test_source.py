"""The policy as editors see it: a file that is only read, or a store that may be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.policies.errors import ReadOnlyPolicy
from gateway.policies.policy_file import PolicyFile
from gateway.policies.reading import DocumentReader, PolicyChecks, PolicyHooks
from gateway.policies.source import PolicySource
from gateway.store.embedded import EmbeddedStore
from routing_policies.loading import load_policy
from tests.gateway.policies.replica import GOOD, PolicyReplica, changed

POLICY = load_policy(GOOD, source="policy")


async def test_a_file_is_its_own_editor_and_has_one_revision(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(
        path,
        checks=PolicyChecks(),
        hooks=PolicyHooks(on_revision=lambda revision: None, on_status=lambda status: None),
        poll_s=1.0,
    )
    file.load()
    stats = PolicySource(file, reader=DocumentReader(PolicyChecks()), in_force=lambda: POLICY)
    assert (stats.path, stats.head.document, stats.policy) == (str(path), GOOD, POLICY)
    assert str(path) in (stats.read_only_why or "")
    assert await stats.revision(stats.head.number) == stats.head
    with pytest.raises(ReadOnlyPolicy, match="change it there"):
        _ = stats.stored
    with pytest.raises(ReadOnlyPolicy):
        await stats.revision(5)


async def test_the_head_of_a_store_is_its_newest_revision_whatever_is_in_force(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "shared.sqlite3", wall=lambda: 1000.0)
    replica = PolicyReplica(store, tmp_path / "a")
    await replica.policy.load()
    stats = PolicySource(replica.policy, reader=DocumentReader(PolicyChecks()), in_force=lambda: POLICY)
    made = await stats.stored.apply(changed(1), author="anna", reason="x", if_match=stats.head.etag)
    assert (stats.head, stats.path, stats.read_only_why) == (made, None, None)
    assert (await stats.revision(1)).kind == "seed"
    await store.aclose()

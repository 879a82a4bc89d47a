"""`penstock up` starts the engines of the policy that the gateway will serve."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from gateway.app.connections.store_opening import open_store
from gateway.cli.supervisor.launch import plan_launch
from gateway.config.settings import GatewayConfig, bundled_policy_path
from gateway.config.sources import config_of
from gateway.policies.local_copy import COPY_FILE, PolicyCopy, file_copy_name
from gateway.policies.policy_file import PolicyFile, PolicyFileError
from gateway.policies.reading import PolicyChecks, PolicyHooks
from gateway.policies.starting import StartPolicy, starting_policy
from routing_policies.policy.document import Policy
from tests.gateway.admin.handlers.test_policy import apply, in_force, stored

ONE_ENGINE = """
schema_version: 1
deployments:
  - {id: small, url: "unix:${runtime_dir}/small.sock", model: penstock-small}
"""


def config_in(folder: Path, **changed: object) -> GatewayConfig:
    given: dict[str, object] = {"public.listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0"}
    return config_of({"process.runtime_dir": folder, **given, **changed})


def started(config: GatewayConfig) -> StartPolicy:
    return starting_policy(config, open_store)


def engines_of(config: GatewayConfig, policy: Policy) -> list[str]:
    with plan_launch(config, policy, num_cores=2) as plan:
        return [engine.child.name for engine in plan.engines]


async def revise(folder: Path, document: str) -> None:
    """As an admin would have done while the gateway ran."""
    async with stored(folder) as stack:
        seed = await in_force(stack)
        assert (await apply(stack, document, etag=seed["etag"])).status == 200
    (folder / "policy.yaml").write_text(bundled_policy_path().read_text())


def test_without_a_revision_the_file_is_what_will_be_served(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    found = started(config)
    assert (engines_of(config, found.policy), found.note) == (["small", "large"], None)


async def test_a_revision_of_the_store_decides_which_engines_start_and_it_is_stated(tmp_path: Path) -> None:
    await revise(tmp_path, ONE_ENGINE)
    config = config_in(tmp_path, **{"policy.document": tmp_path / "policy.yaml", "policy.source": "store"})
    found = await asyncio.to_thread(started, config)
    assert engines_of(config, found.policy) == ["small"]
    assert found.note is not None
    assert found.note.startswith("engines are those of revision 2 (")
    as_file = await asyncio.to_thread(
        started, config_in(tmp_path, **{"policy.document": tmp_path / "policy.yaml", "policy.source": "file"})
    )
    assert (engines_of(config, as_file.policy), as_file.note) == (["small", "large"], None)


async def test_while_the_store_is_lost_the_revision_seen_last_decides(tmp_path: Path) -> None:
    await revise(tmp_path, ONE_ENGINE)
    config = config_in(
        tmp_path,
        **{
            "policy.document": tmp_path / "policy.yaml",
            "policy.source": "store",
            "store.address": "redis://127.0.0.1:1/0",
        },
    )
    found = await asyncio.to_thread(started, config)
    assert engines_of(config, found.policy) == ["small"]
    assert "the store cannot be used" in (found.note or "")


async def test_a_store_that_lost_the_revision_does_not_decide(tmp_path: Path) -> None:
    await revise(tmp_path, ONE_ENGINE)
    store = f"embedded:{tmp_path}/emptied.sqlite3"
    config = config_in(
        tmp_path, **{"policy.document": tmp_path / "policy.yaml", "policy.source": "store", "store.address": store}
    )
    found = await asyncio.to_thread(started, config)
    assert engines_of(config, found.policy) == ["small"]
    assert "the store has lost it" in (found.note or "")


async def test_a_revision_that_cannot_be_read_is_stated_and_the_file_decides(tmp_path: Path) -> None:
    await revise(tmp_path, ONE_ENGINE)
    lost = "redis://127.0.0.1:1/0"
    config = config_in(
        tmp_path, **{"policy.document": tmp_path / "policy.yaml", "policy.source": "store", "store.address": lost}
    )
    spoil_copy(tmp_path)
    found = await asyncio.to_thread(started, config)
    assert engines_of(config, found.policy) == ["small", "large"]
    assert "cannot be read" in (found.note or "")


def spoil_copy(folder: Path) -> None:
    """As another version of the program would have written it."""
    copy = PolicyCopy(folder / COPY_FILE)
    saved = copy.read()
    assert saved is not None
    copy.write(
        msgspec.structs.replace(saved, document=saved.document.replace("schema_version: 1", "schema_version: 99"))
    )


@pytest.mark.parametrize("file", ["missing", "bad", "good"])
async def test_a_file_that_only_an_empty_store_needs_may_be_bad(tmp_path: Path, file: str) -> None:
    await revise(tmp_path, ONE_ENGINE)
    policy = tmp_path / "policy.yaml"
    if file == "missing":
        policy.unlink()
    if file == "bad":
        policy.write_text("schema_version: [\n")
    config = config_in(tmp_path, **{"policy.document": policy, "policy.source": "store"})
    found = await asyncio.to_thread(started, config)
    assert engines_of(config, found.policy) == ["small"]


def file_config(folder: Path, document: str) -> GatewayConfig:
    """Settings whose policy file was in force once."""
    policy = folder / "policy.yaml"
    policy.write_text(document)
    config = config_in(folder, **{"policy.document": policy})
    PolicyFile(
        policy,
        checks=PolicyChecks(variables=config.process.policy_variables),
        hooks=PolicyHooks(on_revision=lambda revision: None, on_status=lambda status: None),
        copy=PolicyCopy(folder / file_copy_name(policy)),
    ).load()
    return config


def test_engines_are_those_of_the_last_good_policy_while_the_file_is_bad(tmp_path: Path) -> None:
    config = file_config(tmp_path, ONE_ENGINE)
    config.policy.document.write_text("rutes: []\n")
    found = starting_policy(config, open_store)
    assert engines_of(config, found.policy) == ["small"]
    assert "rutes" in (found.note or "")
    assert "starting on the last good policy, revision" in (found.note or "")


def test_a_bad_file_that_was_never_good_is_refused(tmp_path: Path) -> None:
    file_config(tmp_path, ONE_ENGINE)
    other = tmp_path / "other.yaml"
    other.write_text("rutes: []\n")
    with pytest.raises(PolicyFileError, match="rutes"):
        starting_policy(config_in(tmp_path, **{"policy.document": other}), open_store)

"""The policy that a gateway is about to serve, for commands that start its engines first."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol

import msgspec

from gateway.config.settings import GatewayConfig
from gateway.policies.history import RevisionHistory
from gateway.policies.local_copy import COPY_FILE, PolicyCopy, file_copy_name, is_lost
from gateway.policies.policy_file import PolicyFileError, read_policy, read_saved_policy
from gateway.policies.reading import PolicyChecks
from gateway.policies.revision import Revision
from gateway.policies.seed import Seed
from gateway.store.address import StoreAddress
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy
from routing_policies.policy.problems import PolicyError

_TIMEOUT_S: Final = 2.0


class OpenStore(Protocol):
    """Opener of the store at an address; the store connects with its first operation."""

    def __call__(self, address: StoreAddress, *, timeout_s: float) -> Store:
        """Return the store; an operation takes `timeout_s` at most."""


class StartPolicy(NamedTuple):
    """A policy, with a note when it is not the one in the file."""

    policy: Policy
    note: str | None


def starting_policy(
    config: GatewayConfig,
    open_store: OpenStore,
    checks: PolicyChecks | None = None,
) -> StartPolicy:
    """Return the policy that a gateway with these settings serves when it starts now.

    With the policy in the store, that is the store's newest revision, or the local copy where that is newer. Otherwise
    it is the file's policy, or the last good one of the file.

    Raises:
        PolicyFileError: No usable policy exists.
    """
    checks = checks or PolicyChecks(variables=config.process.policy_variables)
    if config.policy.is_in_store:
        found = _stored_policy(config, open_store)
        if found is not None and found.policy is not None:
            return StartPolicy(found.policy, found.note)
        in_file = read_policy(config.policy.document, checks).policy
        note = None if found is None else f"engines are those of {config.policy.document}: {found.note}"
        return StartPolicy(in_file, note)
    try:
        return StartPolicy(read_policy(config.policy.document, checks).policy, None)
    except PolicyFileError as error:
        copy = PolicyCopy(config.process.runtime_dir / file_copy_name(config.policy.document))
        saved = read_saved_policy(copy, config.policy.document, checks, error)
        return StartPolicy(saved.policy, f"{error}\nstarting on the last good policy, revision {saved.revision}")


class _Stored(NamedTuple):
    policy: Policy | None
    note: str | None


def _stored_policy(config: GatewayConfig, open_store: OpenStore) -> _Stored | None:
    """Return the policy of the store, or None where the file decides; without a policy when no revision can be read."""
    lost = ""
    saved = PolicyCopy(config.process.runtime_dir / COPY_FILE).read()
    try:
        newest = asyncio.run(_newest(config, open_store))
        if is_lost(saved, newest):
            newest, lost = saved, "; the store has lost it and gets it back"
    except (StoreUnavailable, msgspec.DecodeError) as error:
        newest, lost = saved, f"; the store cannot be used ({error})"
    seed = Seed(path=config.policy.document, is_bundled=config.policy.is_bundled)
    if newest is None or seed.replaces(newest) or newest.document == _document_of(seed):
        return None
    message = ""
    for revision in (newest, saved):
        if revision is None:
            continue
        name = f"revision {revision.number} ({revision.revision})"
        try:
            policy = load_policy(revision.document, source=name, variables=config.process.policy_variables)
        except PolicyError as error:
            message = message or f"{name} of the store cannot be read: {error}"
            continue
        where = "in the store" if not message else "kept here"
        note = f"engines are those of {name} {where}, not of {config.policy.document}{lost}"
        return _Stored(policy, f"{message}\n{note}" if message else note)
    return _Stored(None, message)


def _document_of(seed: Seed) -> str | None:
    """Return the file's text, or None when it cannot be read and the store alone decides."""
    try:
        return seed.document()
    except PolicyFileError:
        return None


async def _newest(config: GatewayConfig, open_store: OpenStore) -> Revision | None:
    store = open_store(config.store_address, timeout_s=_TIMEOUT_S)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            history = RevisionHistory(store)
            return await history.get(await history.newest_number())
    except TimeoutError:
        raise StoreUnavailable(StoreLoss.SLOW, f"no answer within {_TIMEOUT_S:g} s") from None
    finally:
        await store.aclose()

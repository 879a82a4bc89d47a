"""Facts about a store that an operator needs before relying on it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gateway.store.address import StoreAddress, parse_store
from gateway.store.base import Store, StoreUnavailable
from gateway.store.guarded import GuardedStore, StoreObserver
from gateway.store.redis_facts import RedisFacts

SLOW_RATIO = 0.5
"""Share of the operation timeout above which an answer leaves no room for a bad moment."""
_TRIES = 5


OpenExamined = Callable[[StoreAddress, StoreObserver], tuple[Store, GuardedStore]]
"""Opener of the store at an address, and of its guarded form around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFinding:
    """One finding in a sentence; `remedy` is set unless the level is ok."""

    level: Literal["ok", "warn", "fail"]
    message: str
    remedy: str | None = None


async def examine_store(address: StoreAddress, open_examined: OpenExamined, *, timeout_s: float) -> list[StoreFinding]:
    """Write to the store, time it and read its settings; never raises StoreUnavailable."""
    store, guarded = open_examined(address, _Nobody())
    try:
        await guarded.ping()
        took_s = min([await _timed(guarded) for _ in range(_TRIES)])
        facts = await store.facts() if hasattr(store, "facts") else None
    except StoreUnavailable as error:
        warning = f"{address.shown}: {error}"
        remedy = "check the `store` setting, and that the store runs; until then limits hold in each process for itself"
        return [StoreFinding(level="fail", message=warning, remedy=remedy)]
    finally:
        await guarded.aclose()
    shown = f"{address.shown}, answers in {took_s * 1000:.1f} ms"
    if took_s > timeout_s * SLOW_RATIO:
        remedy = f"raise store.timeout_s (now {timeout_s:g}), or bring the store nearer"
        return [StoreFinding(level="warn", message=f"{shown}, and may take {timeout_s * 1000:.0f}", remedy=remedy)]
    version = f" (Redis {facts.version})" if facts is not None else ""
    return [StoreFinding(level="ok", message=shown + version), *_about(facts)]


def examine_copy(path: Path, open_examined: OpenExamined, *, timeout_s: float) -> list[StoreFinding]:
    """Examine a copy of an embedded store that no process uses, so that the file stays as it is.

    A store that is yet to be made is good: the folder has a check of its own.
    """
    if not path.exists():
        return [StoreFinding(level="ok", message=f"embedded:{path} is made at the first start")]
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        try:
            shutil.copyfile(path, Path(folder, path.name))
            with suppress(FileNotFoundError):  # it was closed in order
                log = f"{path.name}-wal"
                shutil.copyfile(path.with_name(log), Path(folder, log))
        except OSError as error:
            remedy = "give the file to this user, or choose another with the setting store.address"
            return [StoreFinding(level="fail", message=f"{path}: {error.strerror or error}", remedy=remedy)]
        copy = parse_store(f"embedded:{Path(folder, path.name)}")
        found = asyncio.run(examine_store(copy, open_examined, timeout_s=timeout_s))
    return [replace(finding, message=finding.message.replace(folder, str(path.parent))) for finding in found]


def _about(facts: RedisFacts | None) -> list[StoreFinding]:
    findings = []
    if facts is not None and facts.may_evict:
        warning = f"Redis evicts keys when it is full (maxmemory-policy {facts.policy}): counts would be lost"
        findings.append(StoreFinding(level="warn", message=warning, remedy="set maxmemory-policy noeviction"))
    if facts is not None and not facts.is_persistent:
        warning = "Redis keeps nothing on disk: a restart loses the use of budgets"
        findings.append(StoreFinding(level="warn", message=warning, remedy="set appendonly yes"))
    return findings


async def _timed(store: GuardedStore) -> float:
    started_at = time.perf_counter()
    await store.get("penstock.doctor", "none")
    return time.perf_counter() - started_at


class _Nobody:
    """An observer that ignores everything."""

    def took(self, operation: str, seconds: float) -> None:
        """Implement `StoreObserver.took`."""

    def failed(self, operation: str, reason: str) -> None:
        """Implement `StoreObserver.failed`."""

    def is_up(self, is_up: bool, reason: str) -> None:
        """Implement `StoreObserver.is_up`."""

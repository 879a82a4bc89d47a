"""Table of the adapters in memory: who uses them, and what comes in or goes while steps run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.lora.adapter_config import AdapterError
from engine.lora.adapter_file import AdapterFile
from engine.lora.stacked_weights import StackedWeights
from engine.protocol import AdapterReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """Adapter that a sequence uses."""

    name: str
    index: int
    """Index in the stacked weights."""
    load_id: int
    """Number of the load, unique in the core's life; part of the prefix cache's keys."""


@dataclass(frozen=True, slots=True)
class AdapterRead:
    """Result of reading an adapter's file."""

    name: str
    error: str | None = None


@dataclass(slots=True)
class _Entry:
    """Adapter that has a place."""

    adapter: LoadedAdapter
    state: Literal["loading", "ready", "draining"]
    num_users: int = 0
    digest: str = ""
    """Digest of its files; empty while they are read."""


class AdapterTable:
    """Table of adapters; the step loop's thread calls it, and files are read on threads of their own.

    A place is reserved from the begin of a load to the end of an unload, so a thread only writes where no step reads.
    """

    def __init__(self, weights: StackedWeights | None, deliver: Callable[[AdapterRead], None]) -> None:
        """Create the table.

        Args:
            weights: Stacked weights; None if the engine serves no adapters.
            deliver: Receiver of results, called from a reading thread.
        """
        self._weights = weights
        self._deliver = deliver
        self._entries: dict[str, _Entry] = {}
        self._free = [] if weights is None else list(range(weights.num_adapters))
        self._num_loads = 0
        self._reports: list[AdapterReport] = []

    @classmethod
    def without_places(cls) -> AdapterTable:
        """Return the table of an engine that serves no adapters."""

        def deliver(result: AdapterRead) -> None:
            raise AssertionError(f"there is no place for {result.name}")

        return cls(None, deliver)

    @property
    def names(self) -> list[str]:
        """Names of the adapters that new sequences may use."""
        return [name for name, entry in self._entries.items() if entry.state == "ready"]

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the files of the adapters that new sequences may use, by name."""
        return {name: entry.digest for name, entry in self._entries.items() if entry.state == "ready"}

    def find(self, name: str) -> LoadedAdapter | None:
        """Return the adapter that new sequences of this name use; None if it is not loaded."""
        entry = self._entries.get(name)
        return entry.adapter if entry is not None and entry.state == "ready" else None

    def acquire(self, name: str) -> LoadedAdapter:
        """Return an adapter that `find` finds, and count one more sequence that uses it."""
        entry = self._entries[name]
        entry.num_users += 1
        return entry.adapter

    def release(self, adapter: LoadedAdapter) -> None:
        """Count one sequence less; the last one frees an adapter that is being unloaded."""
        entry = self._entries[adapter.name]
        entry.num_users -= 1
        if not entry.num_users and entry.state == "draining":
            self._remove(entry)

    def load_now(self, name: str, folder: Path) -> None:
        """Load an adapter in this thread, before any step runs.

        Raises:
            AdapterError: The adapter cannot be served, or there is no place for it.
        """
        entry = self._reserve(name)
        self._read(folder, entry)
        entry.state = "ready"

    def load(self, name: str, folder: Path) -> None:
        """Begin to load an adapter; `read` follows, and a report says what came of it."""
        try:
            entry = self._reserve(name)
        except AdapterError as error:
            self._reports.append(AdapterReport(name=name, change="refused", error=str(error)))
            return
        threading.Thread(target=self._read_apart, args=(folder, entry), name=f"adapter {name}", daemon=True).start()

    def read(self, result: AdapterRead) -> None:
        """Admit sequences to an adapter whose file was read, or free its place if that failed."""
        entry = self._entries[result.name]
        if result.error is None:
            entry.state = "ready"
            logger.info("adapter %s is loaded", result.name)
            self._reports.append(AdapterReport(name=result.name, change="loaded", digest=entry.digest))
        else:
            del self._entries[result.name]
            self._free.append(entry.adapter.index)
            self._reports.append(AdapterReport(name=result.name, change="refused", error=result.error))

    def unload(self, name: str) -> LoadedAdapter | None:
        """Admit no new sequences to an adapter, and free its place once none uses it.

        Returns:
            The adapter whose sequences still run; None if there are none.
        """
        entry = self._entries.get(name)
        if entry is None or entry.state == "loading":
            self._reports.append(AdapterReport(name=name, change="refused", error=f"adapter {name!r} is not loaded"))
            return None
        entry.state = "draining"
        if entry.num_users:
            return entry.adapter
        self._remove(entry)
        return None

    def take_reports(self) -> list[AdapterReport]:
        """Return what changed since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def _reserve(self, name: str) -> _Entry:
        if self._weights is None:
            raise AdapterError("this engine serves no adapters; set max_loras")
        if name in self._entries:
            raise AdapterError(f"adapter {name!r} is {self._entries[name].state}")
        if not self._free:
            raise AdapterError(
                f"all {self._weights.num_adapters} places are taken; unload an adapter or raise max_loras"
            )
        self._num_loads += 1
        entry = _Entry(LoadedAdapter(name, self._free.pop(0), self._num_loads), "loading")
        self._entries[name] = entry
        return entry

    def _remove(self, entry: _Entry) -> None:
        name = entry.adapter.name
        del self._entries[name]
        self._free.append(entry.adapter.index)
        logger.info("adapter %s is unloaded", name)
        self._reports.append(AdapterReport(name=name, change="unloaded"))

    def _read(self, folder: Path, entry: _Entry) -> None:
        weights = self._weights
        assert weights is not None
        file = AdapterFile(folder, weights.config, weights.max_rank)
        if file.config.base_model is not None:
            logger.info("adapter %s was trained on %s", entry.adapter.name, file.config.base_model)
        weights.store(entry.adapter.index, file)
        entry.digest = file.digest()

    def _read_apart(self, folder: Path, entry: _Entry) -> None:
        error = None
        try:
            self._read(folder, entry)
        except AdapterError as refusal:
            error = str(refusal)
        # Whatever else a file does to the reader must not leave its place taken for ever.
        except Exception as failure:
            logger.exception("adapter %s could not be read", entry.adapter.name)
            error = f"it could not be read: {type(failure).__name__}"
        self._deliver(AdapterRead(entry.adapter.name, error))

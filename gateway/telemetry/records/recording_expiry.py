"""RecordingExpiry: deletes what a recorder left that is switched off, at the age at which it would have done so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.telemetry.records.segments import TIDY_S, delete_older


class RecordingExpiry:
    """Expiry of folders that no recorder of this process writes to."""

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        retention_s: float,
        wall: Callable[[], float],
        on_failure: Callable[[OSError], None],
    ) -> None:
        """Set it up; nothing is deleted yet.

        Args:
            folders: Folders of recordings; they need not exist.
            retention_s: Age in seconds beyond which a file is deleted.
            wall: Wall clock, in seconds since 1970.
            on_failure: Gets the error of a file that cannot be deleted.
        """
        self._folders = folders
        self._retention_s = retention_s
        self._wall = wall
        self._on_failure = on_failure

    async def run(self) -> None:
        """Delete old files now and once a minute, until cancelled."""
        while self._folders:
            await asyncio.to_thread(self.expire)
            await asyncio.sleep(TIDY_S)

    def expire(self) -> None:
        """Delete the files that are too old."""
        for folder in self._folders:
            try:
                delete_older(folder, self._wall() - self._retention_s)
            except OSError as error:
                self._on_failure(error)

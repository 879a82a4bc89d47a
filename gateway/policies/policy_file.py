"""PolicyFile: the policy read from disk, and read again when the file changes.

A bad file never replaces a good policy.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from gateway.policies.local_copy import PolicyCopy
from gateway.policies.reading import PolicyChecks, PolicyHooks
from gateway.policies.revision import FILE_AUTHOR, Revision
from gateway.util.regular_file import read_regular_file
from routing_policies.loading import MAX_DOCUMENT_BYTES, load_document
from routing_policies.policy.document import Policy
from routing_policies.policy.problems import PolicyError
from routing_policies.proof.document_check import check_document

REVISION_CHARS = 12
SETTLE_S = 2.0
"""Age in seconds below which a file is read at every check, because a change may not alter its time stamp."""


class PolicyFileError(ValueError):
    """Error for a policy file that cannot be used; one line for each reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRevision:
    """A policy that passed every check."""

    policy: Policy
    revision: str
    """First 12 hex digits of the SHA-256 of the document's bytes."""
    origin: Revision
    """Document with its author and time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStatus:
    """Result of the last reading, for `/readyz`, the admin pages and `penstock_policy_reload_success`."""

    revision: str
    """Revision in force, even after a failed reload."""
    is_current: bool
    """True if the current file is in force."""
    error: str | None = None
    """Reason why the current file is not in force."""


@dataclass(frozen=True, slots=True)
class _Signature:
    """File attributes that differ between two states of a file."""

    inode: int
    size: int
    modified_ns: int


def revision_of(content: bytes) -> str:
    """Return the revision id of a document."""
    return sha256(content).hexdigest()[:REVISION_CHARS]


def read_policy(
    path: Path,
    checks: PolicyChecks,
) -> PolicyRevision:
    """Read, check and test the file once; `accept` may refuse the policy with a ValueError. Raises PolicyFileError."""
    return _parse(read_document(path), path, checks)


def read_saved_policy(
    copy: PolicyCopy,
    path: Path,
    checks: PolicyChecks,
    error: PolicyFileError,
) -> PolicyRevision:
    """Return the last good policy of a file that is unusable because of `error`; raises PolicyFileError without one."""
    saved = copy.read()
    if saved is None:
        if copy.is_there:
            raise PolicyFileError(f"{error}\nthe last good policy, {copy.path}, is damaged") from error
        raise error
    try:
        loaded = _parse(saved.document.encode(), path, checks)
    except PolicyFileError as unusable:
        raise PolicyFileError(
            f"{error}\nthe last good policy, revision {saved.revision}, is of no use: {unusable}"
        ) from error
    return replace(loaded, revision=saved.revision, origin=saved)


class PolicyFile:
    """Watcher of one policy file; only reading and parsing leave the event loop's thread."""

    def __init__(
        self,
        path: Path,
        *,
        checks: PolicyChecks,
        hooks: PolicyHooks,
        poll_s: float = 0.25,
        wall_clock: Callable[[], float] = time.time,
        copy: PolicyCopy | None = None,
    ) -> None:
        """Create a watcher; `load` reads the file.

        `on_revision` gets each new good policy and may refuse it with a ValueError; `on_status` follows it.
        `predictors` serve the document's tests, and `copy` keeps the last good policy for the next start.
        """
        self._copy = copy
        self._path = path
        self._checks = checks
        self._hooks = hooks
        self._poll_s = poll_s
        self._wall_clock = wall_clock
        self._seen: _Signature | None = None
        self._examined: bytes | None = None
        self._status: PolicyStatus | None = None
        self._head: Revision | None = None

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._path

    @property
    def head(self) -> Revision:
        """Revision in force; only after `load`."""
        assert self._head is not None, "load() comes first"
        return self._head

    @property
    def status(self) -> PolicyStatus:
        """Status of the last check; only after `load`."""
        assert self._status is not None, "load() comes first"
        return self._status

    def load(self) -> PolicyRevision:
        """Read the file for the first time, falling back on the last good policy; may raise PolicyFileError."""
        try:
            self._seen = _signature(self._path)
            read_at, content = self._wall_clock(), read_document(self._path)
            self._examined = sha256(content).digest()
            loaded = _parse(content, self._path, self._checks)
            self._take(loaded)
        except PolicyFileError as error:
            return self._load_saved(error)
        self._keep(read_at)
        return loaded

    def _load_saved(self, error: PolicyFileError) -> PolicyRevision:
        if self._copy is None:
            raise error
        saved = read_saved_policy(self._copy, self._path, self._checks, error)
        try:
            self._hooks.on_revision(saved)
        except ValueError as unusable:
            raise PolicyFileError(f"{error}\nthe last good policy cannot be served: {unusable}") from error
        self._head = saved.origin
        message = f"{error}\nstarted on the last good policy, revision {saved.revision}, saved at an earlier start"
        self._report(PolicyStatus(revision=saved.revision, is_current=False, error=message))
        return saved

    def _keep(self, read_at: float) -> None:
        """Copy the policy in force for a start at which the file is bad."""
        if self._copy is not None:
            self._copy.write(self.head, read_at=read_at)

    async def watch(self) -> None:
        """Check the file periodically until cancelled."""
        while True:
            await asyncio.sleep(self._poll_s)
            await self.look()

    async def look(self) -> None:
        """Check the file once: adopt a new good policy, or report why the file is bad."""
        try:
            signature = _signature(self._path)
            if signature == self._seen and not self._is_young(signature):
                return
            read_at, content = self._wall_clock(), await asyncio.to_thread(read_document, self._path)
        except PolicyFileError as error:
            self._seen = self._examined = None
            self._report(PolicyStatus(revision=self.status.revision, is_current=False, error=str(error)))
            return
        self._seen = signature
        digest = sha256(content).digest()
        if digest != self._examined:
            await self._examine(content, read_at)
            self._examined = digest

    async def _examine(self, content: bytes, read_at: float) -> None:
        try:
            self._take(await asyncio.to_thread(_parse, content, self._path, self._checks))
        except PolicyFileError as error:
            self._report(PolicyStatus(revision=self.status.revision, is_current=False, error=str(error)))
        else:
            await asyncio.to_thread(self._keep, read_at)

    def _take(self, loaded: PolicyRevision) -> None:
        if self._status is None or self._status.revision != loaded.revision:
            try:
                self._hooks.on_revision(loaded)
            except ValueError as error:  # its consumer may still find it unusable
                raise PolicyFileError(f"{self._path}: {error}") from error
        self._head = loaded.origin
        self._report(PolicyStatus(revision=loaded.revision, is_current=True))

    def _report(self, status: PolicyStatus) -> None:
        if status != self._status:
            self._status = status
            self._hooks.on_status(status)

    def _is_young(self, signature: _Signature) -> bool:
        return self._wall_clock() - signature.modified_ns / 1e9 < SETTLE_S


def _signature(path: Path) -> _Signature:
    """Return the file's signature, following links, as a ConfigMap swaps them; raises PolicyFileError."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise PolicyFileError(f"{path}: cannot be read ({error.strerror}); check --policy") from error
    return _Signature(found.st_ino, found.st_size, found.st_mtime_ns)


def read_document(path: Path) -> bytes:
    """Return the document's bytes, at most one more than MAX_DOCUMENT_BYTES; raises PolicyFileError."""
    try:
        return read_regular_file(path, MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise PolicyFileError(f"{path}: cannot be read ({error.strerror}); check --policy") from error


def _parse(
    content: bytes,
    path: Path,
    checks: PolicyChecks,
) -> PolicyRevision:
    try:
        text = content.decode("utf-8-sig")
        policy, document = load_document(text, source=str(path), variables=checks.variables)
        failures = check_document(policy, document, checks.predictors).failures
        if failures:
            raise PolicyError(str(path), failures)
    except UnicodeDecodeError as error:
        raise PolicyFileError(f"{path}: not UTF-8 (byte {error.start})") from error
    except PolicyError as error:
        raise PolicyFileError(str(error)) from error
    try:
        checks.accept(policy)
    except ValueError as error:
        raise PolicyFileError(f"{path}: {error}") from error
    revision = revision_of(content)
    origin = Revision(
        number=0,
        revision=revision,
        parent=None,
        author=FILE_AUTHOR,
        reason=f"{os.fsencode(path).decode(errors='replace')} was changed",
        at=_modified_at(path),
        kind="apply",
        document=text,
    )
    return PolicyRevision(policy=policy, revision=revision, origin=origin)


def _modified_at(path: Path) -> float:
    """Return the modification time in seconds since 1970; 0 when the file is gone."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0

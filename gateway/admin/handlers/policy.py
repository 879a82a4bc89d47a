"""The policy at the admin API: read it, check and compare another one, apply it, go back."""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gateway.access.audit_log import AuditLog
from gateway.access.identity import Role
from gateway.admin.api.errors import BadPolicy, Conflict, IfMatchRequired, Outdated
from gateway.admin.api.fields import Reason, RequestBody, fill
from gateway.admin.api.table import MAX_DOCUMENT_SUBMISSION_BYTES, AdminEndpoint, Call
from gateway.api.routes import JSON, SmallResponse, encode_json
from gateway.errors import NotFound
from gateway.http.asgi import find_header
from gateway.policies.book import PolicySource
from gateway.policies.canary import CanaryTrial
from gateway.policies.errors import (
    InvalidPolicy,
    NoSuchRevision,
    ReadOnlyPolicy,
    RevisionConflict,
)
from gateway.policies.last_day import LastDay
from gateway.policies.revision import Revision, RevisionKind
from gateway.policies.stored import ANY
from routing_policies.blast import blast_radius
from routing_policies.loading import MAX_DOCUMENT_BYTES
from routing_policies.policy.diff import PolicyChange, diff
from routing_policies.policy.document import Policy
from routing_policies.policy.problems import PolicyError

PATH: Final = "/admin/api/policy"
_NO_STORE: Final = (b"cache-control", b"no-store")
_MAX_UNIFIED_LINES: Final = 20_000
"""Comparing texts line by line is quadratic."""

_NO_NEWLINE: Final = "\n\\ No newline at end of file\n"

Text = Annotated[str, Meta(min_length=1, max_length=MAX_DOCUMENT_BYTES)]


class _Document(RequestBody, frozen=True, kw_only=True):
    document: Text


class _Comparison(RequestBody, frozen=True, kw_only=True):
    document: Text
    against: int | None = None


class _Apply(RequestBody, frozen=True, kw_only=True):
    document: Text
    reason: Reason


class _Rollback(RequestBody, frozen=True, kw_only=True):
    revision: Annotated[int, Meta(ge=1)]
    reason: Reason


class PolicyHandlers:
    """`/admin/api/policy` and what is below it, canaries excepted."""

    def __init__(
        self, book: PolicySource, audit: AuditLog, last_day: LastDay, *, canary: Callable[[], CanaryTrial | None]
    ) -> None:
        """`canary` shows the one that runs."""
        self._book = book
        self._audit = audit
        self._last_day = last_day
        self._canary = canary

    def entries(self) -> list[AdminEndpoint]:
        """For the table."""
        large = MAX_DOCUMENT_SUBMISSION_BYTES
        return [
            AdminEndpoint(method="GET", path=PATH, action=self.show),
            AdminEndpoint(method="PUT", path=PATH, action=self.apply, max_bytes=large),
            AdminEndpoint(method="POST", path=f"{PATH}/check", action=self.check, role=Role.VIEWER, max_bytes=large),
            AdminEndpoint(method="POST", path=f"{PATH}/diff", action=self.compare, role=Role.VIEWER, max_bytes=large),
            AdminEndpoint(method="POST", path=f"{PATH}/patch", action=self.patch, role=Role.VIEWER, max_bytes=large),
            AdminEndpoint(method="POST", path=f"{PATH}/rollback", action=self.roll_back),
            AdminEndpoint(method="GET", path=f"{PATH}/revisions", action=self.history),
            AdminEndpoint(method="GET", path=f"{PATH}/revisions/{{}}", action=self.revision),
            AdminEndpoint(method="GET", path=f"{PATH}/schema", action=self.schema),
        ]

    async def show(self, call: Call) -> SmallResponse:
        """What is in force, and what an editor has to send back as `if-match`."""
        book, head = self._book, self._book.head
        body = {
            "source": "store" if book.path is None else "file",
            "read_only": book.read_only_why is not None,
            "read_only_why": book.read_only_why,
            "path": book.path,
            "revision": head.as_line(),
            "etag": head.etag,
            "document": head.document,
            "policy": msgspec.to_builtins(book.policy),
            "status": {"is_current": book.status.is_current, "error": book.status.error},
            "canary": self._canary(),
        }
        etag = (b"etag", head.etag.encode("ascii"))
        return SmallResponse(headers=(JSON, _NO_STORE, etag), body=encode_json(body))

    async def check(self, call: Call) -> SmallResponse:
        """Everything that is wrong with a document."""
        form = fill(_Document, call.document)
        found = await asyncio.to_thread(self._book.reader.examine, form.document)
        return SmallResponse.json({"ok": not found.problems, "num_tests": found.num_tests, "problems": found.problems})

    async def compare(self, call: Call) -> SmallResponse:
        """What differs, by meaning and by line."""
        form = fill(_Comparison, call.document)
        against = self._book.head if form.against is None else await self._revision(form.against)
        changes = await self.changes(against.document, form.document)
        unified = await asyncio.to_thread(_unified, against.document, form.document, _label(against), "yours")
        return SmallResponse.json({"changes": [change.as_json() for change in changes], "unified": unified})

    async def patch(self, call: Call) -> SmallResponse:
        """For `patch`, beside the file that the policy is."""
        form = fill(_Document, call.document)
        await asyncio.to_thread(_read, self._book, form.document)
        name = _patch_name((self._book.path or "policy.yaml").rpartition("/")[2])
        text = await asyncio.to_thread(_unified, self._book.head.document, form.document, name, name)
        headers = (
            (b"content-type", b"text/x-diff; charset=utf-8"),
            (b"content-disposition", b'attachment; filename="policy.patch"'),
            _NO_STORE,
        )
        return SmallResponse(headers=headers, body=text.encode(errors="surrogateescape"))

    async def apply(self, call: Call) -> SmallResponse:
        """Make a document the newest revision."""
        form = fill(_Apply, call.document)
        return await self.change(call, form.document, form.reason)

    async def roll_back(self, call: Call) -> SmallResponse:
        """Make an older revision's document the newest revision."""
        form = fill(_Rollback, call.document)
        self.require_writable()
        older = await self._revision(form.revision)
        return await self.change(call, older.document, form.reason, kind="rollback", of=older.number)

    async def history(self, call: Call) -> SmallResponse:
        """Revisions, newest first."""
        limit, before = _query_number(call, "limit", 50), _query_number(call, "before", None)
        newest = self._book.head
        if self._book.path is not None:
            return SmallResponse.json({"revisions": [newest.as_line()], "source": "file"})
        limit = min(max(limit or 1, 1), 500)
        found = [newest] if before is None or before > newest.number else []
        below = newest.number if before is None else min(before, newest.number)
        found += await self._book.stored.history.before(below, limit - len(found))
        return SmallResponse.json({"revisions": [revision.as_line() for revision in found], "source": "store"})

    async def revision(self, call: Call) -> SmallResponse:
        """One revision, and what it changed."""
        (digits,) = call.params
        if not (digits.isascii() and digits.isdigit() and len(digits) < 9):
            raise NotFound("Revisions have numbers. GET /admin/api/policy/revisions lists them.")
        found = await self._revision(int(digits))
        parent = await self._parent(found)
        changes = [] if parent is None else await self.changes(parent.document, found.document)
        before = "" if parent is None else parent.document
        unified = await asyncio.to_thread(_unified, before, found.document, "parent", _label(found))
        return SmallResponse.json(
            {
                "revision": found.as_line(),
                "document": found.document,
                "changes": [change.as_json() for change in changes],
                "unified": unified,
            }
        )

    async def schema(self, call: Call) -> SmallResponse:
        """The JSON Schema of documents."""
        from routing_policies.policy.schema import schema_of_policies

        return SmallResponse.json(schema_of_policies())

    # Shared with the other desks that change the document.

    async def change(
        self,
        call: Call,
        document: str,
        reason: str,
        *,
        kind: RevisionKind = "apply",
        of: int | None = None,
        action: str | None = None,
        target: str | None = None,
    ) -> SmallResponse:
        """Apply `document` for the caller, who names in `if-match` what was seen. Raises GatewayError."""
        self.require_writable()
        stored, if_match = self._book.stored, wanted_match(call)
        before = self._book.head
        if self._canary() is not None:
            raise Conflict("A canary is running. Promote it or stop it first.", code="canary_running")
        said = action or f"policy.{kind}"
        announced: list[tuple[int, str]] = []

        async def announce(revision: Revision) -> None:
            detail = {"number": revision.number, "revision": revision.revision, "parent": revision.parent, "of": of}
            where = target or f"revision {revision.number}"
            line = await self._audit.record(call.who, said, where, reason=reason, detail=detail)
            announced.append((line, where))

        try:
            await stored.catch_up()
            revision = await stored.apply(
                document, author=call.who.name, reason=reason, if_match=if_match, kind=kind, of=of, announce=announce
            )
        except InvalidPolicy as error:
            raise BadPolicy(error.problems) from None
        except RevisionConflict as error:
            for line, where in announced:  # another replica was faster by a moment
                await self._audit.withdraw(call.who, line, said, where)
            raise await self.outdated(error) from None
        return await self.applied(before, revision)

    async def changes(self, old: str, new: str) -> tuple[PolicyChange, ...]:
        """By meaning; raises BadPolicy."""
        return await asyncio.to_thread(_changes, self._book, old, new)

    async def blast(self, changes: tuple[PolicyChange, ...], old: Policy, new: Policy) -> dict[str, Any]:
        """Whom the changes reach, and how much of the last day's traffic."""
        radius = blast_radius(changes, old, new)
        reach = await self._last_day.reach(radius)
        tenants: Any = "all" if radius.tenants is None else list(radius.tenants)
        return {"tenants": tenants, "routes": list(radius.routes), **msgspec.to_builtins(reach)}

    def require_writable(self) -> None:
        """Raises Conflict when the policy is a file."""
        why = self._book.read_only_why
        if why is not None:
            raise Conflict(f"Nothing was changed: {why}.", code="policy_read_only")

    async def applied(self, before: Revision, revision: Revision) -> SmallResponse:
        """What an apply answers."""
        old, new = await asyncio.to_thread(_both, self._book, before.document, revision.document)
        changes = diff(old, new)
        body = {
            "revision": revision.as_line(),
            "etag": revision.etag,
            "changes": [change.as_json() for change in changes],
            "blast_radius": await self.blast(changes, old, new),
        }
        etag = (b"etag", revision.etag.encode("ascii"))
        return SmallResponse(headers=(JSON, _NO_STORE, etag), body=encode_json(body))

    async def outdated(self, error: RevisionConflict) -> Outdated:
        """Both sides by name, and what the other one changed, as far as the caller's own revision is still known."""
        theirs = error.theirs
        conflict: dict[str, Any] = {"yours": error.yours, "theirs": theirs.as_line(), "changes": []}
        digits = error.yours.strip('"').partition("-")[0]
        yours = await self._book.stored.history.get(int(digits)) if digits.isdigit() and len(digits) < 9 else None
        if yours is not None and yours.etag == error.yours:
            changes = await self.changes(yours.document, theirs.document)
            conflict["changes"] = [change.as_json() for change in changes]
        message = (
            f"Nothing was changed: you started from {error.yours}, and {theirs.author} has made revision "
            f"{theirs.number} since ({theirs.reason}). Read the policy again and make your change on it."
        )
        return Outdated(message, conflict)

    async def _parent(self, revision: Revision) -> Revision | None:
        """None for the first one, and for the oldest that is still kept."""
        try:
            return None if revision.parent is None else await self._book.revision(revision.parent)
        except NoSuchRevision:
            return None

    async def _revision(self, number: int) -> Revision:
        try:
            return await self._book.revision(number)
        except NoSuchRevision as error:
            raise NotFound(f"{str(error).capitalize()}.") from None
        except ReadOnlyPolicy as error:
            raise NotFound(f"There is no revision {number}: {error}.") from None


def wanted_match(call: Call) -> str:
    """The etag that the caller has seen; raises IfMatchRequired."""
    given = find_header(call.scope, b"if-match")
    if given is None or not given.strip():
        raise IfMatchRequired
    text = given.decode("latin-1").strip()
    return text if text == ANY or text.startswith('"') else f'"{text}"'


def _query_number(call: Call, name: str, default: int | None) -> int | None:
    for part in call.scope.get("query_string", b"").split(b"&"):
        key, _, value = part.partition(b"=")
        if key == name.encode() and value.isdigit() and len(value) < 10:
            return int(value)
    return default


def _label(revision: Revision) -> str:
    return f"revision {revision.number}" if revision.number else "the file"


def _patch_name(name: str) -> str:
    """Return a file's name as `patch` and git read it: quoted, or ended by a tab, where it needs that."""
    if any(character < " " or character in '"\\\x7f' for character in name):
        return '"' + "".join(map(_quoted, os.fsencode(name))) + '"'
    return f"{name}\t" if " " in name else name


def _quoted(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}"


def _unified(old: str, new: str, before: str, after: str) -> str:
    lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if sum(map(len, lines)) > _MAX_UNIFIED_LINES:
        return ""
    found = difflib.unified_diff(*lines, before, after)
    return "".join(line if line.endswith("\n") else f"{line}{_NO_NEWLINE}" for line in found)


def _read(book: PolicySource, document: str) -> Policy:
    try:
        return book.reader.read(document)
    except InvalidPolicy as error:
        raise BadPolicy(error.problems) from None


def _load(book: PolicySource, document: str) -> Policy:
    try:
        return book.reader.load(document)
    except PolicyError as error:
        raise BadPolicy(error.problems) from None


def _both(book: PolicySource, old: str, new: str) -> tuple[Policy, Policy]:
    return _load(book, old), _load(book, new)


def _changes(book: PolicySource, old: str, new: str) -> tuple[PolicyChange, ...]:
    return diff(*_both(book, old, new))

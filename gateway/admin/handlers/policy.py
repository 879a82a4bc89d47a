"""The policy at the admin API: read it, check and compare another one, apply it, go back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.access.caller_access import CallerAccess
from gateway.access.identity import Role
from gateway.admin.api.errors import BadPolicy, Conflict, IfMatchRequired, Outdated
from gateway.admin.api.fields import Reason, RequestBody
from gateway.admin.api.request import MAX_DOCUMENT_SUBMISSION_BYTES, AdminRequest, serves
from gateway.admin.handlers.unified_diff import patch_name, unified_diff
from gateway.api.application import NO_STORE, ApiResponse
from gateway.errors import NotFound
from gateway.policies.canary import CanaryTrial
from gateway.policies.errors import (
    InvalidPolicy,
    NoSuchRevision,
    ReadOnlyPolicy,
    RevisionConflict,
)
from gateway.policies.last_day import LastDay
from gateway.policies.reading import PolicyReading
from gateway.policies.revision import Revision, RevisionKind
from gateway.policies.source import PolicySource
from gateway.policies.stored import ANY
from routing_policies.blast import blast_radius
from routing_policies.loading import MAX_DOCUMENT_BYTES
from routing_policies.policy.diff import PolicyChange, diff
from routing_policies.policy.document import Policy
from routing_policies.policy.nodes import Document
from routing_policies.policy.problems import PolicyError

PATH: Final = "/admin/api/policy"
_MAX_LISTED: Final = 500
_MAX_NUMBER: Final = 10**9

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
    """`/admin/api/policy` and the paths below it, canaries excepted."""

    def __init__(
        self,
        source: PolicySource,
        audit: AuditLog,
        last_day: LastDay,
        access: CallerAccess,
        *,
        canary: Callable[[], CanaryTrial | None],
    ) -> None:
        """Set up the handlers; `canary` returns the running canary."""
        self._access = access
        self._source = source
        self._audit = audit
        self._last_day = last_day
        self._canary = canary

    @serves(PATH)
    async def show(self, request: AdminRequest) -> Response:
        """Show the policy in force, and the etag that an editor has to send back as `if-match`."""
        source, head = self._source, self._source.head
        body = {
            "source": "store" if source.path is None else "file",
            "read_only": source.read_only_why is not None,
            "read_only_why": source.read_only_why,
            "path": source.path,
            "revision": head.as_line(),
            "etag": head.etag,
            "document": head.document,
            "policy": msgspec.to_builtins(source.policy),
            "status": msgspec.to_builtins(source.status),
            "canary": self._canary(),
        }
        return ApiResponse(body, headers={"etag": head.etag})

    @serves(f"{PATH}/check", "POST", role=Role.VIEWER, max_bytes=MAX_DOCUMENT_SUBMISSION_BYTES)
    async def check(self, request: AdminRequest) -> Response:
        """List everything that is wrong with a document; show the policy that it stands for if it can be read."""
        form = request.fill(_Document)
        found = await asyncio.to_thread(self._source.reader.examine, form.document)
        return ApiResponse(
            {
                "ok": not found.problems,
                "num_tests": found.num_tests,
                "problems": found.problems,
                "policy": found.policy and msgspec.to_builtins(found.policy),
                "proof": await self.proof(found),
            }
        )

    @serves(f"{PATH}/diff", "POST", role=Role.VIEWER, max_bytes=MAX_DOCUMENT_SUBMISSION_BYTES)
    async def compare(self, request: AdminRequest) -> Response:
        """List the differences between two documents, semantic and by line."""
        form = request.fill(_Comparison)
        against = self._source.head if form.against is None else await self._revision(form.against)
        changes = await self.changes(against.document, form.document)
        unified = await asyncio.to_thread(unified_diff, against.document, form.document, _label(against), "yours")
        return ApiResponse({"changes": [change.as_json() for change in changes], "unified": unified})

    @serves(f"{PATH}/patch", "POST", role=Role.VIEWER, max_bytes=MAX_DOCUMENT_SUBMISSION_BYTES)
    async def patch(self, request: AdminRequest) -> Response:
        """Return a patch file for the `patch` command, relative to the policy file."""
        form = request.fill(_Document)
        await asyncio.to_thread(_read, self._source, form.document)
        name = patch_name((self._source.path or "policy.yaml").rpartition("/")[2])
        text = await asyncio.to_thread(unified_diff, self._source.head.document, form.document, name, name)
        headers = {"content-disposition": 'attachment; filename="policy.patch"', **NO_STORE}
        return Response(text.encode(errors="surrogateescape"), headers=headers, media_type="text/x-diff")

    @serves(PATH, "PUT", max_bytes=MAX_DOCUMENT_SUBMISSION_BYTES)
    async def apply(self, request: AdminRequest) -> Response:
        """Make a document the newest revision."""
        form = request.fill(_Apply)
        return await self.change(request, form.document, form.reason)

    @serves(f"{PATH}/rollback", "POST")
    async def roll_back(self, request: AdminRequest) -> Response:
        """Make an older revision's document the newest revision."""
        form = request.fill(_Rollback)
        self.require_writable()
        older = await self._revision(form.revision)
        return await self.change(request, older.document, form.reason, kind="rollback", of=older.number)

    @serves(f"{PATH}/revisions")
    async def history(self, request: AdminRequest) -> Response:
        """List the revisions, newest first."""
        newest = self._source.head
        limit = min(max(request.integer("limit", 50, least=0, most=_MAX_NUMBER), 1), _MAX_LISTED)
        before = request.integer("before", newest.number + 1, least=0, most=_MAX_NUMBER)
        if self._source.path is not None:
            return ApiResponse({"revisions": [newest.as_line()], "source": "file"})
        found = [newest] if before > newest.number else []
        found += await self._source.stored.history.before(min(before, newest.number), limit - len(found))
        return ApiResponse({"revisions": [revision.as_line() for revision in found], "source": "store"})

    @serves(f"{PATH}/revisions/{{number}}")
    async def revision(self, request: AdminRequest) -> Response:
        """Show one revision and its changes."""
        digits = request.path_params["number"]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 9):
            raise NotFound("Revisions have numbers. GET /admin/api/policy/revisions lists them.")
        found = await self._revision(int(digits))
        parent = await self._parent(found)
        changes = [] if parent is None else await self.changes(parent.document, found.document)
        before = "" if parent is None else parent.document
        unified = await asyncio.to_thread(unified_diff, before, found.document, "parent", _label(found))
        return ApiResponse(
            {
                "revision": found.as_line(),
                "document": found.document,
                "changes": [change.as_json() for change in changes],
                "unified": unified,
            }
        )

    @serves(f"{PATH}/schema")
    async def schema(self, request: AdminRequest) -> Response:
        """Return the JSON Schema of documents."""
        from routing_policies.policy.schema import schema_of_policies

        return ApiResponse(schema_of_policies())

    # Shared with the other desks that change the document.

    async def change(
        self,
        request: AdminRequest,
        document: str,
        reason: str,
        *,
        kind: RevisionKind = "apply",
        of: int | None = None,
        action: str | None = None,
        target: str | None = None,
    ) -> Response:
        """Apply `document` for the caller, who names in `if-match` what was seen. Raises GatewayError."""
        self.require_writable()
        stored, if_match = self._source.stored, wanted_match(request)
        before = self._source.head
        if self._canary() is not None:
            raise Conflict("A canary is running. Promote it or stop it first.", code="canary_running")
        await self.require_callers(document)
        action_name = action or f"policy.{kind}"
        announced: list[tuple[int, str]] = []

        async def announce(revision: Revision) -> None:
            detail = {"number": revision.number, "revision": revision.revision, "parent": revision.parent, "of": of}
            where = target or f"revision {revision.number}"
            line = await self._audit.record(request.who, action_name, where, reason=reason, detail=detail)
            announced.append((line, where))

        try:
            await stored.catch_up()
            revision = await stored.apply(
                document, author=request.who.name, reason=reason, if_match=if_match, kind=kind, of=of, announce=announce
            )
        except InvalidPolicy as error:
            raise BadPolicy(error.problems) from None
        except RevisionConflict as error:
            for line, where in announced:  # another replica was faster by a moment
                await self._audit.withdraw(request.who, line, action_name, where)
            raise await self.outdated(error) from None
        return await self.applied(before, revision)

    async def require_callers(self, document: str) -> None:
        """Refuse a document whose tenants have no key where keys are required. Raises Conflict or BadPolicy."""
        policy = await asyncio.to_thread(_read, self._source, document)
        if self._access.locks_out(policy):
            raise Conflict(
                "Nothing was changed: keys are required, and no key belongs to a tenant of this document, so nobody "
                "could call. Keep a tenant that has a key, or allow calls without a key first (page Tenants, or "
                "penstock keys optional).",
                code="nobody_could_call",
            )

    async def proof(self, found: PolicyReading) -> dict[str, Any] | None:
        """Return what holds for all requests of a good document; None for one with problems."""
        if found.policy is None or found.document is None or found.problems:
            return None
        return await asyncio.to_thread(_proof, self._access, found.policy, found.document)

    async def changes(self, old: str, new: str) -> tuple[PolicyChange, ...]:
        """Return the semantic changes. Raises BadPolicy."""
        return await asyncio.to_thread(_changes, self._source, old, new)

    async def blast(self, changes: tuple[PolicyChange, ...], old: Policy, new: Policy) -> dict[str, Any]:
        """Return the reach of the changes, and their share of the last day's traffic."""
        radius = blast_radius(changes, old, new)
        reach = await self._last_day.reach(radius)
        tenants: Any = "all" if radius.tenants is None else list(radius.tenants)
        return {"tenants": tenants, "routes": list(radius.routes), **msgspec.to_builtins(reach)}

    def require_writable(self) -> None:
        """Raise Conflict when the policy is a file."""
        why = self._source.read_only_why
        if why is not None:
            raise Conflict(f"Nothing was changed: {why}.", code="policy_read_only")

    async def applied(self, before: Revision, revision: Revision) -> Response:
        """Return the response to an apply."""
        old, new = await asyncio.to_thread(_both, self._source, before.document, revision.document)
        changes = diff(old, new)
        body = {
            "revision": revision.as_line(),
            "etag": revision.etag,
            "changes": [change.as_json() for change in changes],
            "blast_radius": await self.blast(changes, old, new),
        }
        return ApiResponse(body, headers={"etag": revision.etag})

    async def outdated(self, error: RevisionConflict) -> Outdated:
        """Return an error that names both sides, with the other's changes if the caller's revision is stored."""
        theirs = error.theirs
        conflict: dict[str, Any] = {"yours": error.yours, "theirs": theirs.as_line(), "changes": []}
        digits = error.yours.strip('"').partition("-")[0]
        yours = await self._source.stored.history.get(int(digits)) if digits.isdigit() and len(digits) < 9 else None
        if yours is not None and yours.etag == error.yours:
            changes = await self.changes(yours.document, theirs.document)
            conflict["changes"] = [change.as_json() for change in changes]
        message = (
            f"Nothing was changed: you started from {error.yours}, and {theirs.author} has made revision "
            f"{theirs.number} since ({theirs.reason}). Read the policy again and make your change on it."
        )
        return Outdated(message, conflict)

    async def _parent(self, revision: Revision) -> Revision | None:
        """Return the revision before; None for the first one, and for the oldest that is still stored."""
        try:
            return None if revision.parent is None else await self._source.revision(revision.parent)
        except NoSuchRevision:
            return None

    async def _revision(self, number: int) -> Revision:
        try:
            return await self._source.revision(number)
        except NoSuchRevision as error:
            raise NotFound(f"{str(error).capitalize()}.") from None
        except ReadOnlyPolicy as error:
            raise NotFound(f"There is no revision {number}: {error}.") from None


def wanted_match(request: AdminRequest) -> str:
    """Return the etag that the caller has seen. Raises IfMatchRequired."""
    text = request.headers.get("if-match", "").strip()
    if not text:
        raise IfMatchRequired
    return text if text == ANY or text.startswith('"') else f'"{text}"'


def _label(revision: Revision) -> str:
    return f"revision {revision.number}" if revision.number else "the file"


def _proof(access: CallerAccess, policy: Policy, document: Document) -> dict[str, Any]:
    from routing_policies.proof.prover import proof_as_json, prove  # only an admin who edits pays for the search

    return proof_as_json(access.with_callers(prove(policy), policy), document)


def _read(source: PolicySource, document: str) -> Policy:
    try:
        return source.reader.read(document)
    except InvalidPolicy as error:
        raise BadPolicy(error.problems) from None


def _load(source: PolicySource, document: str) -> Policy:
    try:
        return source.reader.load(document)
    except PolicyError as error:
        raise BadPolicy(error.problems) from None


def _both(source: PolicySource, old: str, new: str) -> tuple[Policy, Policy]:
    return _load(source, old), _load(source, new)


def _changes(source: PolicySource, old: str, new: str) -> tuple[PolicyChange, ...]:
    return diff(*_both(source, old, new))

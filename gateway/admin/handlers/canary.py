"""Canaries at the admin API."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from starlette.responses import Response

from gateway.admin.api.errors import BadPolicy, Conflict
from gateway.admin.api.fields import Reason, RequestBody, Seconds
from gateway.admin.api.request import MAX_DOCUMENT_SUBMISSION_BYTES, AdminRequest, serves
from gateway.admin.handlers.policy import PATH, PolicyHandlers, Text, wanted_match
from gateway.api.application import ApiResponse
from gateway.errors import InvalidRequest
from gateway.policies.canaries import Canaries
from gateway.policies.errors import CanaryRunning, InvalidPolicy, NotSeparable, RevisionConflict
from gateway.policies.source import PolicySource
from routing_policies.policy.values import Id
from routing_policies.trial import TrialGuard

CANARY: Final = f"{PATH}/canary"


class _Start(RequestBody, frozen=True, kw_only=True):
    document: Text
    reason: Reason
    percent: Annotated[int, Meta(ge=1, le=100)]
    tenants: Annotated[tuple[Id, ...], Meta(min_length=1)] | None = None
    promote_after_s: Seconds | None = None
    guard: TrialGuard = TrialGuard()


class _End(RequestBody, frozen=True, kw_only=True):
    reason: Reason


class CanaryHandlers:
    """`/admin/api/policy/canary`. A policy that is a file has none: two files cannot be in force."""

    def __init__(self, source: PolicySource, policies: PolicyHandlers, canaries: Canaries | None) -> None:
        self._source = source
        self._policies = policies
        self._canaries = canaries

    @serves(CANARY)
    async def show(self, request: AdminRequest) -> Response:
        """Show the running canary, and those that have ended."""
        if self._canaries is None:
            return ApiResponse({"canary": None, "past": []})
        canary = await self._canaries.shown()
        return ApiResponse({"canary": canary, "past": await self._canaries.past()})

    @serves(CANARY, "POST", max_bytes=MAX_DOCUMENT_SUBMISSION_BYTES)
    async def start(self, request: AdminRequest) -> Response:
        """Put a document in force for some of the traffic."""
        form, canaries = request.fill(_Start), self._required()
        known = {tenant.id for tenant in self._source.policy.tenants}
        unknown = sorted(set(form.tenants or ()) - known)
        if unknown:
            message = f"tenants: the policy in force has no tenant {unknown[0]}."
            raise InvalidRequest(message, param="tenants")
        await self._policies.require_callers(form.document)
        try:
            canary = await canaries.start(
                form.document,
                request.who,
                reason=form.reason,
                if_match=wanted_match(request),
                percent=form.percent,
                tenants=form.tenants,
                promote_after_s=form.promote_after_s,
                guard=form.guard,
            )
        except InvalidPolicy as error:
            raise BadPolicy(error.problems) from None
        except RevisionConflict as error:
            raise await self._policies.outdated(error) from None
        except NotSeparable as error:
            raise InvalidRequest(f"No canary was started: {error}.", param="document", code="not_separable") from None
        except CanaryRunning:
            raise _running() from None
        return ApiResponse({"canary": canary}, 201)

    @serves(f"{CANARY}/promote", "POST")
    async def promote(self, request: AdminRequest) -> Response:
        """Make the canary's document the newest revision."""
        form, canaries = request.fill(_End), self._required()
        before = self._source.head
        try:
            revision = await canaries.promote(request.who, form.reason)
        except RevisionConflict as error:
            raise await self._policies.outdated(error) from None
        except InvalidPolicy as error:
            raise BadPolicy(error.problems) from None
        if revision is None:
            raise _none_runs()
        return await self._policies.applied(before, revision)

    @serves(f"{CANARY}/stop", "POST")
    async def stop(self, request: AdminRequest) -> Response:
        """Stop the canary: all requests are served by the revision in force."""
        form = request.fill(_End)
        canary = await self._required().stop(request.who, form.reason)
        if canary is None:
            raise _none_runs()
        return ApiResponse({"canary": canary})

    def _required(self) -> Canaries:
        self._policies.require_writable()
        assert self._canaries is not None, "a policy that can be written to is in the store"
        return self._canaries


def _running() -> Conflict:
    return Conflict("A canary is running. Promote it or stop it first.", code="canary_running")


def _none_runs() -> Conflict:
    return Conflict("No canary is running.", code="no_canary")

"""The switch between calls without an API key and keys for everybody, at the admin API."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.access.caller_access import CallerAccess
from gateway.access.directory import Directory
from gateway.access.identity import Identity
from gateway.admin.api.errors import Conflict
from gateway.admin.api.fields import Remark, RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse

PATH: Final = "/admin/api/keys/requirement"
_MAX_NAMED: Final = 5


class _Decision(RequestBody, frozen=True, kw_only=True):
    required: bool
    reason: Remark = ""


class KeyRequirementHandlers:
    """`/admin/api/keys/requirement`."""

    def __init__(self, directory: Directory, audit: AuditLog, access: CallerAccess) -> None:
        self._directory = directory
        self._audit = audit
        self._access = access

    @serves(PATH)
    async def show(self, request: AdminRequest) -> Response:
        """Show whether callers need a key, and how many keys work."""
        return ApiResponse(self._access.state)

    @serves(PATH, "POST")
    async def decide(self, request: AdminRequest) -> Response:
        """Require keys of everybody, or let programs on this machine call without one. Raises Conflict."""
        form = request.fill(_Decision)
        if form.required and not self._access.num_usable():
            raise Conflict(self._nobody_could_call(), code="no_usable_key")
        await self.set(request.who, is_required=form.required, reason=form.reason)
        return ApiResponse(self._access.state)

    async def set(self, who: Identity, *, is_required: bool, reason: str = "") -> None:
        """Write the decision to the audit log and the store. Raises Conflict where keys are always required."""
        if not is_required:
            self.require_choice()
        action = "keys.required" if is_required else "keys.optional"
        await self._audit.record(who, action, "callers", reason=reason)
        await self._directory.require_keys(is_required=is_required, by=who.name)

    def _nobody_could_call(self) -> str:
        lost = self._access.without_tenant()
        if not lost:
            return "Nothing was changed: there is no usable key yet, so nobody could call. Make a key first."
        tenants = ", ".join(sorted({key.tenant for key in lost})[:_MAX_NAMED])
        return (
            f"Nothing was changed: there is no usable key, so nobody could call. The policy in force has no tenant "
            f"{tenants}, whose keys would work. Add the tenant again, or make a key of another one."
        )

    def require_choice(self) -> None:
        """Raise Conflict where programs on this machine cannot be let in without a key."""
        why = self._access.state.why_required
        if why is not None:
            raise Conflict(f"Keys stay required: {why}.", code="keys_stay_required")

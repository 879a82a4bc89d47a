"""The audit log at the admin API."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse

PATH: Final = "/admin/api/audit"
_MAX_LISTED: Final = 1000
_MAX_NUMBER: Final = 10**11


class AuditHandlers:
    """`GET /admin/api/audit` and `/admin/api/audit/verify`."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    @serves(PATH)
    async def list(self, request: AdminRequest) -> Response:
        """List the lines behind `after`, oldest first; with `newest=true` the last ones, newest first."""
        limit = min(max(request.integer("limit", 100, least=0, most=_MAX_NUMBER), 1), _MAX_LISTED)
        last = await self._audit.last()
        if request.text("newest") == "true":
            found = await self._audit.entries(after=max(last - limit, 0), limit=limit)
            return ApiResponse({"entries": found[::-1], "last": last})
        found = await self._audit.entries(after=request.integer("after", 0, least=0, most=_MAX_NUMBER), limit=limit)
        return ApiResponse({"entries": found, "last": last})

    @serves(f"{PATH}/verify")
    async def verify(self, request: AdminRequest) -> Response:
        """Verify the hash chain of the audit log, which shows a changed line."""
        return ApiResponse(await self._audit.verify())

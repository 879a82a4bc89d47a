"""The audit log at the admin API."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from gateway.access.audit_log import AuditLog
from gateway.admin.api.table import AdminEndpoint, Call
from gateway.api.routes import SmallResponse
from gateway.errors import InvalidRequest

PATH: Final = "/admin/api/audit"
_MAX_LISTED: Final = 1000


class AuditHandlers:
    """`GET /admin/api/audit` and `/admin/api/audit/verify`."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def entries(self) -> list[AdminEndpoint]:
        """For the table."""
        return [
            AdminEndpoint(method="GET", path=PATH, action=self.list),
            AdminEndpoint(method="GET", path=f"{PATH}/verify", action=self.verify),
        ]

    async def list(self, call: Call) -> SmallResponse:
        """Lines behind `after`, oldest first; with `newest=true` the last ones, newest first."""
        query = parse_qs(call.scope.get("query_string", b"").decode("latin-1"))
        limit = min(max(_number(query, "limit", 100), 1), _MAX_LISTED)
        last = await self._audit.last()
        if query.get("newest") == ["true"]:
            found = await self._audit.entries(after=max(last - limit, 0), limit=limit)
            return SmallResponse.json({"entries": found[::-1], "last": last})
        found = await self._audit.entries(after=_number(query, "after", 0), limit=limit)
        return SmallResponse.json({"entries": found, "last": last})

    async def verify(self, call: Call) -> SmallResponse:
        """Whether nobody has changed a line."""
        return SmallResponse.json(await self._audit.verify())


def _number(query: dict[str, list[str]], name: str, default: int) -> int:
    text = query.get(name, [str(default)])[0]
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise InvalidRequest(f"{name}: expected a whole number.", param=name)
    return int(text)

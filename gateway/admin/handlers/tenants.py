"""Tenants at the admin API. They are part of the document, so a new one is a revision."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gateway.access.directory import Directory
from gateway.admin.api.errors import BadPolicy, Conflict
from gateway.admin.api.fields import Reason, RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.admin.handlers.policy import PolicyHandlers
from gateway.api.application import ApiResponse
from gateway.errors import InvalidRequest
from gateway.policies.last_day import LastDay
from gateway.policies.source import PolicySource
from routing_policies.policy.editing import EditError, add_item
from routing_policies.policy.problems import PolicyError
from routing_policies.policy.values import Id, ModelName

PATH: Final = "/admin/api/tenants"


class _New(RequestBody, frozen=True, kw_only=True):
    id: Id
    models: Annotated[tuple[ModelName, ...], Meta(min_length=1)] | None = None
    lanes: Annotated[tuple[Id, ...], Meta(min_length=1)] | None = None
    reason: Reason


class TenantHandlers:
    """`/admin/api/tenants`."""

    def __init__(self, source: PolicySource, policies: PolicyHandlers, directory: Directory, last_day: LastDay) -> None:
        self._source = source
        self._policies = policies
        self._directory = directory
        self._last_day = last_day

    @serves(PATH)
    async def list(self, request: AdminRequest) -> Response:
        """List the tenants of the policy in force, each with its number of usable keys."""
        requests: dict[str, int] = {}
        keys = self._directory.keys
        for (tenant, _), count in (await self._last_day.sums()).items():
            requests[tenant] = requests.get(tenant, 0) + count
        shown: list[dict[str, Any]] = [
            {
                "id": tenant.id,
                "models": tenant.models,
                "lanes": tenant.lanes,
                "limits": msgspec.to_builtins(tenant.limits),
                "keys": {"document": len(tenant.keys), "store": sum(map(keys.is_usable, keys.all(tenant.id)))},
                "requests_last_day": requests.get(tenant.id, 0),
            }
            for tenant in self._source.policy.tenants
        ]
        return ApiResponse({"tenants": shown})

    @serves(PATH, "POST")
    async def create(self, request: AdminRequest) -> Response:
        """Add a tenant, as a revision of its own."""
        form = request.fill(_New)
        self._policies.require_writable()
        if any(tenant.id == form.id for tenant in self._source.policy.tenants):
            raise Conflict(f"There is a tenant {form.id} already.", code="tenant_exists")
        item = {name: getattr(form, name) for name in ("id", "models", "lanes") if getattr(form, name) is not None}
        try:
            document = add_item(self._source.head.document, "tenants", item)
        except PolicyError as error:
            raise BadPolicy(error.problems) from None
        except EditError as error:
            raise InvalidRequest(f"The document in force cannot be added to: {error}.") from None
        return await self._policies.change(request, document, form.reason, action="tenant.create", target=form.id)

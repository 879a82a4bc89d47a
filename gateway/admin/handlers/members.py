"""`/admin/api/members/{list}`: lists of members in the store, for deployments with `discover: {list: NAME}`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.admin.api.fields import RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.discovery.source import SourceError
from gateway.discovery.store_list import MAX_MEMBERS, SPACE, MemberAddress, MemberList
from gateway.errors import InvalidRequest, NotFound
from gateway.policies.revision import MAX_REASON_CHARS
from gateway.store.base import Store

MEMBERS_PATH: Final = "/admin/api/members/{list}"
_MAX_NAME: Final = 64


class MemberOrder(RequestBody, frozen=True, kw_only=True):
    """The body of a request that writes a list."""

    members: Annotated[tuple[MemberAddress, ...], Meta(max_length=MAX_MEMBERS)]
    """Addresses `host:port` of all members; those that are missing drain."""
    reason: Annotated[str, Meta(max_length=MAX_REASON_CHARS)] = ""


class MemberHandlers:
    """Reads and writes the lists; every replica follows them within a second."""

    def __init__(self, store: Store, audit: AuditLog) -> None:
        self._store = store
        self._audit = audit

    @serves(MEMBERS_PATH)
    async def show(self, request: AdminRequest) -> Response:
        """Show a list. Raises NotFound and StoreUnavailable."""
        name = _name(request)
        entry = await self._store.get(SPACE, name)
        if entry is None:
            raise NotFound("There is no such list. PUT writes one.")
        found = msgspec.json.decode(entry.value, type=MemberList)
        return ApiResponse({"list": name, "members": found.members, "version": entry.version})

    @serves(MEMBERS_PATH, "PUT")
    async def write(self, request: AdminRequest) -> Response:
        """Replace a list.

        Raises InvalidRequest and AuditBroken; then nothing has changed. After StoreUnavailable, which the store may
        raise for a list that it took, GET shows the list in force.
        """
        name, order = _name(request), request.fill(MemberOrder)
        found = MemberList(members=order.members)
        try:
            addresses = [str(address) for address in found.addresses()]
        except SourceError as error:
            raise InvalidRequest(f"members: {error}.", param="members") from None
        detail = {"num": len(addresses)}
        async with self._audit.announced(request.who, "members.write", name, reason=order.reason, detail=detail):
            version = await self._store.put(SPACE, name, msgspec.json.encode(MemberList(members=tuple(addresses))))
        return ApiResponse({"list": name, "members": addresses, "version": version})


def _name(request: AdminRequest) -> str:
    name = str(request.path_params["list"])
    if not name or len(name) > _MAX_NAME:
        raise NotFound("There is no such list.")
    return name

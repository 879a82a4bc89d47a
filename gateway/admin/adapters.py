"""AdapterOrders: adapters that operators load into engines and unload, on every replica of a model at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.admin.api.fields import Remark, RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.deployments.live import LiveDeployment
from gateway.deployments.load_report import AdapterName
from gateway.errors import InvalidRequest, NotFound, UpstreamFailed
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest

ADAPTERS_PATH: Final = "/admin/api/deployments/{name}/adapters"
ADAPTER_PATH: Final = "/admin/api/deployments/{name}/adapters/{adapter}"

_TIMEOUTS: Final = ExchangeTimeouts(connect_s=2.0, first_byte_s=150.0, total_s=150.0)
"""An engine lets running requests finish before it unloads their adapter."""
_JSON: Final = ((b"content-type", b"application/json"), (b"accept", b"application/json"))
_MAX_ANSWER_BYTES: Final = 64 * 1024
_MAX_SHOWN: Final = 300


class AdapterOrder(RequestBody, frozen=True, kw_only=True):
    """The body of a request to load an adapter."""

    adapter: AdapterName
    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    """Folder of the adapter, relative to the engines' `lora_dir`."""
    reason: Remark = ""


class AdapterOrders:
    """`POST /admin/api/deployments/{name}/adapters` and `DELETE` of one adapter.

    `name` is a deployment's id, or a model: then the order goes to every deployment of the model.
    """

    def __init__(self, deployments: Callable[[], Mapping[str, LiveDeployment]], audit: AuditLog) -> None:
        self._deployments = deployments
        self._audit = audit

    @serves(ADAPTERS_PATH, "POST")
    async def load(self, request: AdminRequest) -> Response:
        """Load an adapter into every replica that does not have it.

        Raises NotFound, InvalidRequest, AuditBroken, and UpstreamFailed where a replica refuses; after that one alone,
        others may have it.
        """
        order = request.fill(AdapterOrder)
        replicas = self._replicas(request.path_params["name"])
        body = {"lora_name": order.adapter, "lora_path": order.path}
        lacking = [live for live in replicas if order.adapter not in live.adapters]
        line = await self._announce(request, "adapter.load", order.adapter, lacking, order.reason)
        outcomes = await asyncio.gather(*(_order(live, b"/v1/load_lora_adapter", body) for live in lacking))
        for live, problem in zip(lacking, outcomes, strict=True):
            if problem is None:
                live.note_adapters(live.adapters | {order.adapter})
        return await self._answer(request, "adapter.load", order.adapter, lacking, outcomes, replicas, line)

    @serves(ADAPTER_PATH, "DELETE")
    async def unload(self, request: AdminRequest) -> Response:
        """Unload an adapter from every replica that has it, once its requests there have ended.

        Raises NotFound, AuditBroken, and UpstreamFailed where a replica refuses; after that one alone, others may be
        without it.
        """
        adapter = request.path_params["adapter"]
        replicas = self._replicas(request.path_params["name"])
        having = [live for live in replicas if adapter in live.adapters]
        if not having:
            raise NotFound("None of these deployments has such an adapter.")
        line = await self._announce(request, "adapter.unload", adapter, having, "")
        for live in having:
            live.note_adapters(live.adapters - {adapter})
        body = {"lora_name": adapter}
        outcomes = await asyncio.gather(*(_order(live, b"/v1/unload_lora_adapter", body) for live in having))
        return await self._answer(request, "adapter.unload", adapter, having, outcomes, replicas, line)

    def _replicas(self, name: str) -> list[LiveDeployment]:
        """Return the deployments with this id or model. Raises NotFound and InvalidRequest."""
        found = [live for live in self._deployments().values() if name in (live.id, live.model)]
        if not found:
            raise NotFound("There is no such deployment or model in the policy in force.")
        others = [live.id for live in found if not live.is_bare or live.dialect is not None]
        if others:
            raise InvalidRequest(f"Deployment '{others[0]}' is no engine at the root of its URL.", param="name")
        return found

    async def _announce(
        self, request: AdminRequest, action: str, adapter: str, requested: list[LiveDeployment], reason: str
    ) -> int | None:
        """Record an order before any replica gets it; return its line, or None where there is nothing to do."""
        target = f"{request.path_params['name']}:{adapter}"
        return await self._audit.record(request.who, action, target, reason=reason) if requested else None

    async def _answer(
        self,
        request: AdminRequest,
        action: str,
        adapter: str,
        requested: list[LiveDeployment],
        outcomes: list[str | None],
        replicas: list[LiveDeployment],
        line: int | None,
    ) -> Response:
        """Report what was done, and withdraw `line` if nothing was. Raises UpstreamFailed if any replica refused."""
        problems = {live.id: problem for live, problem in zip(requested, outcomes, strict=True) if problem is not None}
        done = [live.id for live in requested if live.id not in problems]
        if line is not None and not done:
            await self._audit.withdraw(request.who, line, action, f"{request.path_params['name']}:{adapter}")
        if problems:
            failed = "; ".join(f"'{name}': {problem.rstrip('.')}" for name, problem in problems.items())
            raise UpstreamFailed(f"Not done at {failed}. Done at: {', '.join(done) or 'none'}.")
        return ApiResponse({"adapter": adapter, "deployments": [live.id for live in replicas], "changed": done})


async def _order(live: LiveDeployment, path: bytes, body: dict[str, Any]) -> str | None:
    """Send an order to an engine; return why it was not followed, None if it was."""
    request = UpstreamRequest(
        b"POST", path, (), msgspec.json.encode(body), (*_JSON, *live.headers.sent), is_at_root=True
    )
    try:
        async with await live.client.send(request, _TIMEOUTS) as response:
            answer, status = await response.read(_MAX_ANSWER_BYTES), response.status
    except UpstreamError as error:
        return f"{error}."
    if status == 200:
        return None
    if status in (404, 405) and b"lora_name" not in answer:
        return "it takes no such orders; start the engine with --max-loras and --lora-dir."
    return _message_of(answer) or f"status {status}."


def _message_of(answer: bytes) -> str:
    """Return the message of an error envelope, shortened; empty if there is none."""
    try:
        found = msgspec.json.decode(answer, type=dict[str, Any]).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    message = found.get("message") if isinstance(found, dict) else None
    return message[:_MAX_SHOWN] if isinstance(message, str) else ""

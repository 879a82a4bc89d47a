"""The public and the admin listener, put together from the parts of the process that they serve."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from gateway.admin.api.request import endpoints_of
from gateway.admin.assets import STATIC_PATH
from gateway.admin.context import AdminContext
from gateway.admin.handlers.cache import CacheHandlers
from gateway.admin.handlers.diagnosis import DiagnosisHandlers
from gateway.admin.handlers.quality.cascades import CascadeHandlers
from gateway.admin.handlers.quality.labels import LabelHandlers
from gateway.admin.handlers.replay import ReplayHandlers
from gateway.admin.routes import Operations, OwnPagesOnly, admin_application
from gateway.api.cross_origin import CrossOrigin
from gateway.api.feedback import FeedbackHandlers
from gateway.api.health import Probes
from gateway.api.json_bodies import JsonBodies
from gateway.api.message_tokens import MessageTokens, TokenCounter
from gateway.api.models import Models
from gateway.api.recalls import RecallHandlers
from gateway.api.routes import PublicApplication
from gateway.api.stored_responses import ResponseHandlers
from gateway.api.tokenization import TokenizationHandlers
from gateway.app.control_plane import ControlPlane
from gateway.app.recalls.recall_parts import RecallParts
from gateway.app.request_path import RequestPath
from gateway.app.response_cache import ResponseCache
from gateway.app.runtime import Runtime
from gateway.app.shared_state import SharedState
from gateway.config.settings import GatewayConfig
from gateway.diagnosis.collect import SampleCollector
from gateway.dialects.messages.errors import refusal_at
from gateway.http.asgi import ASGIApp
from gateway.http.certificate import ServerCertificate
from gateway.http.server import Listener
from gateway.limits.body_budget import BodyBudget
from gateway.routing.snapshot import PolicyInForce, PolicySnapshot

_MAX_ADMIN_CONNECTIONS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedParts:
    """Parts of a process that its listeners serve."""

    config: GatewayConfig
    runtime: Runtime
    policy: PolicyInForce
    bodies: BodyBudget
    cache: ResponseCache
    stores: SharedState
    recalls: RecallParts
    control: ControlPlane
    path: RequestPath
    room: AdminContext
    probes: Probes
    samples: SampleCollector
    note_wrong: Callable[[str, str], bool]
    """Takes a product's verdict on a request of a tenant; returns whether anything waited for it."""
    refresh: Callable[[], Awaitable[None]] | None
    """Brings metrics of other processes up to date before they are read; None where there are none."""


def public_listener(parts: ServedParts, certificate: ServerCertificate | None) -> Listener:
    """Return the listener of the products' clients."""
    config = parts.config
    application: ASGIApp = _public_application(parts)
    if config.public.origins:
        application = CrossOrigin(application, config.public.origins)
    return Listener(
        name="public",
        address=config.public.listen,
        app=application,
        limits=config.edge,
        reuse_port=config.public.shared,
        certificate=certificate,
        envelope=refusal_at,
    )


def admin_listener(parts: ServedParts, certificate: ServerCertificate | None) -> Listener:
    """Return the listener of operators and admins."""
    config = parts.config
    # Its own small part of the open files: a flood on the public listener leaves it alone.
    few = min(config.edge.connections.max_total, _MAX_ADMIN_CONNECTIONS)
    return Listener(
        name="admin",
        address=config.admin.listen,
        app=_admin_application(parts),
        limits=replace(config.edge, connections=replace(config.edge.connections, max_total=few)),
        certificate=certificate,
    )


def _public_application(parts: ServedParts) -> PublicApplication:
    runtime, path, recalls = parts.runtime, parts.path, parts.recalls
    max_bytes = parts.config.edge.body.max_bytes
    bodies = JsonBodies(parts.bodies, runtime.workers)

    def current() -> PolicySnapshot:
        return parts.policy.current

    counts = MessageTokens(
        current,
        path.messages,
        TokenCounter(path.pricer),
        bodies,
        runtime.workers,
        max_bytes=max_bytes,
        ids=runtime.ids,
        log=runtime.log,
    )
    return PublicApplication(
        path.pipeline,
        Models(current, int(time.time()), [endpoint.path for endpoint in path.dialects]),
        FeedbackHandlers(current, parts.cache.exact, bodies, parts.note_wrong, recall=recalls.note_feedback),
        TokenizationHandlers(current, bodies, max_bytes),
        dialects=(*path.dialects, counts, path.quotes),
        others=(
            *ResponseHandlers(current, parts.stores.responses).routes(),
            RecallHandlers(current, recalls.store if recalls.is_on else None).route(),
            *parts.probes.routes(),
        ),
        ids=runtime.ids,
        log=runtime.log,
    )


def _admin_application(parts: ServedParts) -> Starlette:
    runtime, control, room = parts.runtime, parts.control, parts.room
    gate = control.gate()
    static = Mount(STATIC_PATH, room.assets.router(), middleware=[Middleware(OwnPagesOnly, gate=gate)])
    return admin_application(
        [*control.endpoints(gate), *room.endpoints(), *endpoints_of(*_admin_handlers(parts))],
        [static, *parts.probes.routes()],
        gate,
        control.bodies(parts.bodies),
        ids=runtime.ids,
        log=runtime.log,
    )


def _admin_handlers(parts: ServedParts) -> tuple[object, ...]:
    """Return the admin handlers of all parts but the control plane's and the page's own."""
    runtime, control, path, policy = parts.runtime, parts.control, parts.path, parts.policy
    return (
        Operations(runtime.metrics, lambda: not policy.current.keys.is_open, parts.refresh),
        CacheHandlers(
            parts.cache,
            control.audit,
            policy=lambda: policy.current.policy,
            recalls=parts.recalls.counts,
            wall=runtime.wall,
        ),
        DiagnosisHandlers(parts.samples, lambda: policy.current.policy),
        path.preview,
        ReplayHandlers(
            path.replayer, control.audit, parts.config.process.answers_dir, control.answer_log, runtime.metrics
        ),
        LabelHandlers(path.learner),
        CascadeHandlers(path.learner.calibrator, path.labels, control.audit, wall=runtime.wall),
    )

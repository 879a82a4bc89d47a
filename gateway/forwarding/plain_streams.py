"""Plain answers behind which the gateway requests a stream.

A plain answer shows nothing before its end, so only a time limit finds a stalled deployment. The stream behind it
shows each token. It costs the gateway and the upstream one piece for each token, and servers word a few answers
differently in streams. So by default only a suspected deployment gets a stream.
"""

from __future__ import annotations

from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.deployments.live import LiveDeployment
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute


def wants_stream(
    ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, live: LiveDeployment, now: float
) -> bool:
    """Return whether to request a stream from this deployment although the client wants a plain answer."""
    if live.plain_as_stream == "never" or live.refuses_streams or ctx.wants_timing or not can_be_assembled(request):
        return False
    if live.plain_as_stream == "always":
        return True
    return planned.has_others and live.health.is_suspect(now)


def can_be_assembled(request: ChatRequest) -> bool:
    """Return whether a stream carries all that the plain answer would: one choice of plain text in a conversation."""
    if request.operation is not CHAT:
        return False
    fields, document = request.fields, request.document
    if fields.tools or fields.logprobs or request.num_choices > 1:
        return False
    return not any(document.get(name) for name in ("functions", "modalities", "audio"))

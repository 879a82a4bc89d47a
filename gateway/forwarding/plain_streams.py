"""When a stream is asked for behind a plain answer.

A plain answer shows nothing before its end, so a deployment that has stalled is found by a time limit alone. The stream
behind it shows each token. It costs the gateway and the upstream a piece for each token, and servers word a few answers
differently in streams, so by default only a suspected deployment is asked for one.
"""

from __future__ import annotations

from gateway.chat.request import ChatRequest
from gateway.deployments.live import LiveDeployment
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute


def wants_stream(
    ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, live: LiveDeployment, now: float
) -> bool:
    """Whether this deployment is to be asked for a stream although the client wants a plain answer."""
    if live.plain_as_stream == "never" or live.refuses_streams or ctx.wants_timing or not can_be_assembled(request):
        return False
    if live.plain_as_stream == "always":
        return True
    return planned.has_others and live.health.is_suspect(now)


def can_be_assembled(request: ChatRequest) -> bool:
    """Whether a stream tells all that the plain answer would: one choice of plain text."""
    fields, document = request.fields, request.document
    if fields.tools or fields.logprobs or request.num_choices > 1:
        return False
    return not any(document.get(name) for name in ("functions", "modalities", "audio"))

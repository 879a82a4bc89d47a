"""`POST /v1/feedback`: a product reports a wrong answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.api_keys import Caller
from gateway.api.application import ApiResponse
from gateway.api.json_bodies import JsonBodies
from gateway.cache.exact.exact_cache import ExactCache
from gateway.chat.conversion import invalid_field
from gateway.chat.fields.table import FieldRule
from gateway.errors import NotFound
from gateway.http.asgi import find_headers
from gateway.limits.body_budget import NOBODY
from gateway.routing.snapshot import PolicySnapshot

FEEDBACK_PATH = "/v1/feedback"
_RULES: Final = {
    "request_id": FieldRule(type="string", gateway="reads", engine="ignores", least=1, most=128),
    "verdict": FieldRule(type="string", gateway="reads", engine="ignores", must='be "wrong"'),
}


class Feedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Feedback on one answer."""

    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    """The `x-request-id` of the answer."""
    verdict: Literal["wrong"]


class Noted(msgspec.Struct, frozen=True):
    """The outcome of a feedback."""

    request_id: str
    verdict: Literal["wrong"]
    quarantined: bool
    """True if this process quarantined the answer; else it passed the feedback on to those that may know it."""


async def _recall_nothing(request_id: str, tenant: str) -> str | None:
    return None


class FeedbackHandlers:
    """Handlers of feedback; a wrong answer is not given again."""

    def __init__(
        self,
        policy: Callable[[], PolicySnapshot],
        cache: ExactCache,
        bodies: JsonBodies,
        note_wrong: Callable[[str, str], bool] = lambda request_id, tenant: False,
        *,
        recall: Callable[[str, str], Awaitable[str | None]] = _recall_nothing,
    ) -> None:
        """Handle feedback.

        Args:
            policy: The policy in force.
            cache: The exact cache, with the entries of both tiers.
            bodies: Reader of bodies.
            note_wrong: Gets request and tenant, and returns whether it waited for the verdict.
            recall: Recalls the similar answer that a tenant's request received, and returns the id of its entry.
        """
        self._policy = policy
        self._cache = cache
        self._bodies = bodies
        self._note_wrong = note_wrong
        self._recall = recall

    async def submit(self, request: Request) -> Response:
        """Quarantine the entry behind an answer.

        Raises InvalidRequest, InvalidApiKey, or NotFound for an answer that is not stored, or not this tenant's.
        """
        async with self._bodies.read(request, NOBODY) as document:  # its key is read only then
            host = request.client.host if request.client else None
            caller = self._policy().keys.authenticate(find_headers(request.scope, b"authorization"), host)
            try:
                feedback = msgspec.convert(document, Feedback)
            except msgspec.ValidationError as error:
                raise invalid_field(str(error), document, _RULES) from None
        return ApiResponse(await self._noted(feedback, caller))

    async def _noted(self, feedback: Feedback, caller: Caller) -> Noted:
        is_wanted = self._note_wrong(feedback.request_id, caller.tenant)
        is_known = self._cache.note_wrong(feedback.request_id, caller.tenant)
        entry_id = None if is_known else await self._recall(feedback.request_id, caller.tenant)
        if entry_id is not None:  # another process served it, or an earlier one
            is_known = self._cache.note_wrong(entry_id, caller.tenant)
        # The entry's location does not identify who made it, and that one may wait for such a verdict.
        is_passed_on = not is_wanted and self._cache.pass_on_doubt(feedback.request_id, caller.tenant)
        if not (is_known or is_wanted or is_passed_on or entry_id is not None):
            raise NotFound(
                "No cache entry of this key belongs to that request id. Send the x-request-id of the wrong answer; "
                "it is known while it is in the cache.",
                param="request_id",
            )
        return Noted(feedback.request_id, feedback.verdict, is_known)

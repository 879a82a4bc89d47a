"""TrimStage: shortens a request's prompt, on a thread when it is long."""

from __future__ import annotations

from gateway.chat.request import ChatRequest
from gateway.deployments.price import Pricer
from gateway.request_context import RequestContext
from gateway.trimming.images import ImageShrinker
from gateway.trimming.similarity import PassageSimilarity
from gateway.trimming.trimmer import DEFAULT_BYTES_PER_TOKEN, MAX_TRIMMED_HERE_BYTES, Trimmed, Trimmer, is_within
from gateway.util.workers import Workers
from routing_policies.policy.document import Trim


class TrimStage:
    """Stage that shortens prompts by a route's rule, and once more where admission needs it."""

    __slots__ = ("_images", "_pricer", "_similarity", "_trimmer", "_workers")

    def __init__(
        self, trimmer: Trimmer, similarity: PassageSimilarity, images: ImageShrinker, pricer: Pricer, workers: Workers
    ) -> None:
        self._trimmer = trimmer
        self._similarity = similarity
        self._images = images
        self._pricer = pricer
        self._workers = workers

    async def trim(self, ctx: RequestContext, request: ChatRequest, rule: Trim) -> ChatRequest:
        """Return the request as short as the rule wants it; what was cut is recorded in tokens."""
        # What other requests taught is no bound for this one: a prompt that is cut too little is refused by the model.
        learned = self._pricer.bytes_per_token(request, tenant=ctx.record.tenant)
        bytes_per_token = min(learned, DEFAULT_BYTES_PER_TOKEN)
        if is_within(request, rule, bytes_per_token):
            return request
        request, ctx.record.trimmed = await self._shortened(request, rule, bytes_per_token, ctx.record.tenant)
        return request

    async def replayed(self, request: ChatRequest, rule: Trim, tenant: str) -> ChatRequest:
        """Return a recorded request of a tenant as `trim` would shorten it now."""
        bytes_per_token = min(self._pricer.bytes_per_token(request, tenant=tenant), DEFAULT_BYTES_PER_TOKEN)
        if not rule.strategies or is_within(request, rule, bytes_per_token):
            return request
        return (await self._shortened(request, rule, bytes_per_token, tenant))[0]

    async def _shortened(
        self, request: ChatRequest, rule: Trim, bytes_per_token: float, tenant: str
    ) -> tuple[ChatRequest, tuple[tuple[str, int], ...]]:
        """Return the request with text and images cut by the rule, and the tokens cut by each strategy."""
        trimmed = await self.cut(request, rule, bytes_per_token, tenant)
        cuts = trimmed.cut_tokens(bytes_per_token)
        request = trimmed.request
        if "downscale_images" in rule.strategies:
            request, cut_tokens = await self._images.shrink(request, rule.max_image_side_px)
            if cut_tokens:
                cuts = (*cuts, ("downscale_images", cut_tokens))
        return request, cuts

    async def cut(self, request: ChatRequest, rule: Trim, bytes_per_token: float, tenant: str) -> Trimmed:
        """Return a tenant's request with its text cut by the rule; nothing is recorded."""
        if request.text_bytes <= MAX_TRIMMED_HERE_BYTES:
            return self._trimmer.trim(request, rule, bytes_per_token)
        if not self._similarity.is_ready(rule):
            return await self._workers.run(self._trimmer.trim, request, rule, bytes_per_token)
        begun = await self._workers.run(self._trimmer.begin, request, rule, bytes_per_token)
        similarities = None
        if begun.selection is not None:
            windows = await self._workers.run(begun.selection.windows, self._similarity.max_windows)
            similarities = await self._similarity.of(
                begun.selection.question.text, windows, rule.similarity_wait_ms, tenant
            )
        return await self._workers.run(begun.finish, similarities)

    async def trim_more(self, request: ChatRequest, rule: Trim) -> Trimmed | None:
        """Return a long request cut further, on a thread; None where there is nothing more to cut."""
        return await self._workers.run(self._trimmer.trim_more, request, rule)

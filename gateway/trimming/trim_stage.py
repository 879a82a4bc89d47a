"""TrimStage: shortens a request's prompt, on a thread when it is long."""

from __future__ import annotations

from gateway.chat.request import ChatRequest
from gateway.deployments.price import Pricer
from gateway.request_context import RequestContext
from gateway.trimming.images import ImageShrinker
from gateway.trimming.trimmer import DEFAULT_BYTES_PER_TOKEN, MAX_TRIMMED_HERE_BYTES, Trimmer
from gateway.util.workers import Workers
from routing_policies.policy.document import Trim


class TrimStage:
    """Stage that shortens prompts by a route's rule, and once more where admission needs it."""

    __slots__ = ("_images", "_pricer", "_trimmer", "_workers")

    def __init__(self, trimmer: Trimmer, images: ImageShrinker, pricer: Pricer, workers: Workers) -> None:
        self._trimmer = trimmer
        self._images = images
        self._pricer = pricer
        self._workers = workers

    async def trim(self, ctx: RequestContext, request: ChatRequest, rule: Trim) -> ChatRequest:
        """Return the request as short as the rule wants it; what was cut is recorded in tokens."""
        # What other requests taught is no bound for this one: a prompt that is cut too little is refused by the model.
        learned = self._pricer.bytes_per_token(request, tenant=ctx.record.tenant)
        bytes_per_token = min(learned, DEFAULT_BYTES_PER_TOKEN)
        if request.text_bytes > MAX_TRIMMED_HERE_BYTES:
            trimmed = await self._workers.run(self._trimmer.trim, request, rule, bytes_per_token)
        else:
            trimmed = self._trimmer.trim(request, rule, bytes_per_token)
        cuts = [(strategy, int(cut / bytes_per_token)) for strategy, cut in trimmed.cut_bytes]
        request = trimmed.request
        if "downscale_images" in rule.strategies:
            request, cut_tokens = await self._images.shrink(request, rule.max_image_side_px)
            if cut_tokens:
                cuts.append(("downscale_images", cut_tokens))
        ctx.record.trimmed = tuple(cuts)
        return request

    async def trim_more(self, request: ChatRequest, rule: Trim) -> ChatRequest | None:
        """Return a long request cut further, on a thread; None where there is nothing more to cut."""
        return await self._workers.run(self._trimmer.trim_more, request, rule)

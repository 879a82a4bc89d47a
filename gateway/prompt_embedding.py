"""PromptEmbedding: the embedding of a prompt, one for the cache and for its route's predictors, if it comes in time."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from gateway.cache.semantic.semantic_tier import Embeds, Vector
from gateway.chat.request import ChatRequest
from gateway.embedding.encoder import have_same_weights
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.prompt_of import prompt_text
from gateway.timeline import Stage

WAIT_S: Final = 0.01
"""Longest wait of a request for its embedding before it is routed, in seconds; features alone serve after that."""
MAX_CHARS: Final = 512
"""Longest text, in characters, that is embedded for routing alone: a longer one would be late."""
MAX_WAITING: Final = 2
"""Maximum number of texts that wait for the encoder; a text behind more of them would be late."""


class PromptEncoder(Embeds, Protocol):
    """The part of the Embedder that routing uses."""

    @property
    def encoder_id(self) -> str | None:
        """Return the encoder's id; None until it is ready."""

    @property
    def num_waiting(self) -> int:
        """Return the number of texts that no batch has taken yet."""

    def start(self) -> None:
        """Begin to load; returns at once."""


class PromptEmbedding:
    """Embedder of prompts, used only for routes with a predictor that has weights for an embedding."""

    __slots__ = ("_embedder", "_wait_s")

    def __init__(self, embedder: PromptEncoder, *, wait_s: float = WAIT_S) -> None:
        self._embedder = embedder
        self._wait_s = wait_s

    async def of(self, ctx: RequestContext, planned: PlannedRoute, request: ChatRequest) -> Vector | None:
        """Return the vector of the last user text.

        None when it is not ready within the bound, or when the predictors learned from another encoder.
        """
        embedder = self._embedder
        encoder_id = embedder.encoder_id
        if encoder_id is None:
            embedder.start()  # for those that come later
            return None
        if not all(have_same_weights(wanted, encoder_id) for wanted in planned.encoders):
            return None
        if ctx.vector_task is None:
            text = prompt_text(request)
            if not 0 < len(text) <= MAX_CHARS or embedder.num_waiting > MAX_WAITING:
                return None
            ctx.vector(embedder, text)
        return await self._wait(ctx)

    async def _wait(self, ctx: RequestContext) -> Vector | None:
        task = ctx.vector_task
        assert task is not None, "a request used it"
        if not task.done():
            await asyncio.wait((task,), timeout=self._wait_s)
            ctx.mark(Stage.EMBED)
        if ctx.semantic_lookup is None and not task.done():  # no other stage needs it
            task.cancel()
        return ctx.known_vector

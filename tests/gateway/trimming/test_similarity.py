"""Passages are compared with the question in time or not at all, and remembered."""

from __future__ import annotations

import asyncio

import numpy as np

from gateway.embedding.encoder import Vector
from gateway.trimming.similarity import PassageSimilarity
from routing_policies.policy.document import Trim

RULE = Trim(budget_tokens=10, strategies=("extract_passages",))
WINDOWS = [("near", (0, 1)), ("far", (2,))]


class Encoder:
    def __init__(self, *, is_ready: bool = True) -> None:
        self.encoder_id = "test" if is_ready else None
        self.num_waiting = 0
        self.is_started = False
        self.texts: list[str] = []
        self.gate: asyncio.Event | None = None

    def start(self) -> None:
        self.is_started = True

    async def embed(self, text: str) -> Vector | None:
        self.texts.append(text)
        if self.gate is not None:
            await self.gate.wait()
        return np.array([0.0, 1.0] if text == "far" else [1.0, 0.0], np.float32)


async def test_segments_get_the_cosine_of_their_window() -> None:
    assert await PassageSimilarity(Encoder()).of("near?", WINDOWS, 1000, "a") == {0: 1.0, 1: 1.0, 2: 0.0}


async def test_what_was_encoded_once_costs_nothing_again() -> None:
    encoder = Encoder()
    similarity = PassageSimilarity(encoder)
    first = await similarity.of("near?", WINDOWS, 1000, "a")
    assert await similarity.of("near?", WINDOWS, 1000, "a") == first
    assert encoder.texts == ["near?", "near", "far"]


async def test_what_another_tenant_sent_is_encoded_again() -> None:
    """Row 49: neither the time of a request nor its selection tells whether others sent a document."""
    encoder = Encoder()
    similarity = PassageSimilarity(encoder)
    for tenant in ("a", "b", "a"):
        await similarity.of("near?", WINDOWS, 1000, tenant)
    assert encoder.texts == ["near?", "near", "far"] * 2


async def test_nothing_waits_longer_than_the_policy_allows() -> None:
    encoder = Encoder()
    encoder.gate = asyncio.Event()
    assert await PassageSimilarity(encoder).of("near?", WINDOWS, 1, "a") is None


def test_an_encoder_is_loaded_for_later_requests_and_spared_when_busy() -> None:
    cold = Encoder(is_ready=False)
    assert not PassageSimilarity(cold).is_ready(RULE)
    assert cold.is_started
    busy = Encoder()
    assert PassageSimilarity(busy).is_ready(RULE)
    busy.num_waiting = 9
    assert not PassageSimilarity(busy).is_ready(RULE)


def test_a_route_that_allows_no_wait_needs_no_encoder() -> None:
    cold = Encoder(is_ready=False)
    assert not PassageSimilarity(cold).is_ready(Trim(strategies=("extract_passages",), similarity_wait_ms=0))
    assert not PassageSimilarity(cold).is_ready(Trim(strategies=("drop_old_turns",)))
    assert not cold.is_started

"""The embedding that cache and predictors share: what it decides, and that nobody waits long for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from gateway.cache.audit.match_models import MatchModels
from gateway.prompt_embedding import MAX_CHARS, PromptEmbedding
from routing_policies.quality.model import PairModel
from routing_policies.quality.training.pair_trainer import PairTrainer
from tests.gateway.cache.similar_stack import question, until
from tests.gateway.cache.word_encoder import DIMENSIONS, NearMatchModel, WordEncoder
from tests.gateway.stack import PRICED_PAIR, Stack, running
from tests.routing_policies.quality.prompts import outcomes

POLICY = (
    PRICED_PAIR
    + """\
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: quality_then_latency, min_quality: 0.5, candidates: [small, large]}}
{cache}
"""
)
EASY = "Please add 17 and 45."
"""For the small model by its features; the embedding of `add` states otherwise."""
PLENTY_S = 30.0


@cache
def learned() -> PairModel:
    pair = {"weak": "penstock-small", "strong": "penstock-large"}
    return PairTrainer([outcome for _, outcome in outcomes(1, 600)]).fit(**pair, trained_on="test")


def embedded_model(encoder: str = "words") -> PairModel:
    weights = [0.0] * DIMENSIONS
    weights[crc32(b"add") % DIMENSIONS] = -40.0
    text = learned().text
    return msgspec.structs.replace(
        learned(), embedded=msgspec.structs.replace(text, vector=tuple(weights)), encoder=encoder
    )


@asynccontextmanager
async def routed(
    folder: Path, model: PairModel, *, cache: str = "", wait_s: float = PLENTY_S
) -> AsyncIterator[tuple[Stack, WordEncoder]]:
    models = folder / "models"
    models.mkdir()
    (models / "pair.json").write_bytes(msgspec.json.encode(model))
    encoder = WordEncoder()
    async with running(
        folder,
        policy=POLICY.format(folder=folder, cache=cache),
        settings={"policy.quality_dir": models},
        load_encoder=encoder.load,
        match_models=MatchModels(first=NearMatchModel(), encoder_id=None, learn=lambda samples: NearMatchModel()),
    ) as stack:
        stack.gateway.pipeline._admission._embeddings = PromptEmbedding(stack.gateway._embedder, wait_s=wait_s)
        yield stack, encoder


async def chosen(stack: Stack, text: str = EASY) -> str:
    reply = await stack.call(question(text))
    return reply.headers["x-penstock-deployment"]


async def ready(stack: Stack) -> None:
    stack.gateway._embedder.start()
    await until(lambda: stack.gateway._embedder.is_ready)


async def test_a_prompt_is_routed_by_what_it_means_where_the_predictor_learned_from_that(tmp_path: Path) -> None:
    async with routed(tmp_path, embedded_model()) as (stack, encoder):
        await ready(stack)
        assert await chosen(stack) == "large"
        assert await chosen(stack, "How much is 4 + 9?") == "small"
        assert encoder.texts == [EASY, "How much is 4 + 9?"]


async def test_the_cache_and_the_predictor_share_one_embedding(tmp_path: Path) -> None:
    rule = "    cache: {mode: exact_then_semantic, ttl_s: 60}"
    async with routed(tmp_path, embedded_model(), cache=rule) as (stack, encoder):
        await until(lambda: stack.gateway._cache.semantic._index is not None)
        assert await chosen(stack) == "large"
        await until(lambda: stack.gateway._cache.semantic.num_entries == 1)
        assert encoder.texts == [EASY]


async def test_an_embedding_that_is_late_is_not_waited_for_nor_computed(tmp_path: Path) -> None:
    async with routed(tmp_path, embedded_model(), wait_s=0.001) as (stack, encoder):
        await ready(stack)
        may_go_on = encoder.hold()
        blocker = asyncio.create_task(stack.gateway._embedder.embed("something that takes long"))
        await encoder.has_begun.wait()
        assert await chosen(stack) == "small"
        assert stack.gateway._embedder.num_waiting == 0
        may_go_on.set()
        await blocker
        assert EASY not in encoder.texts


async def test_an_encoder_that_is_not_there_yet_is_started_for_those_that_come_later(tmp_path: Path) -> None:
    async with routed(tmp_path, embedded_model()) as (stack, _):
        assert await chosen(stack) == "small"
        await until(lambda: stack.gateway._embedder.is_ready)
        assert await chosen(stack) == "large"


async def test_a_text_too_long_to_be_in_time_is_not_embedded(tmp_path: Path) -> None:
    async with routed(tmp_path, embedded_model()) as (stack, encoder):
        await ready(stack)
        await chosen(stack, f"{EASY} " * (MAX_CHARS // len(EASY)))
        assert encoder.texts == []


@pytest.mark.parametrize("encoder_id", ["others-v1-int8-r1", ""])
async def test_what_was_learned_from_another_encoder_or_from_none_is_not_called(
    tmp_path: Path, encoder_id: str
) -> None:
    model = embedded_model(encoder_id) if encoder_id else learned()
    async with routed(tmp_path, model) as (stack, encoder):
        if encoder_id:
            await ready(stack)
        assert await chosen(stack) == "small"
        assert encoder.texts == []
        assert stack.gateway._embedder.is_ready is bool(encoder_id)

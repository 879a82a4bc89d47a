"""Inputs that are meant to do harm, on a route that gives similar answers; rows of the list of bad inputs are named."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from gateway.cache import semantic_stage
from gateway.cache.audit.match_models import MatchModels
from tests.gateway.cache.similar_stack import cache_of, call, echo, keep, question, similar, similar_policy, until
from tests.gateway.cache.word_encoder import NearMatchModel, WordEncoder
from tests.gateway.quota_policy import key_of
from tests.gateway.stack import Reply, Stack, running

STORED = "How do I reset the password of a mailbox?"
NEAR = "How do I reset the password of a big mailbox?"
SLOW_S = 5.0
TENANTS = ("mine", "theirs")


def two_tenants(folder: Path) -> str:
    """The policy with the semantic tier and two tenants."""
    lines = [
        f'  - {{id: {tenant}, keys: [{{id: k, sha256: "{sha256(f"sk-{tenant}".encode()).hexdigest()}"}}]}}'
        for tenant in TENANTS
    ]
    return "\n".join([similar_policy(folder).rstrip(), "tenants:", *lines, ""])


@asynccontextmanager
async def shared_by_two(folder: Path) -> AsyncIterator[Stack]:
    async with similar(folder, policy=two_tenants(folder)) as (stack, _):
        yield stack


async def send_as(stack: Stack, tenant: str, text: str, **headers: str) -> Reply:
    return await stack.call(question(text), headers={**key_of(tenant), **headers})


async def until_indexed(stack: Stack, count: int) -> None:
    await until(lambda: stack.gateway._cache.semantic.num_entries >= count)


@pytest.mark.parametrize(
    "url",
    [
        *("http://169.254.169.254/latest", "http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://0x7f.1:{port}/"),
        *("file:///etc/passwd", "gopher://127.0.0.1:{port}/"),
    ],
)
async def test_an_image_that_is_elsewhere_is_refused_and_nobody_is_connected_to(tmp_path: Path, url: str) -> None:
    """Row 38."""
    connected = asyncio.Event()
    server = await asyncio.start_server(lambda reader, writer: connected.set(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, similar(tmp_path) as (stack, encoder):
        parts = [{"type": "text", "text": STORED}, {"type": "image_url", "image_url": {"url": url.format(port=port)}}]
        reply = await stack.call({**question(STORED), "messages": [{"role": "user", "content": parts}]})
        assert (reply.status, reply.error["param"]) == (400, "messages[0].content[1].image_url.url")
        assert (stack.small.received, encoder.texts, connected.is_set()) == ([], [], False)


async def test_an_image_at_an_https_address_is_passed_on_and_never_fetched(tmp_path: Path) -> None:
    """Row 38: the deployment decides what it reads; the gateway connects to nobody and compares no such prompt."""
    connected = asyncio.Event()
    server = await asyncio.start_server(lambda reader, writer: connected.set(), "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/a.png"
    async with server, similar(tmp_path) as (stack, encoder):
        parts = [{"type": "text", "text": STORED}, {"type": "image_url", "image_url": {"url": url}}]
        reply = await stack.call({**question(STORED), "messages": [{"role": "user", "content": parts}]})
        assert reply.status == 200
        assert url.encode() in stack.small.received[0].body
        assert (encoder.texts, connected.is_set()) == ([], False)


async def test_an_image_is_never_compared_and_one_that_unpacks_hugely_is_only_passed_on(tmp_path: Path) -> None:
    """Row 39: nothing looks inside an image on a route that does not scale them, and none finds a similar answer."""
    packed = io.BytesIO()
    Image.new("1", (30_000, 30_000)).save(packed, "PNG", optimize=True)
    url = "data:image/png;base64," + base64.b64encode(packed.getvalue()).decode()
    async with similar(tmp_path) as (stack, encoder):
        await keep(stack, STORED)
        parts = [{"type": "text", "text": NEAR}, {"type": "image_url", "image_url": {"url": url}}]
        reply = await stack.call({**question(NEAR), "messages": [{"role": "user", "content": parts}]})
        assert (reply.status, cache_of(reply)) == (200, "miss")
        assert encoder.texts == [STORED]

        parts[1] = {"type": "image_url", "image_url": {"url": url + "A" * 50_000_000}}
        large = await stack.call({**question(NEAR), "messages": [{"role": "user", "content": parts}]})
        assert large.status == 413


@pytest.mark.parametrize(
    "control",
    ["public, max-age=31536000", "s-maxage=99999, immutable", "only-if-cached", "max-stale=99999", "public=1, share"],
)
async def test_what_a_caller_states_of_caching_shares_nothing_with_other_tenants(tmp_path: Path, control: str) -> None:
    """Row 46."""
    async with shared_by_two(tmp_path) as stack:
        forced = {"cache-control": control, "x-penstock-cache": "shared", "x-penstock-tenant": "theirs"}
        await send_as(stack, "mine", STORED, **forced)
        await until_indexed(stack, 1)
        for text in (STORED, NEAR):
            assert cache_of(await send_as(stack, "theirs", text, **forced)) in ("miss", "bypass")
        stack.small.otherwise = echo(SLOW_S)
        assert cache_of(await send_as(stack, "mine", NEAR)) == "hit-semantic"


class AimedEncoder(WordEncoder):
    """Every text has one vector: what somebody who can aim at a stored one has reached."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().encode(texts)
        vectors[:] = 0.0
        vectors[:, 0] = 1.0
        return vectors


@pytest.mark.parametrize(
    ("stored", "requested"),
    [
        ("How do I turn on the heating of a caravan?", "How do I not turn on the heating of a caravan?"),
        ("How do I turn on the heating of a caravan?", "How do I turn off the heating of a caravan?"),
        ("Is it safe to take 10 mg of ibuprofen with coffee?", "Is it safe to take 100 mg of ibuprofen with coffee?"),
        ("Is it safe to take 10 mg of ibuprofen with coffee?", "Is it safe to take 10 g of ibuprofen with coffee?"),
        ("Which museums does one visit in Paris?", "Which museums does one visit in Lyon?"),
        ("How does one travel from Paris to Lyon?", "How does one travel from Lyon to Paris?"),
        ("How does one travel from Paris to Lyon?", "How does one travel from Paris to Lyon? xq zzyv blorp"),
        (
            "How does one travel from Paris to Lyon?",
            "How does one travel from Paris to Lyon? describing. + similarlyNow ]( Me giving**ONE revert with",
        ),
    ],
)
async def test_a_changed_meaning_is_a_miss_even_at_a_similarity_of_one(
    tmp_path: Path, stored: str, requested: str
) -> None:
    """Rows 47 and 48, with the match model that ships and its loosest bound."""
    encoder = AimedEncoder()
    policy = similar_policy(tmp_path, "ttl_s: 60, audit_ratio: 0.0, max_error_ratio: 0.05")
    match_models = MatchModels(first=MatchModels.shipped().first, encoder_id=None, learn=MatchModels.shipped().learn)
    async with running(tmp_path, policy=policy, load_encoder=encoder.load, match_models=match_models) as stack:
        await until(lambda: stack.gateway._cache.semantic._index is not None)
        await keep(stack, stored)
        stack.small.otherwise = echo(SLOW_S)
        assert cache_of(await call(stack, stored.replace("?", " ?"))) == "hit-semantic"
        stack.small.otherwise = echo(0.3)
        assert cache_of(await call(stack, requested)) == "miss"


def unlike_others(number: int) -> str:
    """A question that has no word in common with those of other numbers."""
    return " ".join(f"{word}{number}" for word in ("where", "button", "red", "machine"))


async def test_another_tenants_question_takes_as_long_as_one_that_nobody_sent(tmp_path: Path) -> None:
    """Row 49: of a replayed and of a new question, either is the slower one as often as the other."""
    pairs = 60
    replayed: list[float] = []
    fresh: list[float] = []
    async with shared_by_two(tmp_path) as stack:
        for number in range(pairs):
            await send_as(stack, "theirs", unlike_others(number))
        await until_indexed(stack, pairs)
        for number in range(pairs):
            for took, other in ((replayed, number), (fresh, number + pairs))[:: 1 if number % 2 else -1]:
                began = time.perf_counter()
                reply = await send_as(stack, "mine", unlike_others(other))
                took.append(time.perf_counter() - began)
                assert cache_of(reply) == "miss"
    # Of neighbours in time, which see the same load.
    num_slower = sum(one > other for one, other in zip(replayed, fresh, strict=True))
    assert 0.2 < num_slower / pairs < 0.8, "chance says a half; 0.065 is one standard deviation"


@pytest.mark.parametrize("text", ["12 × 34 = ?", "100 € → $", "\N{THUMBS UP SIGN}" * 6])
async def test_a_text_without_words_is_answered_and_never_compared(tmp_path: Path, text: str) -> None:
    async with similar(tmp_path) as (stack, encoder):
        stack.small.otherwise = echo()
        reply = await call(stack, text)
        assert (reply.status, cache_of(reply)) == (200, "miss")
        assert (encoder.texts, stack.lines("semantic_tier_failed")) == ([], [])


@pytest.mark.parametrize("is_guard", [True, False], ids=["guard", "comparison"])
async def test_an_error_of_the_semantic_tier_fails_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_guard: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise IndexError("of a text that nobody thought of")

    async with similar(tmp_path) as (stack, _):
        stack.small.otherwise = echo()
        await keep(stack, STORED)
        if is_guard:
            monkeypatch.setattr(semantic_stage, "guard_of", fail)
        else:
            monkeypatch.setattr(NearMatchModel, "match_probability", fail)
        stack.small.otherwise = echo(0.5)
        reply = await call(stack, NEAR)
        assert (reply.status, cache_of(reply)) == (200, "miss")
        assert len(stack.lines("semantic_tier_failed")) == 1
        monkeypatch.undo()
        stack.small.otherwise = echo(10 * SLOW_S)
        assert cache_of(await call(stack, NEAR.replace("big", "large"))) == "hit-semantic"

"""The bound that refuses prompts which fit nowhere, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.prompt_bound import MAX_BYTES_PER_TOKEN, refuse_hopeless
from gateway.request import ChatRequest, ChatRequestParser
from tests.gateway.stack import chat, policy_text, running

CONTEXT = 10
FITS_PERHAPS = CONTEXT * MAX_BYTES_PER_TOKEN


def parsed(*contents: Any) -> ChatRequest:
    messages = [{"role": "user", "content": content} for content in contents]
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())


@pytest.mark.parametrize(
    "contents",
    [
        ("x" * (FITS_PERHAPS + MAX_BYTES_PER_TOKEN),),
        ("x" * FITS_PERHAPS, "y" * MAX_BYTES_PER_TOKEN),
        ("\u00e9" * (FITS_PERHAPS // 2 + MAX_BYTES_PER_TOKEN),),
        ([{"type": "text", "text": "x" * (FITS_PERHAPS + MAX_BYTES_PER_TOKEN)}],),
    ],
)
def test_what_no_tokenizer_makes_short_enough_is_refused(contents: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest, match="more than the 10 ") as caught:
        refuse_hopeless(parsed(*contents), CONTEXT)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize(
    "contents",
    [
        ("x" * FITS_PERHAPS,),
        ("\x01" * FITS_PERHAPS,),  # six bytes of JSON each, one of text
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}],),
    ],
)
def test_what_may_fit_is_left_to_the_engine(contents: tuple[Any, ...]) -> None:
    refuse_hopeless(parsed(*contents), CONTEXT)


def test_without_a_known_context_nothing_is_refused() -> None:
    refuse_hopeless(parsed("x" * 1_000_000), None)


async def test_the_largest_context_of_the_route_counts_and_nothing_goes_upstream(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("model: tiny", "model: tiny, context_tokens: 10")
    async with running(tmp_path, policy=text.replace("model: big", "model: big, context_tokens: 20")) as stack:
        body = chat("auto", messages=[{"role": "user", "content": "x" * 15 * MAX_BYTES_PER_TOKEN}])
        assert (await stack.ask(body)).status == 200  # the engine will know
        refused = await stack.ask({**body, "model": "solo"})

        assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
        assert "x-penstock-error-code" in refused.headers
        assert len(stack.small.received) == 1


async def test_a_candidate_of_unknown_context_may_take_anything(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("model: tiny", "model: tiny, context_tokens: 10")
    async with running(tmp_path, policy=text) as stack:
        body = chat("auto", messages=[{"role": "user", "content": "x" * 1_000_000}])
        assert (await stack.ask(body)).status == 200

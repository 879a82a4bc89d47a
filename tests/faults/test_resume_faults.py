"""Streams that go on at another engine when theirs fails: what clients read is what an undisturbed stream has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lone_engine import LoneEngine
from tests.faults.resume_stack import KEY_VARIABLE, REQUESTS, resuming, stream_of, two_engines
from tests.support.fault_proxy import Toxics

_NUM_POINTS = 6
"""Random points of each kind of stream at which its connection breaks."""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoneEngine, LoneEngine]]:
    """Two engines with the same model and key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, "0123456789abcdef" * 4)
        with two_engines(tmp_path_factory.mktemp("engines")) as found:
            yield found


@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_stream_whose_connection_breaks_anywhere_goes_on_token_for_token(
    kind: str, engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    rng = random.Random(kind)
    async with resuming(tmp_path / "gateway", *engines) as stack:
        body = stream_of(kind)
        undisturbed = await stack.read(body)
        assert undisturbed.is_whole and undisturbed.num_roles == 1
        num_bytes = len((await stack.call(body)).body)
        for number in range(_NUM_POINTS):
            ends = rng.choice(("close", "reset"))
            stack.first.toxics = Toxics(limit_bytes=rng.randint(600, num_bytes), limit_ends=ends)
            await stack.first.down()  # connections that were kept have counted bytes already
            await stack.first.up()
            assert await stack.read(body) == undisturbed, f"point {number}"
        assert await stack.num_resumed() > 0

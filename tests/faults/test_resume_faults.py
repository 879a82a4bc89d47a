"""Streams that go on at another engine when theirs fails: what clients read is what an undisturbed stream has."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lone_engine import LoneEngine, lone_engine
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
    async with resuming(tmp_path, *engines) as stack:
        body = stream_of(kind)
        undisturbed = await stack.read(body)
        assert undisturbed.is_whole
        assert undisturbed.num_roles == 1
        num_bytes = len((await stack.call(body)).body)
        for number in range(_NUM_POINTS):
            ends = rng.choice(("close", "reset"))
            stack.first.toxics = Toxics(limit_bytes=rng.randint(600, num_bytes), limit_ends=ends)
            await stack.first.down()  # connections that were kept have counted bytes already
            await stack.first.up()
            assert await stack.read(body) == undisturbed, f"point {number}"
        assert await stack.num_resumed() > 0


_SIGNALS = {"killed": signal.SIGKILL, "hung": signal.SIGSTOP, "drained": signal.SIGTERM}


@pytest.mark.parametrize("fate", _SIGNALS)
async def test_streams_of_an_engine_that_is_killed_hangs_or_drains_go_on_at_another(
    fate: str, engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    rng = random.Random(fate)
    with lone_engine(tmp_path, "--resume-key-env", KEY_VARIABLE) as victim:
        try:
            async with resuming(tmp_path, victim, engines[1], inter_token_ms=700) as stack:
                bodies = [stream_of(kind, 150) for kind in REQUESTS] * 2
                undisturbed = await asyncio.gather(*map(stack.read, bodies))
                assert all(stream.is_whole for stream in undisturbed)
                started_at = time.monotonic()
                reading = [asyncio.create_task(stack.read(body)) for body in bodies]
                await asyncio.sleep(rng.uniform(0.1, 0.3))
                os.kill(victim.pid, _SIGNALS[fate])
                assert await asyncio.gather(*reading) == undisturbed
                assert await stack.num_resumed() >= 4
                if fate == "drained":
                    assert time.monotonic() - started_at < 20.0, "the drain waited for its streams"
        finally:
            os.kill(victim.pid, signal.SIGCONT)

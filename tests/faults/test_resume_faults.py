"""Streams that go on at another engine when theirs fails: what clients read is what an undisturbed stream has."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lone_engine import LoneEngine, lone_engine
from tests.faults.resume_proof import SIGNALS, SPECULATION, breaking_connections, signalled
from tests.faults.resume_stack import KEY_VARIABLE, REQUESTS, resuming, two_engines

pytestmark = pytest.mark.e2e

_NUM_POINTS = 6
"""Random points of each kind of stream at which its connection breaks."""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoneEngine, LoneEngine]]:
    """Two engines with the same model and key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, "0123456789abcdef" * 4)
        with two_engines(tmp_path_factory.mktemp("engines")) as found:
            yield found


async def test_a_stream_whose_connection_breaks_anywhere_goes_on_token_for_token(
    engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    rng = random.Random(1)
    async with resuming(tmp_path, *engines) as stack:
        for kind in REQUESTS:
            assert await breaking_connections(stack, kind, rng, _NUM_POINTS) == []
        assert await stack.num_resumed() >= len(REQUESTS)  # others broke before their first event, or behind the last


def num_accepted(engine: LoneEngine) -> float:
    """Return the number of tokens of predictions that an engine's answers have."""
    with engine.client() as client:
        lines = client.get("/metrics").text.splitlines()
    kind = 'kind="accepted_prediction_tokens"'
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("engine_stage_counts_total") and kind in line
    )


async def test_a_stream_with_a_prediction_goes_on_as_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "0123456789abcdef" * 4)
    rng = random.Random(2)
    with two_engines(tmp_path, *SPECULATION) as engines:
        async with resuming(tmp_path, *engines) as stack:
            for kind in ("greedy", "seeded", "penalties", "stop strings", "logprobs", "schema"):
                assert await breaking_connections(stack, kind, rng, _NUM_POINTS, predicts=True) == []
            assert await stack.num_resumed() >= 6
        assert sum(map(num_accepted, engines)) > 0


async def test_streams_of_an_engine_that_hangs_go_on_at_another(
    engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    async with resuming(tmp_path, *engines, inter_token_ms=700) as stack:
        assert await signalled(stack, engines[0], "hung", random.Random(1)) == []
        assert await stack.num_resumed() >= 4


@pytest.mark.parametrize("fate", sorted(SIGNALS.keys() - {"hung"}))
async def test_streams_of_an_engine_that_is_killed_or_drains_go_on_at_another(
    fate: str, engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    with lone_engine(tmp_path, "--resume-key-env", KEY_VARIABLE, "--drain-timeout-s", "60") as victim:
        async with resuming(tmp_path, victim, engines[1]) as stack:
            assert await signalled(stack, victim, fate, random.Random(fate)) == []
            assert await stack.num_resumed() >= 4


async def test_engines_with_different_keys_do_not_continue_streams(
    engines: tuple[LoneEngine, LoneEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "f" * 64)
    async with resuming(tmp_path, *engines) as stack:
        lost = await breaking_connections(stack, "greedy", random.Random(3), 2)
        assert len(lost) == 2
        assert await stack.num_resumed() == 0

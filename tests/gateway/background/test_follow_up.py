"""What an answer is used for afterwards: prices, labels, and a comparison where one was drawn."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.background.test_shadowing import EASY, POLICY, counted
from tests.gateway.scripted import complete
from tests.gateway.stack import running


async def test_a_stream_has_its_shadow_too(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        stack.large.otherwise = complete
        await stack.call({**EASY, "stream": True})
        (shadows,) = await counted(stack, "shadows_total")
        assert 'verdict="same"' in shadows
        assert "stream" not in stack.large.received[0].json


async def test_without_a_share_nothing_is_sent_twice(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=0.0)) as stack:
        await stack.call(EASY)
        await stack.until_idle()
        assert stack.large.received == []

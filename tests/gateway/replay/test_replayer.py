"""Replays: what is sent again, and what cannot be compared."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.cache.exact.test_exact_cache import cached_policy
from tests.gateway.dialects.messages.upstream.anthropic_server import POLICY, TEXT, answering, message_with
from tests.gateway.replay.replay_stack import SETTINGS, answers_with, factor, replayed
from tests.gateway.scripted import hang
from tests.gateway.stack import chat, running


async def test_the_body_that_was_sent_is_sent_again_past_the_cache(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path), settings=SETTINGS) as stack:
        stack.small.otherwise = answers_with("hello")
        sent = (await stack.call(chat(user="anna"))).headers["x-request-id"]
        found = await replayed(stack, sent)
        first, again = (received.json for received in stack.small.received)
        assert first == again, "with the seed that the gateway drew"
        assert first["seed"] == found["seed"]
        assert found["factors"] == []
        assert found["summary"].startswith("Byte-equal")
        assert stack.small.received[1].headers["x-penstock-cache-salt"] == "penstock-replay"


async def test_without_the_setting_nothing_is_added_to_a_request(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"telemetry.recorder.mode": "text"}) as stack:
        sent = await stack.call(chat())
        assert stack.small.received[0].json == {**chat(), "model": "tiny"}
        assert "x-penstock-model-state" not in stack.small.received[0].headers
        refused = await stack.call({"id": sent.headers["x-request-id"]}, path="/admin/api/replay", admin=True)
        assert refused.status == 404
        assert 'telemetry.recorder.mode = "answers"' in refused.error["message"]
    assert not (tmp_path / "recorded" / "answers").exists()


async def test_a_sampled_answer_without_a_seed_shows_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path), settings=SETTINGS) as stack:
        stack.small.otherwise = answering(message_with([TEXT]))
        sampled = (await stack.call(chat(max_tokens=9))).headers["x-request-id"]
        greedy = (await stack.call(chat(max_tokens=9, temperature=0))).headers["x-request-id"]
        assert "seed" not in stack.small.received[0].json, "Anthropic's API takes none"
        stack.small.otherwise = answering(message_with([{"type": "text", "text": "other"}]))
        found = await replayed(stack, sampled, bisect=True)
        assert (found["is_equal"], found["factors"]) == (None, [])
        assert "sampled without a seed" in found["summary"]
        found = await replayed(stack, greedy, bisect=True)
        assert found["is_equal"] is False
        assert factor(found, "model")["verdict"] == "unknown", "it states no digest"


async def test_a_deployment_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path, settings=SETTINGS) as stack:
        sent = (await stack.call(chat(temperature=0))).headers["x-request-id"]
        await stack.small.close()
        found = await replayed(stack, sent, bisect=True)
        assert (found["is_equal"], found["compared"]) == (None, "nothing")
        assert "gave no answer" in found["summary"]
        assert found["first"] is None


async def test_a_cached_response_without_its_request_is_compared_as_it_is_stored(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path), settings=SETTINGS) as stack:
        made = await stack.call(chat())
        hit = (await stack.call(chat())).headers["x-request-id"]
        await replayed(stack, hit)  # writes what waits
        for path in (tmp_path / "recorded" / "answers").glob("*.jsonl"):
            own = [line for line in path.read_bytes().splitlines(keepends=True) if hit.encode() in line[:60]]
            path.write_bytes(b"".join(own))
        stack.small.otherwise = hang
        found = await replayed(stack, hit, bisect=True)
        assert (found["compared"], found["is_equal"]) == ("stored", True)
        assert made.headers["x-request-id"] in found["summary"]
        assert found["first"] is None

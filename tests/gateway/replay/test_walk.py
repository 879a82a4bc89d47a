"""The walk over scripted deployments: cached responses, deployments that are gone, and servers that state nothing."""

from __future__ import annotations

from pathlib import Path

from gateway.cache.exact.exact_tier import Selection
from tests.gateway.cache.exact.test_exact_cache import cached_policy
from tests.gateway.cache.similar_stack import cache_of, call, keep, similar, stats_of
from tests.gateway.cache.test_semantic_stage import NEAR, STORED
from tests.gateway.replay.replay_stack import SETTINGS, answers_with, factor, replayed
from tests.gateway.scripted import hang
from tests.gateway.stack import chat, policy_text, running

_STATE = "aaaaaaaaaaaaaaaa;none/float32/float32;bbbbbbbbbbbbbbbb;cccccccccccccccccccccccccccccccc"


async def test_a_cached_response_that_is_gone_is_compared_with_a_new_answer(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path), settings=SETTINGS) as stack:
        stack.small.otherwise = answers_with("old", _STATE)
        await stack.call(chat(temperature=0))
        hit = await stack.call(chat(temperature=0))
        assert hit.headers["x-penstock-cache"] == "hit-exact"
        found = await replayed(stack, hit.headers["x-request-id"], bisect=True)
        assert (found["is_equal"], found["compared"], found["first"]) == (True, "origin", None)

        stack.gateway._cache.exact.purge(Selection(), dry_run=False)
        stack.small.otherwise = answers_with("new", _STATE)
        found = await replayed(stack, hit.headers["x-request-id"], bisect=True)
        assert found["is_equal"] is False
        assert found["first"] == "cache", "the old response is served no more"
        assert factor(found, "cache")["difference"] == {"at": 0, "then": "old", "now": "new"}
        assert factor(found, "engine")["verdict"] == "unknown"


async def test_a_similar_answer_that_is_served_now_is_named_and_not_counted(tmp_path: Path) -> None:
    async with similar(tmp_path, settings=SETTINGS) as (stack, _):
        stack.small.otherwise = answers_with("mine")
        first = await keep(stack, STORED, temperature=0)
        stack.gateway._cache.exact.purge(Selection(), dry_run=False)
        stack.small.otherwise = answers_with("theirs")
        await keep(stack, NEAR, temperature=0)
        stack.small.otherwise = answers_with("mine")
        before = stats_of(stack).similarities.shown()
        found = await replayed(stack, first.headers["x-request-id"], bisect=True)
        assert found["first"] == "cache", found["summary"]
        assert factor(found, "cache")["now"].startswith("hit_semantic (similar) of req_")
        assert stats_of(stack).similarities.shown() == before
        stack.small.otherwise = hang
        hit = await call(stack, STORED, temperature=0)
        assert cache_of(hit) == "hit-semantic", "the walk showed what a request gets"
        stack.small.otherwise = answers_with("theirs")
        again = await replayed(stack, hit.headers["x-request-id"], bisect=True)
        assert (again["compared"], again["first"]) == ("origin", None), again["summary"]


async def test_a_deployment_that_is_gone_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path, settings=SETTINGS) as stack:
        stack.small.otherwise, stack.large.otherwise = answers_with("small"), answers_with("large")
        sent = (await stack.call(chat(temperature=0))).headers["x-request-id"]
        text = policy_text(tmp_path)
        gone = "\n".join(line for line in text.splitlines() if "{id: small" not in line)
        (tmp_path / "policy.yaml").write_text(gone.replace("[small, large]", "[large]").replace("[small]", "[large]"))
        await stack.gateway.control.look()
        found = await replayed(stack, sent, bisect=True)
        assert found["is_equal"] is None
        assert "no deployment 'small'" in found["summary"]
        assert found["first"] == "routing"
        assert factor(found, "routing")["difference"]["now"] == "large"


async def test_a_deployment_with_another_address_is_a_change_of_the_policy(tmp_path: Path) -> None:
    async with running(tmp_path, settings=SETTINGS) as stack:
        stack.small.otherwise, stack.large.otherwise = answers_with("small", _STATE), answers_with("large", _STATE)
        sent = (await stack.call(chat(temperature=0))).headers["x-request-id"]
        text = (tmp_path / "policy.yaml").read_text()
        (tmp_path / "policy.yaml").write_text(text.replace("small.sock", "large.sock"))
        await stack.gateway.control.look()
        found = await replayed(stack, sent, bisect=True)
        assert found["first"] == "policy", found["summary"]
        assert "another URL" in factor(found, "policy")["note"]


async def test_a_request_that_passed_the_cache_by_still_does(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path), settings=SETTINGS) as stack:
        stack.small.otherwise = answers_with("old", _STATE)
        passed = await stack.call(chat(temperature=0), headers={"cache-control": "no-store"})
        stack.small.otherwise = answers_with("other", _STATE)
        await stack.call(chat(temperature=0))
        stack.small.otherwise = answers_with("old", _STATE)
        found = await replayed(stack, passed.headers["x-request-id"], bisect=True)
        assert (found["is_equal"], found["first"]) == (True, None)
        assert factor(found, "cache")["verdict"] == "same"

"""A plan: recorded requests through a new policy, and what then really happens to the same requests."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

from gateway.cli.explain import render_preview, render_request
from gateway.telemetry.records.tape import Tape, read_tape
from routing_policies.replay import RecordedRequest
from routing_policies.share import share_of, stable_key
from tests.gateway.admin.handlers.test_policy import POLICY, apply, in_force, stored
from tests.gateway.stack import PRICED_PAIR, Stack, chat, policy_text, running

NUM = 240


def traffic() -> list[dict[str, Any]]:
    rng = random.Random(4)
    requested = []
    for _ in range(NUM):
        text = f"question {rng.randrange(90)}"
        messages = [{"role": "user", "content": text}]
        if rng.random() < 0.4:
            messages = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}, *messages]
        requested.append({**chat(), "messages": messages})
    return requested


async def serve(stack: Stack) -> Counter[str]:
    """Where the traffic goes."""
    notified: Counter[str] = Counter()
    for body in traffic():
        reply = await stack.call(body)
        assert reply.status == 200
        notified[reply.headers["x-penstock-route"]] += 1
        notified[reply.headers["x-penstock-cache"]] += 1
    return notified


def cached_long_ones(document: str) -> str:
    """Long conversations to the large model, and everything cached."""
    long = """  - id: long
    match: {models: [auto], when: "request.turns > 1"}
    select: {candidates: [large]}
    cache: {mode: exact, scope: shared}
"""
    select = "select: {policy: first_available, candidates: [small, large]}\n"
    return document.replace("routes:\n", f"routes:\n{long}").replace(select, f"{select}    cache: {{mode: exact}}\n")


async def test_a_plan_states_what_then_happens_to_the_same_traffic(tmp_path: Path) -> None:
    async with stored(tmp_path, settings={"telemetry.recorder.mode": "features"}) as stack:
        seed = await in_force(stack)
        await serve(stack)
        await asyncio.to_thread(stack.gateway.control.tape.flush)  # type: ignore[union-attr]
        document = cached_long_ones(seed["document"])
        plan = await stack.call({"document": document}, admin=True, path=f"{POLICY}/plan")
        replay = plan.json["replay"]
        assert replay["num_requests"] == NUM
        assert replay["old"]["hit_ratio"] == 0
        assert (await apply(stack, document, etag=seed["etag"])).status == 200
        happened = await serve(stack)
        assert abs(replay["new"]["hit_ratio"] - happened["hit-exact"] / NUM) <= 0.02
        assert abs(replay["new"]["routes"]["long"] - happened["long"] / NUM) <= 0.02
        assert replay["moved"][0]["route_to"] == "long"
    words = b"".join(path.read_bytes() for path in (tmp_path / "recorded").glob("*.jsonl"))
    assert b"question" in words  # the field's name
    assert b"before" not in words
    assert b"question 1" not in words


async def test_without_a_recording_a_plan_reports_it_and_a_gateway_records_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat())
        plan = await stack.call({"document": policy_text(tmp_path)}, admin=True, path=f"{POLICY}/plan")
        assert plan.json["replay"] is None
        assert "recorder" in plan.json["replay_why_not"]
        assert stack.gateway.control.tape is None
    assert not (tmp_path / "recorded").exists()


async def edited(stack: Stack, document: str, **edits: Any) -> Any:
    """What becomes of a text."""
    reply = await stack.call({"document": document, **edits}, admin=True, path=f"{POLICY}/edit")
    return reply.json if reply.status == 200 else reply.error


async def test_an_edit_adds_sections_takes_lists_and_removes(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = (await in_force(stack))["document"]
        mode = {"path": "routes[0].cache.mode", "value": "exact"}
        order = {"path": "routes[0].select.candidates", "value": ["large", "small"]}
        made = await edited(stack, seed, set=[mode, order])
        assert "cache: {mode: exact}" in made["document"]
        assert "candidates: [large, small]" in made["document"]
        assert [change["path"] for change in made["changes"]] == [
            "routes.main.select.candidates",
            "routes.main.cache.mode",
        ]
        back = await edited(
            stack, made["document"], set=[{**order, "value": ["small", "large"]}], remove=[mode["path"]]
        )
        assert back["document"] == seed
        fewer = await edited(stack, seed, remove=["deployments[0]", "deployments[1]"])
        assert "deployments:" not in fewer["document"]


async def test_a_bad_value_can_be_corrected_by_the_next_edit(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = (await in_force(stack))["document"]
        bad = await edited(stack, seed, set=[{"path": "routes[0].cache.ttl_s", "value": -1}])
        assert bad["changes"] == []
        good = await edited(stack, bad["document"], set=[{"path": "routes[0].cache.ttl_s", "value": 60}])
        assert "ttl_s: 60" in good["document"]
        assert (await edited(stack, "a: [", remove=["a"]))["code"] == "invalid_policy"
        assert (await edited(stack, seed))["param"] == "set"
        assert (await edited(stack, seed, remove=["routes["]))["param"] == "set"


def tape(folder: Path, now: list[float], **rules: Any) -> Tape:
    given = {"max_bytes": 8_000, "retention_s": 1e9, "keeps_text": False, **rules}
    made = Tape(folder, holder="h", wall=lambda: now[0], **given)
    made.open()
    return made


def test_a_recording_holds_no_secret(tmp_path: Path) -> None:
    made = tape(tmp_path, [1e9], keeps_text=True)
    secret = "sk-Zq9Zr2LmX7vTb4KwY"
    headers = {"x-api-key": "wordlike", "x-team": "blue", "x-note": f"with {secret}"}
    text = f"why is {secret} refused?"
    request = RecordedRequest(at=1.0, tenant="t", model="m", question="0" * 32, text=text, headers=headers)
    made._waiting.append(request)
    made.flush()
    (found,) = read_tape(tmp_path, 10).requests
    assert found.text == "why is [redacted] refused?"
    assert found.headers == {"x-api-key": "[redacted]", "x-team": "blue", "x-note": "with [redacted]"}


BY_QUALITY = (
    PRICED_PAIR
    + """\
routes:
  - id: main
    match: {{models: [auto]}}
    select: {select}
"""
)
WAYS = (
    "{policy: first_available, candidates: [small, large]}",
    "{policy: quality_then_latency, min_quality: 0.02, candidates: [small, large]}",
    "{policy: quality_then_latency, min_quality: 0.97, candidates: [small, large]}",
)


def prompts() -> list[str]:
    rng = random.Random(8)
    goods, places = ("lamps", "books", "pens", "coats"), ("Croatia", "Hungary", "Malta", "Norway", "Ireland")
    requested = []
    for _ in range(NUM):
        first, second = rng.sample(places, 2)
        requested += [
            rng.choice(
                (
                    f"What is {rng.randrange(90)} plus {rng.randrange(9)}?",
                    f"Which of {first} or {second} has the lowest shipping price?",
                    f"How much do {rng.randrange(2, 9)} {rng.choice(goods)} cost?",
                    f"Prove that {rng.choice(goods)} are countable.",
                )
            )
        ]
    return requested


async def shares(stack: Stack) -> Counter[str]:
    """Who answers the prompts."""
    notified: Counter[str] = Counter()
    for text in prompts():
        reply = await stack.call({**chat(), "messages": [{"role": "user", "content": text}]})
        notified[reply.headers["x-penstock-deployment"]] += 1
    return notified


async def test_a_plan_reports_how_many_prompts_another_bound_of_quality_sends_where(tmp_path: Path) -> None:
    documents = [BY_QUALITY.format(folder=tmp_path, select=way) for way in WAYS]
    settings = {"policy.source": "store", "telemetry.recorder.mode": "features"}
    async with running(tmp_path, policy=documents[0], settings=settings) as stack:
        await shares(stack)
        found = []
        for document in documents[1:]:
            await asyncio.to_thread(stack.gateway.control.tape.flush)  # type: ignore[union-attr]
            plan = (await stack.call({"document": document}, admin=True, path=f"{POLICY}/plan")).json["replay"]
            now = await in_force(stack)
            assert (await apply(stack, document, etag=now["etag"])).status == 200
            happened = await shares(stack)
            for deployment in ("small", "large"):
                foretold = plan["new"]["deployments"].get(deployment, 0.0)
                assert abs(foretold - happened[deployment] / NUM) <= 0.02, (deployment, plan["new"]["deployments"])
            assert plan["notes"] == []
            found.append(happened["small"] / NUM)
        assert found[0] > found[1] + 0.1, "the bounds make a difference"


EXPLORING = "select: {policy: first_available, candidates: [large, small], explore: {ratio: 0.5}}"
WRONG = "wrong"


def exploring(folder: Path) -> str:
    """The priced pair, where the large model is preferred and half of the requests are drawn."""
    return PRICED_PAIR.format(folder=folder) + f"routes:\n  - {{id: main, match: {{models: [auto]}}, {EXPLORING}}}\n"


async def test_an_untried_policy_is_evaluated_by_what_exploration_recorded(tmp_path: Path) -> None:
    """Every answer of the small model is reported as wrong, and a plan says so of a policy that would prefer it."""
    settings = {"telemetry.recorder.mode": "features"}
    async with running(tmp_path, policy=exploring(tmp_path), settings=settings) as stack:
        counts: Counter[str] = Counter()
        for _ in range(600):
            reply = await stack.call(chat(stream=True))
            chosen = reply.headers["x-penstock-deployment"]
            counts[chosen] += 1
            if chosen == "small":
                body = {"request_id": reply.headers["x-request-id"], "verdict": WRONG}
                assert (await stack.call(body, path="/v1/feedback")).status == 200
        assert 100 < counts["small"] < 200
        text = (await stack.get("/metrics", admin=True)).body.decode()
        explored = re.search(r'penstock_routing_explorations_total{result="explored",route="main"} (\d+)', text)
        assert explored is not None
        assert 240 < int(explored[1]) < 360
        new = exploring(tmp_path).replace(EXPLORING, "select: {candidates: [small, large]}")
        plan = await stack.call({"document": new}, admin=True, path=f"{POLICY}/plan")
        estimates = plan.json["replay"]["estimates"]
        shown = {item["name"]: item for item in estimates["new"]["measures"]}
        before = {item["name"]: item for item in estimates["recorded"]["measures"]}
        assert shown["good_ratio"]["why_not"] is None
        assert shown["good_ratio"]["estimate"]["doubly_robust"]["high"] < 0.35
        assert before["good_ratio"]["estimate"]["doubly_robust"]["low"] > 0.55
        assert (
            shown["cost_per_1k"]["estimate"]["doubly_robust"]["value"]
            < 0.5 * (before["cost_per_1k"]["estimate"]["doubly_robust"]["value"])
        )
        recording = read_tape(tmp_path / "recorded", 1_000)
        assert sum(request.propensities == {"large": 0.75, "small": 0.25} for request in recording.requests) == 600
        assert len(recording.verdicts) == counts["small"]


async def test_a_recorded_draw_can_be_repeated_and_explained(tmp_path: Path) -> None:
    async with running(tmp_path, policy=exploring(tmp_path)) as stack:
        reply = await stack.call(chat())
        request_id = reply.headers["x-request-id"]
        await stack.until_idle()
        found = (await stack.get(f"/admin/api/requests/{request_id}", admin=True)).json["request"]
        (decision,) = found["decisions"]
        made = decision["exploration"]
        is_drawn = share_of(stable_key(request_id), "explore") < 0.5
        assert made["result"] == ("explored" if is_drawn else "preferred")
        assert made["preferred"] == "large"
        assert made["propensities"] == {"large": 0.75, "small": 0.25}
        assert made["chosen"] == reply.headers["x-penstock-deployment"]
        assert made["probability"] == made["propensities"][made["chosen"]]
        assert "exploration: " in render_request(found)
        preview = await stack.call({"request": chat()}, admin=True, path="/admin/api/explain")
        assert "50.0% of the requests go to a random admissible candidate" in render_preview(preview.json)


async def test_feedback_needs_the_tenant_of_a_recorded_request(tmp_path: Path) -> None:
    settings = {"telemetry.recorder.mode": "features"}
    async with running(tmp_path, policy=exploring(tmp_path), settings=settings) as stack:
        unknown = await stack.call({"request_id": "req_0", "verdict": WRONG}, path="/v1/feedback")
        assert unknown.status == 404
        reply = await stack.call(chat())
        tape_of_it = stack.gateway.control.tape
        assert tape_of_it is not None
        assert not tape_of_it.note_wrong(reply.headers["x-request-id"], "another")
        for _ in range(2):
            body = {"request_id": reply.headers["x-request-id"], "verdict": WRONG}
            assert (await stack.call(body, path="/v1/feedback")).status == 200
        await asyncio.to_thread(tape_of_it.flush)
        assert len(read_tape(tmp_path / "recorded", 10).verdicts) == 1

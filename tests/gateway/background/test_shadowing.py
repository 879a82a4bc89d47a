"""Answers held against another deployment's, and what is learned from that and from feedback."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.scripted import Wire, hang
from tests.gateway.stack import PRICED_PAIR, Stack, chat, running

POLICY = (
    PRICED_PAIR
    + """\
routes:
  - id: main
    match: {{models: [auto]}}
    select:
      policy: quality_then_latency
      min_quality: 0.8
      candidates: [small, large]
      shadow: {{id: large, ratio: {ratio}, max_in_flight: 1}}
"""
)
EASY = {"model": "auto", "messages": [{"role": "user", "content": "What is 7 plus 5?"}]}


def answering(text: str, reason: str = "stop") -> Any:
    async def answer(wire: Wire) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        usage = {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
        await wire.answer(json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode())

    return answer


async def counted(stack: Stack, name: str, num: int = 1) -> list[str]:
    """Samples of one counter, once their sum is `num`."""
    for _ in range(6000):
        text = (await stack.get("/metrics", admin=True)).body.decode()
        found = [line for line in text.splitlines() if line.startswith(f"penstock_{name}{{")]
        if sum(float(line.rpartition(" ")[2]) for line in found) >= num:
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(f"{name} did not reach {num}: {found}")


@pytest.mark.parametrize(
    ("name", "theirs", "verdict", "label"),
    [
        ("neutral: the same words", "12.", "same", "good"),
        ("another number", "13", "different", "lost"),
    ],
)
async def test_a_shadow_is_compared_and_becomes_a_label(
    tmp_path: Path, name: str, theirs: str, verdict: str, label: str
) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        stack.small.otherwise, stack.large.otherwise = answering("12"), answering(theirs)
        reply = await stack.call(EASY)

        assert reply.headers["x-penstock-deployment"] == "small"
        assert "12" in reply.json["choices"][0]["message"]["content"]
        (shadows,) = await counted(stack, "shadows_total")
        assert f'verdict="{verdict}"' in shadows
        (labels,) = await counted(stack, "routing_labels_total")
        assert f'deployment="small",source="shadow",verdict="{label}"' in labels
        assert stack.large.received[0].json["messages"] == EASY["messages"]


async def test_a_shadow_that_fails_inside_its_answer_reports_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        stack.small.otherwise, stack.large.otherwise = answering("12"), answering("13", "error")
        await stack.call(EASY)
        (shadows,) = await counted(stack, "shadows_total")
        assert 'verdict="not_asked"' in shadows


async def test_shadows_are_bounded_and_end_with_the_gateway(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        stack.small.otherwise, stack.large.otherwise = answering("12"), hang
        for _ in range(3):
            await stack.call(EASY)
        await asyncio.wait_for(stack.large.got_request.wait(), 30)
        assert len(stack.large.received) == 1
        await stack.gateway._path.aclose()
        await asyncio.wait_for(stack.large.gone.wait(), 30)


async def test_feedback_on_a_predicted_answer_is_a_label_once(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=0.0)) as stack:
        reply = await stack.call(EASY)
        notified = {"request_id": reply.headers["x-request-id"], "verdict": "wrong"}
        assert (await stack.call(notified, path="/v1/feedback")).status == 200
        (labels,) = await counted(stack, "routing_labels_total")
        assert 'deployment="small",source="feedback",verdict="lost"} 1.0' in labels
        assert (await stack.call(notified, path="/v1/feedback")).status == 404
        assert (await stack.call(chat())).status == 200


async def test_what_the_shadow_has_answered_itself_is_called_of_the_smaller_model(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        stack.small.otherwise, stack.large.otherwise = answering("12"), answering("13")
        unknown = "Prove that every bounded entire function is constant."
        reply = await stack.call({**EASY, "messages": [{"role": "user", "content": unknown}]})

        assert reply.headers["x-penstock-deployment"] == "large"
        (shadows,) = await counted(stack, "shadows_total")
        assert 'deployment="small"' in shadows
        (labels,) = await counted(stack, "routing_labels_total")
        assert 'deployment="small",source="shadow",verdict="lost"' in labels


async def test_without_predictions_a_shadow_is_a_label_all_the_same(tmp_path: Path) -> None:
    policy = POLICY.format(folder=tmp_path, ratio=1.0).replace("penstock-", "my-")
    policy = policy.replace("policy: quality_then_latency", "policy: first_available").replace("min_quality: 0.8", "")
    async with running(tmp_path, policy=policy) as stack:
        stack.small.otherwise, stack.large.otherwise = answering("12"), answering("12")
        await stack.call(EASY)
        (labels,) = await counted(stack, "routing_labels_total")
        assert 'deployment="small",source="shadow",verdict="good"' in labels
        ((pair, ((_, label),)),) = stack.gateway._path.learner.labels().items()
        assert pair == ("my-small", "my-large")
        assert (label.source, label.lost) == ("shadow", 0.0)


async def test_a_text_completion_has_no_shadow(tmp_path: Path) -> None:
    async def completes(wire: Wire) -> None:
        await wire.answer(b'{"id":"c","choices":[{"index":0,"text":"12","finish_reason":"stop"}]}')

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        stack.small.otherwise = stack.large.otherwise = completes
        reply = await stack.call({"model": "auto", "prompt": "7 plus 5 is"}, path="/v1/completions")
        assert reply.status == 200
        stack.small.otherwise, stack.large.otherwise = answering("12"), answering("12")
        await stack.call(EASY)
        await counted(stack, "shadows_total")

        bodies = [one.body for one in (*stack.small.received, *stack.large.received)]
        assert [b'"prompt"' in body for body in bodies].count(True) == 1


async def test_a_shadow_gets_the_request_as_the_client_wrote_it(tmp_path: Path) -> None:
    body = (
        r'{"\u006dodel": "auto", "messages":[{"role":"user","content":"\u00e9\/"}],"stream":true,'
        r'"stream_options":{"include_usage":true}, "own":{"stream":true,"model":"auto"},"temperature":1E0,"seed":-0}'
    )
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        assert (await stack.call(body.encode())).status == 200
        await counted(stack, "shadows_total")

        received = [*stack.small.received, *stack.large.received]
        requested, shadow = sorted(
            (one.body.decode() for one in received), key=lambda text: "stream_options" not in text
        )
        assert requested == body.replace(' "auto",', f' "{json.loads(requested)["model"]}",', 1)
        own = {name: value for name, value in json.loads(body).items() if not name.startswith("stream")}
        assert {**json.loads(shadow), "model": "auto"} == own
        for stored in (
            r'"content":"\u00e9\/"',
            '"own":{"stream":true,"model":"auto"}',
            '"temperature":1E0',
            '"seed":-0',
        ):
            assert stored in shadow

"""Answers held against another deployment's, and what is learned from that and from feedback."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from gateway.routing.quality_files import bundled_models
from routing_policies.quality.learning import MIN_LABELS, LabelBook, fit_labels
from routing_policies.quality.predictor import Predictor
from routing_policies.quality.training import Outcome
from tests.gateway.scripted import Wire, complete, hang
from tests.gateway.stack import Stack, chat, running
from tests.routing_policies.quality.prompts import outcomes, prompt

POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: penstock-small, cost_per_mtok: {{prompt: 1, completion: 1}}}}
  - {{id: large, url: "unix:{folder}/large.sock", model: penstock-large, cost_per_mtok: {{prompt: 9, completion: 9}}}}
routes:
  - id: main
    match: {{models: [auto]}}
    select:
      policy: quality_then_latency
      min_quality: 0.8
      candidates: [small, large]
      shadow: {{id: large, ratio: {ratio}, max_in_flight: 1}}
"""
EASY = {"model": "auto", "messages": [{"role": "user", "content": "What is 7 plus 5?"}]}


def saying(text: str) -> Any:
    async def answer(wire: Wire) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
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
        stack.small.otherwise, stack.large.otherwise = saying("12"), saying(theirs)
        reply = await stack.ask(EASY)

        assert reply.headers["x-penstock-deployment"] == "small"
        assert "12" in reply.json["choices"][0]["message"]["content"]
        (shadows,) = await counted(stack, "shadows_total")
        assert f'verdict="{verdict}"' in shadows
        (labels,) = await counted(stack, "routing_labels_total")
        assert f'deployment="small",source="shadow",verdict="{label}"' in labels
        assert stack.large.received[0].json["messages"] == EASY["messages"]


async def test_a_stream_has_its_shadow_too(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        stack.large.otherwise = complete
        await stack.ask({**EASY, "stream": True})
        (shadows,) = await counted(stack, "shadows_total")
        assert 'verdict="same"' in shadows
        assert "stream" not in stack.large.received[0].json


async def test_without_a_share_nothing_is_asked_twice(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=0.0)) as stack:
        await stack.ask(EASY)
        await stack.until_idle()
        assert stack.large.received == []


async def test_shadows_are_bounded_and_end_with_the_gateway(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=1.0)) as stack:
        stack.small.otherwise, stack.large.otherwise = saying("12"), hang
        for _ in range(3):
            await stack.ask(EASY)
        await asyncio.wait_for(stack.large.got_request.wait(), 30)
        assert len(stack.large.received) == 1
        await stack.gateway._path.aclose()
        await asyncio.wait_for(stack.large.gone.wait(), 30)


async def test_feedback_on_a_predicted_answer_is_a_label_once(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=0.0)) as stack:
        reply = await stack.ask(EASY)
        told = {"request_id": reply.headers["x-request-id"], "verdict": "wrong"}
        assert (await stack.ask(told, path="/v1/feedback")).status == 200
        (labels,) = await counted(stack, "routing_labels_total")
        assert 'deployment="small",source="feedback",verdict="lost"} 1.0' in labels
        assert (await stack.ask(told, path="/v1/feedback")).status == 404
        assert (await stack.ask(chat())).status == 200


async def test_enough_labels_change_what_is_predicted(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path, ratio=0.0)) as stack:
        judge = stack.gateway._current().router.match("auto", None, {}).judges[0]
        sample = outcomes(5, 260)
        before = judge.predictor.model
        for asked, outcome in sample:
            stack.gateway._path.learner._add(judge, judge.predictor.judge(asked), lost=outcome.lost, source="shadow")
        for _ in range(6000):
            if judge.predictor.model is not before:
                break
            await asyncio.sleep(0.01)
        rng = random.Random(9)
        hard, easy = (judge.predictor.judge(prompt(rng, is_hard=is_hard)).prediction for is_hard in (True, False))
        assert (hard.is_known, easy.is_known) == (True, True)
        assert hard.chance < 0.4 < 0.7 < easy.chance


def test_a_book_forgets_the_oldest_and_waits_for_enough_of_both_kinds() -> None:
    book = LabelBook(max_labels=MIN_LABELS)
    good = [outcome for _, outcome in outcomes(1, 400) if outcome.good == 1.0][:MIN_LABELS]
    for outcome in good:
        book.add(outcome)
    assert not book.is_worth_learning  # there is nothing to tell apart
    book.add(Outcome(features=good[0].features, lost=1.0))
    assert book.is_worth_learning
    labels, vectors = book.take()
    assert len(labels) == MIN_LABELS == len(vectors)
    assert not book.is_worth_learning  # nothing has come since


def test_what_is_learned_keeps_what_labels_say_nothing_of() -> None:
    (base,) = bundled_models()
    labels = tuple(outcome for _, outcome in outcomes(3, 300))
    learned = fit_labels(labels, [None] * 300, base)
    assert learned.checkpoints == base.checkpoints
    assert set(base.openings) <= set(learned.openings)
    assert Predictor(learned).pair == Predictor(base).pair

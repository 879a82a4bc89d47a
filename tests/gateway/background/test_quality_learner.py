"""What a running gateway learns from: audits of cached responses, and what an earlier process was given."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from tests.gateway.background.test_cache_auditor import Deployment
from tests.gateway.background.test_shadowing import EASY, POLICY, answering, counted
from tests.gateway.cache.similar_stack import cache_of, call, keep, similar
from tests.gateway.stack import PRICED_PAIR, Stack, running
from tests.routing_policies.quality.labels import labels
from tests.routing_policies.quality.prompts import prompt

CACHED = (
    PRICED_PAIR
    + """\
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: quality_then_latency, min_quality: 0.8, kind: mailboxes, candidates: [small, large]}}
    cache: {{mode: exact_then_semantic, ttl_s: 60, audit_ratio: 1.0}}
"""
)
REQUESTED = "How do I reset the password of a mailbox?"


async def learned(stack: Stack) -> None:
    """Wait until labels have changed what is predicted, and check it."""
    (pair_predictor,) = stack.gateway._current().router.match("auto", None, {}).pair_predictors
    predictor = pair_predictor.predictor
    for _ in range(6000):
        if predictor.model is not predictor.base:
            break
        await asyncio.sleep(0.01)
    rng = random.Random(9)
    hard, easy = (predictor.assess(prompt(rng, is_hard=is_hard)).prediction for is_hard in (True, False))
    assert (hard.is_known, easy.is_known) == (True, True)
    assert hard.probability < 0.4 < 0.7 < easy.probability


async def test_enough_labels_change_what_is_predicted_also_after_a_restart(tmp_path: Path) -> None:
    policy = POLICY.format(folder=tmp_path, ratio=0.0)
    async with running(tmp_path, policy=policy) as stack:
        for label in labels(5, 320, at=time.time() - 1000):
            stack.gateway._path.labels.record(label)
        await learned(stack)
    async with running(tmp_path, policy=policy) as stack:
        await learned(stack)


async def test_an_audit_calls_both_models_of_a_pair_and_labels_the_smaller_one(tmp_path: Path) -> None:
    for folder, theirs, verdict in ((tmp_path / "a", "13 days", "lost"), (tmp_path / "b", "12 days", "good")):
        folder.mkdir()
        async with similar(folder, policy=CACHED.format(folder=folder)) as (stack, _):
            stack.small.otherwise, stack.large.otherwise = answering(theirs), answering("12 days")
            await keep(stack, REQUESTED)
            stack.small.otherwise, stack.large.otherwise = Deployment(theirs), Deployment("12 days")
            assert cache_of(await call(stack, f"{REQUESTED} please")) == "hit-semantic"

            (found,) = await counted(stack, "routing_labels_total")
            assert f'deployment="small",source="audit",verdict="{verdict}"' in found
            ((pair, ((_, label),)),) = stack.gateway._path.learner.labels().items()
            assert pair == ("penstock-small", "penstock-large")
            assert (label.source, label.encoder, len(label.vector)) == ("audit", "words", 384)
            assert label.kind == "mailboxes"


async def test_feedback_at_one_replica_labels_what_another_one_answered(tmp_path: Path) -> None:
    settings = {
        "store.address": f"embedded:{tmp_path / 'shared.sqlite3'}",
        "cache.shared": True,
        "store.timeout_s": 0.5,
    }
    policy = POLICY.replace("min_quality: 0.8", "min_quality: 0.8\n      kind: sums")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with (
        running(tmp_path / "one", policy=policy.format(folder=tmp_path / "one", ratio=0.0), settings=settings) as one,
        running(
            tmp_path / "other", policy=policy.format(folder=tmp_path / "other", ratio=0.0), settings=settings
        ) as other,
    ):
        reply = await one.call(EASY)
        assert reply.headers["x-penstock-deployment"] == "small"
        notified = {"request_id": reply.headers["x-request-id"], "verdict": "wrong"}
        assert (await other.call(notified, path="/v1/feedback")).status == 200
        (found,) = await counted(one, "routing_labels_total")
        assert 'deployment="small",source="feedback",verdict="lost"} 1.0' in found
        ((_, ((_, label),)),) = one.gateway._path.learner.labels().items()
        assert label.kind == "sums"

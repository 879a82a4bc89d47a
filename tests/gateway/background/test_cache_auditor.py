"""Audits of similar answers: what they find keeps the guarantee, closes the tier, and opens it again."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.admission.guard import Strain
from gateway.cache.audit.audit_choice import MAX_EXPOSURES
from gateway.cache.audit.error_budget import CLOSED
from gateway.telemetry.records.tape import read_tape
from tests.gateway.cache.similar_stack import cache_of, call, completion, keep, similar, stats_of, until
from tests.gateway.scripted import Script, Wire
from tests.gateway.stack import Stack

STORED = "How do I reset the password of a mailbox?"
AUDITED = "ttl_s: 60, audit_ratio: 1.0"
LEFT_OUT = "Open the first page of it and press reset on the left."


def replies(text: str) -> Script:
    """An upstream that always is equal, at once."""

    async def script(wire: Wire) -> None:
        await wire.answer(completion(text))

    return script


class Deployment:
    """Answers `text`; holds back whoever is not an audit, which carries no trace of a client."""

    def __init__(self, text: str, *, patience_s: float = 60.0) -> None:
        self.text = text
        self.patience_s = patience_s
        self.num_audits = 0
        self.num_audited = 0
        self.judgement = "yes"

    async def __call__(self, wire: Wire) -> None:
        document = wire.request.json
        if document["messages"][0]["role"] == "system":
            self.num_audited += 1
            await wire.answer(completion(self.judgement))
        elif wire.request.headers["x-penstock-priority"] == "batch":
            self.num_audits += 1
            await wire.answer(completion(self.text))
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(wire.is_gone.wait(), self.patience_s)
            await wire.answer(completion(self.text))


async def serve_one(stack: Stack, number: int) -> None:
    """Something similar to STORED that nobody called before is answered from the cache."""
    reply = await call(stack, f"How do I reset the password of a mailbox {'again ' * number}please?")
    assert cache_of(reply) == "hit-semantic", number


@pytest.mark.parametrize(
    ("stored", "fresh", "verdict", "by"),
    [
        ("It is done in the settings.", "it is done,  in the SETTINGS", "right", "words"),
        ("Wait 10 minutes for it.", "Wait 100 minutes for it.", "wrong", "numbers"),
        ("1. Open the settings.\n2. Wait ten seconds.", "Open the settings, then wait 10 seconds.", "right", "words"),
        ("Open the first page of it and choose reset on the left.", LEFT_OUT, "right", "encoder"),
        (
            "Open all of its settings and press reset there.",
            "Choose reset among all of its preferences.",
            "unknown",
            "encoder",
        ),
        ("Open the settings of it and press reset.", "That is impossible, sorry about that.", "wrong", "encoder"),
    ],
)
async def test_a_served_answer_is_called_again_and_compared(
    tmp_path: Path, stored: str, fresh: str, verdict: str, by: str
) -> None:
    async with similar(tmp_path, AUDITED) as (stack, _):
        stack.small.otherwise = replies(stored)
        await keep(stack, STORED)
        deployment = stack.small.otherwise = Deployment(fresh)
        await serve_one(stack, 1)
        await until(lambda: len(stack.gateway._cache.audits))

        (record,) = stack.gateway._cache.audits
        assert (record.verdict, record.by, record.was_served, record.weight) == (verdict, by, True, 1.0)
        assert record.texts is None
        assert deployment.num_audits == 1
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert f'penstock_cache_audits_total{{verdict="{verdict}"}} 1.0' in metrics
        if verdict == "unknown":
            assert "penstock_cache_error_ratio{" not in metrics, "nothing was found out"
            return
        ratio = 0.5 if verdict == "wrong" else 0.0
        assert f'penstock_cache_error_ratio{{route="main",tenant="dev"}} {ratio}' in metrics, "of two requests"


async def test_a_wrong_answer_is_not_given_to_similar_questions_again(tmp_path: Path) -> None:
    async with similar(tmp_path, AUDITED) as (stack, _):
        stack.small.otherwise = replies("Press 1.")
        await keep(stack, STORED)
        stack.small.otherwise = Deployment("Press 2.")
        await serve_one(stack, 1)
        await until(lambda: len(stack.gateway._cache.audits))
        stack.small.otherwise = replies("Press 2.")

        assert cache_of(await call(stack, STORED)) == "hit-exact", "of its own question nobody said anything"
        assert cache_of(await call(stack, "How do I reset the password of a mailbox now and then or so?")) == "miss"
        assert cache_of(await call(stack, STORED + " Please?")) == "miss"


@pytest.mark.parametrize("fresh", ["You will find that in its preferences.", "In 7 steps, all in the preferences."])
async def test_an_auditor_decides_where_the_policy_names_one(tmp_path: Path, fresh: str) -> None:
    async with similar(tmp_path, AUDITED + ", auditor: large, review_texts: true") as (stack, _):
        stack.small.otherwise = replies("Open the settings of it.")
        await keep(stack, STORED)
        stack.small.otherwise = Deployment(fresh)
        auditor = stack.large.otherwise = Deployment("")
        await serve_one(stack, 1)
        await until(lambda: len(stack.gateway._cache.audits))

        (record,) = stack.gateway._cache.audits
        assert (record.verdict, record.by, auditor.num_audited) == ("right", "judge", 1)
        assert record.texts is not None
        assert record.texts.cached_prompt == STORED
        (prompt,) = stack.large.received
        assert json.loads(prompt.json["messages"][1]["content"])["first_answer"] == "Open the settings of it."


async def test_nothing_is_sent_in_the_background_under_load(tmp_path: Path) -> None:
    async with similar(tmp_path, AUDITED) as (stack, _):
        await keep(stack, STORED)
        deployment = stack.small.otherwise = Deployment("")
        stack.gateway._cache.auditor._guard.strain = Strain.STRAINED
        await serve_one(stack, 1)
        stack.gateway._cache.auditor._guard.strain = Strain.NONE
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert 'penstock_cache_audits_total{verdict="skipped"} 1.0' in metrics
        assert deployment.num_audits == 0


async def test_a_stream_of_wrong_answers_tightens_the_tier_and_closes_it(tmp_path: Path) -> None:
    async with similar(tmp_path, AUDITED) as (stack, _):
        names = ["anna", "bert", "carl", "dora", "emil", "fritz", "gina", "hugo", "ida", "jan", "karl", "lena"]
        seen = []
        for number, name in enumerate(names):
            stack.small.otherwise = replies(f"Answer {number}.")
            await keep(stack, f"Where can one find out when {name} was born and where and why?")
            stack.small.otherwise = Deployment("Something else, in 1999.", patience_s=0.2)
            known = len(stack.gateway._cache.audits)
            reply = await call(stack, f"Where can one find out when {name} was born and where and why and how?")
            if cache_of(reply) == "hit-semantic":
                await until(lambda known=known: len(stack.gateway._cache.audits) > known)
            seen.append(stats_of(stack).level)
            if seen[-1] == CLOSED:
                break
        assert seen[-1] == CLOSED, seen
        assert sorted(set(seen)) == list(range(CLOSED + 1)), "step by step"
        assert stack.lines("cache_promise")[-1]["state"] == "closed"

        stack.small.otherwise = replies("Both in the usual place.")
        await keep(stack, "Which of these two is the one that grows in a garden by the sea?")
        known = len(stack.gateway._cache.audits)
        reply = await call(stack, "Which of these two is the one that grows in a large garden by the sea?")
        assert cache_of(reply) == "miss"
        await until(lambda: len(stack.gateway._cache.audits) > known)
        record = next(iter(stack.gateway._cache.audits))
        assert (record.verdict, record.was_served) == ("right", False), "closed, it learns from what is said anyway"


async def test_what_is_requested_often_is_audited_however_small_the_share(tmp_path: Path) -> None:
    async with similar(tmp_path, "ttl_s: 60, audit_ratio: 0.000001") as (stack, _):
        stack.small.otherwise = replies("Press 1.")
        await keep(stack, STORED)
        deployment = stack.small.otherwise = Deployment("Press 2.")
        for _ in range(MAX_EXPOSURES):
            assert cache_of(await call(stack, "How do I reset the password of a Danish mailbox?")) == "hit-semantic"
        await until(lambda: len(stack.gateway._cache.audits))
        (record,) = stack.gateway._cache.audits
        assert (record.verdict, record.weight, deployment.num_audits) == ("wrong", 1.0, 1)
        assert record.differences != ()


async def test_a_purge_takes_the_texts_for_review_with_it(tmp_path: Path) -> None:
    async with similar(tmp_path, AUDITED + ", review_texts: true") as (stack, _):
        stack.small.otherwise = replies("Press 1.")
        await keep(stack, STORED)
        stack.small.otherwise = Deployment("Press 1.")
        await serve_one(stack, 1)
        await until(lambda: len(stack.gateway._cache.audits))
        purge = {"text": "PASSWORD", "dry_run": False}
        assert (await stack.call(purge, path="/admin/api/cache/purge", admin=True)).status == 200
        assert [record.texts for record in stack.gateway._cache.audits] == [None]


async def test_the_request_reports_of_its_neighbour(tmp_path: Path) -> None:
    async with similar(tmp_path) as (stack, _):
        stack.small.otherwise = replies("Press 1.")
        first = await keep(stack, STORED)
        stack.small.otherwise = Deployment("Press 1.")
        served = await call(stack, STORED + " Please?")
        path = f"/admin/api/requests/{served.headers['x-request-id']}"
        notified = (await stack.get(path, admin=True)).json["request"]
        assert notified["cache_entry"] == notified["neighbour"]["entry_id"] == first.headers["x-request-id"]
        assert notified["neighbour"]["served"] is True
        assert notified["neighbour"]["match_probability"] >= notified["neighbour"]["threshold"]


@pytest.mark.parametrize(("fresh", "is_wrong"), [("Wait 100 minutes for it.", True), ("wait 10 MINUTES for it", False)])
async def test_a_recorded_hit_has_its_audit_and_the_probability_of_it(
    tmp_path: Path, fresh: str, is_wrong: bool
) -> None:
    async with similar(tmp_path, AUDITED, settings={"telemetry.recorder.mode": "features"}) as (stack, _):
        stack.small.otherwise = replies("Wait 10 minutes for it.")
        await keep(stack, STORED)
        stack.small.otherwise = Deployment(fresh)
        await serve_one(stack, 1)
        await until(lambda: len(stack.gateway._cache.audits))
        await stack.until_idle()
        tape = stack.gateway.control.tape
        assert tape is not None
        await asyncio.to_thread(tape.flush)
        requests, (verdict,) = read_tape(tmp_path / "recorded", 10)
        (hit,) = (request for request in requests if request.cache == "hit_semantic")
        assert (hit.audit_probability, hit.is_audited) == (1.0, True)
        assert (verdict.verdict_of, verdict.by, verdict.is_wrong) == (hit.id, "audit", is_wrong)

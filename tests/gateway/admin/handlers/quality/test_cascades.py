"""Thresholds of cascades at the admin API: shown to viewers, taken back by editors, also at other replicas."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from gateway.admin.handlers.quality.cascades import CASCADES_PATH
from tests.gateway.background.test_cascade_calibrator import confident
from tests.gateway.background.test_shadowing import answering, counted
from tests.gateway.cache.similar_stack import until
from tests.gateway.forwarding.test_cascade import POLICY, SURE, UNSURE, call, engine
from tests.gateway.stack import Stack, chat, running

_LAST = "candidates: [small, large]"
SHADOWED = POLICY.replace(_LAST, f"{_LAST}, shadow: {{{{id: large, ratio: 1.0}}}}")
PAIR = ("tiny", "big")


async def shown(stack: Stack) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {stack.admin_token}"}
    found: Any = (await stack.get(CASCADES_PATH, admin=True, headers=headers)).json
    (cascade,) = found["cascades"]
    return dict(cascade)


def learn(stack: Stack) -> None:
    for label in confident(1, 400, at=time.time() - 1000):
        stack.gateway._path.labels.record(msgspec.structs.replace(label, weak=PAIR[0], strong=PAIR[1]))


async def test_labels_change_who_answers_until_an_admin_takes_that_back(tmp_path: Path) -> None:
    async with running(tmp_path, policy=SHADOWED.format(folder=tmp_path)) as stack:
        before = await shown(stack)
        assert (before["weak"], before["strong"]) == PAIR
        assert (before["state"], before["confidence"]) == ("default", 0.8)
        assert (before["since"], before["num_labels"]) == (None, 0)
        assert (await call(stack, UNSURE))[0] == "large"

        learn(stack)
        await until(lambda: stack.gateway._path.learner.calibrator.in_force()[0][2].state == "proven")
        found = await shown(stack)
        assert 0.2 < found["confidence"] < 0.5
        assert found["num_labels"] >= 390
        assert found["good_ratio"] > found["good_ratio_low"] >= 0.8
        assert time.time() - 60 < found["since"] <= time.time()
        assert (await call(stack, UNSURE))[0] == "small", "that sure is sure enough, labels have shown"

        reply = await stack.call({"weak": PAIR[0], "strong": PAIR[1]}, path=f"{CASCADES_PATH}/take-back", admin=True)
        assert reply.status == 200
        after = await shown(stack)
        assert (after["state"], after["confidence"], after["num_labels"]) == ("default", 0.8, 0)
        assert after["taken_back_at"] is not None
        assert (await call(stack, UNSURE))[0] == "large"
        logged = await stack.gateway.control.audit.entries()
        assert ("cascade.take_back", "tiny/big") in [(entry["action"], entry["target"]) for entry in logged]

        unknown = await stack.call({"weak": "x", "strong": "y"}, path=f"{CASCADES_PATH}/take-back", admin=True)
        assert unknown.status == 404


async def test_a_take_back_is_dated_by_the_clock_of_the_store(tmp_path: Path) -> None:
    async with running(tmp_path, policy=SHADOWED.format(folder=tmp_path)) as stack:
        stack.gateway._runtime.wall.note(time.time() + 3600)
        reply = await stack.call({"weak": PAIR[0], "strong": PAIR[1]}, path=f"{CASCADES_PATH}/take-back", admin=True)
        assert reply.json["cascades"][0]["taken_back_at"] > time.time() + 3000


async def test_answers_that_went_on_and_those_handed_over_become_labels_with_their_confidence(tmp_path: Path) -> None:
    async with running(tmp_path, policy=SHADOWED.format(folder=tmp_path)) as stack:
        cases = ((SURE, "thesumis12"), (UNSURE, "the sum is 12"))  # a stream has these tokens without spaces
        for number, (sureness, text) in enumerate(cases, start=1):
            stack.small.otherwise, stack.large.otherwise = engine("the sum is 12", sureness), answering(text)
            await stack.call(chat())
            await counted(stack, "routing_labels_total", number)
        ((pair, found),) = stack.gateway._path.learner.labels().items()
        assert pair == PAIR
        high, low = (label.confidence for _, label in found)
        assert high is not None
        assert low is not None
        assert low < 0.8 < high


async def test_a_route_may_keep_its_default(tmp_path: Path) -> None:
    policy = SHADOWED.replace("first_tokens: 3", "first_tokens: 3, calibrate: false")
    async with running(tmp_path, policy=policy.format(folder=tmp_path)) as stack:
        learn(stack)
        headers = {"authorization": f"Bearer {stack.admin_token}"}
        found: Any = (await stack.get(CASCADES_PATH, admin=True, headers=headers)).json
        assert found["cascades"] == []
        assert (await call(stack, UNSURE))[0] == "large"

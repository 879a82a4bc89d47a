"""Faults of a whole deployment: taken out, tried again, brought back; retries and hedges inside their budgets."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.deployments.health.ejection import EjectionRules, StallRules
from gateway.deployments.health.second_attempts import MIN_SAMPLES
from gateway.upstreams.http1.request import ExchangeTimeouts
from tests.faults.stack import FaultStack, failing, faulty, frozen, streaming
from tests.gateway.scripted import Script, Wire, chunk, complete
from tests.gateway.stack import NO_EJECTION, chat

WARM_UP = MIN_SAMPLES + 5


async def until(condition: object, limit_s: float = 30.0) -> None:
    """Wait for a callable to become true."""
    assert callable(condition)
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.005)


async def warm(stack: FaultStack, num: int = WARM_UP) -> int:
    """So many good streams, so that it is known what is usual."""
    assert {reply.status for reply in await stack.storm(chat(stream=True), num)} == {200}
    await until(lambda: stack.live(0).first_bytes.late_s(time.monotonic()) is not None)
    return num


async def test_a_brown_out_is_not_a_death_and_holds_up_nobody_else(tmp_path: Path) -> None:
    """Fault row 22: a deployment ten times slower still answers, and is not ejected; others are as fast as before."""
    async with faulty(tmp_path, select="policy: least_in_flight", permits=4) as stack:
        num = await warm(stack, 60)
        stack.proxies[0].toxics.latency_s = 0.1
        slow = [asyncio.create_task(stack.call(chat(stream=True))) for _ in range(4)]
        replies = [await task for task in slow]

        assert {reply.status for reply in replies} == {200}
        assert stack.live(0).health.is_fit
        assert await stack.metric("penstock_ejections_total") == 0
        await stack.check_invariants(num + 4)


async def test_a_late_answer_to_a_probe_is_no_death_while_tokens_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 22: a busy deployment stays in use; one that is silent as well does not."""
    monkeypatch.setattr(
        "gateway.deployments.readiness.PROBE_TIMEOUTS", ExchangeTimeouts(connect_s=1.0, first_byte_s=0.01)
    )
    async with faulty(tmp_path, num=1) as stack:
        stack.live(0).is_ready = True
        stack.proxies[0].toxics.latency_s = 0.1
        assert (await stack.call(chat(stream=True))).status == 200
        await stack.gateway._prober.probe_all()
        assert stack.live(0).is_ready

        stack.live(0).health._last_progress_at -= 60.0
        await stack.gateway._prober.probe_all()
        assert not stack.live(0).is_ready
        await stack.check_invariants(1)


async def test_one_of_three_that_fails_is_ejected_tried_for_longer_and_longer_and_brought_back(tmp_path: Path) -> None:
    """Fault row 23: within three failures here; then one trial at each end of a growing back-off."""
    async with faulty(tmp_path, num=3, select="policy: weighted") as stack:
        stack.engines[0].otherwise = failing(500)
        replies = await stack.storm(chat(), 60, num_at_once=4)
        assert {reply.status for reply in replies} == {200}
        assert stack.live(0).health.num_under_way == 0

        num = 60
        while len(stack.lines("deployment_ejected")) < 3:
            assert (await stack.call(chat())).status == 200
            num += 1
        failed, num_in_flight, trials = 3, 3, 2  # in flight: those beside the one that was the last straw
        assert failed + trials <= len(stack.engines[0].received) <= failed + num_in_flight + trials
        backoffs = [round(line["backoff_s"], 3) for line in stack.lines("deployment_ejected")]
        assert backoffs == [0.2, 0.4, 0.8]

        stack.engines[0].otherwise = complete
        await until(lambda: stack.live(0).health.may_probe(time.monotonic()))
        while not stack.live(0).health.is_fit:
            assert (await stack.call(chat())).status == 200
            num += 1
        assert await stack.metric("penstock_ejections_total", deployment="e0", reason="status") == 3
        await stack.check_invariants(num)


async def test_when_all_are_ejected_all_are_used_and_it_is_counted(tmp_path: Path) -> None:
    """Fault row 24: fail open, as documented; the first good answer ends the ejection."""
    rules = EjectionRules(consecutive_failures=2, first_s=30.0)
    async with faulty(tmp_path, ejection=rules) as stack:
        for engine in stack.engines:
            engine.otherwise = failing(500)
        replies = [await stack.call(chat()) for _ in range(4)]
        assert {reply.status for reply in replies} == {502}
        assert not any(stack.live(number).health.is_fit for number in (0, 1))

        for engine in stack.engines:
            engine.otherwise = complete
        assert (await stack.call(chat())).status == 200
        assert await stack.metric("penstock_panics_total", route="main") >= 1
        assert any(stack.live(number).health.is_fit for number in (0, 1))
        await stack.check_invariants(5)


async def test_retries_stay_a_tenth_of_the_load_however_many_fail(tmp_path: Path) -> None:
    """Fault row 25: half of the answers are errors; attempts are counted at the upstreams."""
    async with faulty(tmp_path, num=3, select="policy: weighted", ejection=NO_EJECTION) as stack:
        for engine in stack.engines:
            engine.otherwise = _every_other_fails()
        await stack.storm(chat(), 200, num_at_once=8)

        attempts = sum(len(engine.received) for engine in stack.engines)
        assert 200 + 20 <= attempts <= 200 + 10 + 20  # the reserve, and a tenth
        await stack.check_invariants(200)


def _every_other_fails() -> Script:
    count = 0

    async def script(wire: Wire) -> None:
        nonlocal count
        count += 1
        await (failing(500) if count % 2 else complete)(wire)

    return script


async def test_one_deployment_gets_only_its_share_of_others_retries(tmp_path: Path) -> None:
    """Fault row 25: beside the global budget each upstream has its own, so that failover never floods it."""
    async with faulty(tmp_path, ejection=NO_EJECTION) as stack:
        stack.gateway.pipeline._forwarder._budget._purse = 1000.0
        stack.gateway.pipeline._forwarder._budget._reserve = 1000.0
        stack.engines[0].otherwise = failing(500)
        replies = [await stack.call(chat()) for _ in range(30)]

        assert len(stack.engines[1].received) == 10  # the reserve: nothing was sent to it first
        assert [reply.status for reply in replies] == [200] * 10 + [502] * 20


async def test_a_hung_engine_is_found_by_its_silence_and_its_requests_move_on(tmp_path: Path) -> None:
    """Fault row 37: it accepts, its probes are fine, and no token comes: ejected, and who waits for it is answered."""
    async with faulty(tmp_path, first_token_ms=15_000) as stack:
        num = await warm(stack)
        stack.engines[0].otherwise = frozen
        begun = time.monotonic()
        replies = await stack.storm(chat(stream=True), 5)

        assert {(reply.status, reply.headers["x-penstock-deployment"]) for reply in replies} == {(200, "e1")}
        assert time.monotonic() - begun < 5
        assert stack.live(0).is_ready
        assert await stack.metric("penstock_ejections_total", deployment="e0", reason="stalled") >= 1
        await stack.check_invariants(num + 5)


async def test_an_engine_that_hangs_in_the_middle_of_streams_gets_no_more_requests(tmp_path: Path) -> None:
    """Fault row 37: the streams end by the inter-token limit; the next request goes elsewhere long before that."""

    async def half(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        await wire.is_gone.wait()

    async with faulty(
        tmp_path, inter_token_ms=1500, ejection=EjectionRules(first_s=30.0, stall=StallRules(least_s=0.2))
    ) as stack:
        num = await warm(stack)
        stack.engines[0].otherwise = half
        streams = [asyncio.create_task(stack.call(chat(stream=True))) for _ in range(3)]
        await until(lambda: not stack.live(0).health.is_fit)

        assert (await stack.call(chat(stream=True))).headers["x-penstock-deployment"] == "e1"
        for stream in streams:
            assert b"upstream_timeout" in (await stream).body
        await stack.check_invariants(num + 4)


async def test_an_engine_that_was_killed_is_left_at_once_and_used_again_when_it_is_ready(tmp_path: Path) -> None:
    """Fault row 36: streams under way get an error event, new requests another deployment, a restart a clean record."""
    async with faulty(tmp_path, select="policy: first_available") as stack:
        stack.engines[0].scripts = [streaming("a", "b", "c", pause_s=0.2)] * 3
        streams = [asyncio.create_task(stack.call(chat(stream=True))) for _ in range(3)]
        await until(lambda: len(stack.engines[0].received) == 3)
        await asyncio.sleep(0.1)
        await stack.proxies[0].down()

        for stream in streams:
            body = (await stream).body
            assert b'"upstream_error"' in body
            assert b"[DONE]" not in body
        replies = await stack.storm(chat(stream=True), 20)
        assert {(reply.status, reply.headers["x-penstock-deployment"]) for reply in replies} == {(200, "e1")}
        await stack.gateway._prober.probe_all()
        assert not stack.live(0).is_ready

        stack.engines[0].is_ready = False  # it is back, and warming up
        await stack.proxies[0].up()
        await stack.gateway._prober.probe_all()
        assert (await stack.call(chat())).headers["x-penstock-deployment"] == "e1"
        stack.engines[0].is_ready = True
        await stack.gateway._prober.probe_all()
        assert stack.live(0).health.is_fit
        assert (await stack.call(chat())).headers["x-penstock-deployment"] == "e0"
        await stack.check_invariants(25)


async def test_a_fallback_chain_answers_when_no_candidate_can(tmp_path: Path) -> None:
    """Fault rows 11 and 24: the route's own candidates are gone, the next in the chain is called."""
    extra = "  - {id: spare, match: {models: [spare]}, select: {candidates: [e2]}}"
    async with faulty(tmp_path, num=3, select="fallback: [spare]", routes=extra) as stack:
        text = (tmp_path / "policy.yaml").read_text().replace("candidates: [e0, e1, e2]", "candidates: [e0, e1]")
        before = stack.gateway._current()
        (tmp_path / "policy.yaml").write_text(text)
        await until(lambda: stack.gateway._current() is not before)
        for number in (0, 1):
            await stack.proxies[number].down()
            stack.live(number).is_ready = False
        reply = await stack.call(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "e2")
        await stack.check_invariants(1)

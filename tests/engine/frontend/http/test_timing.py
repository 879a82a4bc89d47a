"""Durations of an answer's stages."""

from __future__ import annotations

import asyncio

from engine.frontend.http.timing import timing_report
from tests.engine.frontend.conftest import Running, chat
from tests.engine.frontend.http.test_completions import events
from tests.engine.frontend.http.test_tracing import STAGES, generation
from tests.engine.frontend.tiny_model import END


async def test_full_timing_comes_only_when_requested(running: Running) -> None:
    core = await running.core()
    for stream in (False, True):
        headers = {"x-penstock-timing": "full"}
        request = asyncio.create_task(
            running.client.post("/v1/chat/completions", json=chat(stream=stream), headers=headers)
        )
        add = await core.next_add()
        core.emit(add.seq_id, [*running.ids("hello"), END], "stop")
        response = await request
        last = events(response.text)[-1] if stream else response.json()
        timing = last["penstock"]["timing"]["engine"]
        assert timing["cached_tokens"] == 2
        assert timing["choices"][0]["prefill_ms"] == 2.0
        assert timing["ttft_ms"] <= timing["total_ms"]


def test_a_report_has_milliseconds_of_every_choice_and_nothing_for_stages_that_nobody_reported() -> None:
    finished = generation(STAGES, None)
    finished.first_token_at = 10.25
    report = timing_report(finished, now=11.0)["penstock"]["timing"]["engine"]
    assert (report["tokenize_ms"], report["ttft_ms"], report["total_ms"]) == (50.0, 250.0, 1000.0)
    first, second = report["choices"]
    assert (first["queue_ms"], first["decode_ms"], first["prefill_chunks"]) == (100.0, 400.0, 2)
    assert second == {"index": 1, "completion_tokens": 5}


def test_without_a_first_token_its_time_is_not_known() -> None:
    unanswered = generation(None)
    unanswered.first_token_at = None
    assert timing_report(unanswered, now=10.0)["penstock"]["timing"]["engine"]["ttft_ms"] is None

"""Recorded requests: bounded in size, without text unless configured, and readable after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.telemetry.records.tape import Tape, read_tape
from routing_policies.replay import RecordedRequest
from tests.gateway.admin.handlers.test_plan import tape
from tests.gateway.stack import chat, running


async def test_text_is_recorded_only_where_it_is_requested(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"telemetry.recorder.mode": "text"}) as stack:
        await stack.call({**chat(), "messages": [{"role": "user", "content": "remember me"}]})
    ((request,), _) = await asyncio.to_thread(read_tape, tmp_path / "recorded", 10)
    assert request.text == "remember me"


def fill(made: Tape, number: int) -> None:
    made._waiting.append(RecordedRequest(at=float(number), tenant="t", model="m", question=f"{number:032x}"))
    made.flush()


def test_a_recording_keeps_its_size_and_forgets_the_oldest(tmp_path: Path) -> None:
    now = [1e9]
    made = tape(tmp_path, now)
    for number in range(300):
        now[0] += 1
        fill(made, number)
    assert sum(path.stat().st_size for path in tmp_path.glob("*.jsonl")) <= 8_000
    saved = [request.at for request in read_tape(tmp_path, 1_000).requests]
    assert saved == sorted(saved)
    assert saved[-1] == 299
    assert len(read_tape(tmp_path, 5).requests) == 5


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    made = tape(tmp_path, [1e9])
    fill(made, 1)
    (path,) = tmp_path.glob("*.jsonl")
    with path.open("ab") as stream:
        stream.write(b'{"at": 2.0, "tena')
    assert [request.at for request in read_tape(tmp_path, 10).requests] == [1.0]


def test_equal_words_have_other_digests_on_another_machine(tmp_path: Path) -> None:
    one, two = tape(tmp_path / "one", [0.0]), tape(tmp_path / "two", [0.0])
    assert one.digest("anna") == one.digest("anna") != two.digest("anna")

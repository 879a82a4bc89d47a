"""The front's end of the connection to the core: what it sends, whom it delivers to, and what a loss ends."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from engine.frontend.core_client.link import CoreConnection, CoreLink
from engine.frontend.core_client.mailbox import Mailbox
from engine.frontend.core_client.queue_guard import QueueLimits
from engine.frontend.request.errors import ApiError
from engine.protocol import (
    Abort,
    AbortState,
    Add,
    Counters,
    Fatal,
    FrameSplitter,
    Phase,
    Ready,
    SamplingParams,
    SeqOutput,
    Shutdown,
    StepReport,
    ToCore,
    ToFront,
    decode_to_core,
    encode_frame,
)
from tests.engine.core.fakes import FakeClock
from tests.engine.frontend.fake_core import LOAD, STAGES

READY = Ready(
    max_model_len=64, block_size=16, num_blocks=9, vocab_size=400, device="cpu", dtype="float32", model_type="fake"
)


class Wire(asyncio.Transport):
    """A connection that keeps the messages written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[ToCore] = []
        self.is_closed = False
        self._splitter = FrameSplitter()

    def write(self, data: Any) -> None:
        self.sent += [decode_to_core(body) for body in self._splitter.feed(bytes(data))]

    def close(self) -> None:
        self.is_closed = True


class Observer:
    """Keeps the events of the core."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.aborts: list[tuple[AbortState, float]] = []
        self.lost: list[Counters] = []

    def phase_ended(self, phase: Phase) -> None:
        self.phases.append(phase)

    def stepped(self, report: StepReport) -> None:
        pass

    def aborted(self, state: AbortState, seconds: float) -> None:
        self.aborts.append((state, seconds))

    def core_lost(self, last: Counters) -> None:
        self.lost.append(last)


class Bench:
    """A link with a ready core behind it."""

    def __init__(self) -> None:
        self.clock, self.observer, self.wire = FakeClock(), Observer(), Wire()
        self.link = CoreLink(self.observer, self.clock, QueueLimits(max_waiting=4))
        self.link.attached(self.wire)
        self.link.received(READY)

    def add(self, box: Mailbox, num: int = 1) -> list[int]:
        params = [SamplingParams(max_tokens=5)] * num
        return self.link.add(box, [1, 2], params, lane="interactive", cache_salt=b"", deadline_s=None)

    def report(self, *outputs: SeqOutput, freed: list[tuple[int, AbortState, float]] | None = None) -> None:
        counters = Counters(steps=1)
        self.link.received(StepReport(outputs=list(outputs), load=LOAD, counters=counters, freed=freed or []))


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_each_choice_is_a_sequence_and_its_outputs_arrive_with_their_time(bench: Bench) -> None:
    box, other = Mailbox(), Mailbox()
    first, second = bench.add(box, 2)
    (third,) = bench.add(other)
    assert [add.seq_id for add in bench.wire.sent if isinstance(add, Add)] == [first, second, third]
    bench.clock.advance(3.0)
    bench.report(SeqOutput(seq_id=second, token_ids=[7]), SeqOutput(seq_id=third, token_ids=[8]))
    assert [(output.seq_id, at) for output, at in await box.take()] == [(second, bench.clock.now)]
    assert [output.token_ids for output, _ in await other.take()] == [[8]]


def test_without_a_ready_core_nothing_is_sent(bench: Bench) -> None:
    bench.link.core_starting()
    with pytest.raises(ApiError, match="not ready"):
        bench.add(Mailbox())
    assert bench.wire.sent == []


async def test_a_finished_sequence_is_aborted_in_the_core_and_its_last_output_still_arrives(bench: Bench) -> None:
    box = Mailbox()
    (seq_id,) = bench.add(box)
    bench.link.finish(seq_id)
    assert bench.wire.sent[-1] == Abort(seq_ids=[seq_id])
    bench.report(
        SeqOutput(seq_id=seq_id, token_ids=[], finish_reason="abort", stages=STAGES), freed=[(seq_id, "decode", 0.1)]
    )
    assert [output.stages for output, _ in await box.take()] == [STAGES]
    assert bench.observer.aborts == []
    assert bench.link.num_open == 0


def test_an_abort_names_only_sequences_that_run(bench: Bench) -> None:
    ended, running, finished = bench.add(Mailbox(), 3)
    bench.report(SeqOutput(seq_id=ended, token_ids=[1], finish_reason="stop"))
    bench.link.finish(finished)
    bench.link.abort([ended, running, finished, 99])
    assert bench.wire.sent[-1] == Abort(seq_ids=[running])
    bench.link.abort([ended, running, finished])
    assert bench.wire.sent[-1] == Abort(seq_ids=[running])
    bench.report(freed=[(running, "prefill", 0.25)])
    assert bench.observer.aborts == [("prefill", 0.25)]


async def test_a_lost_core_fails_every_request_once_and_the_outage_is_a_phase_of_the_next(bench: Bench) -> None:
    box = Mailbox()
    bench.add(box, 2)
    bench.report()
    bench.link.core_lost("it ended")
    with pytest.raises(ApiError) as caught:
        await box.take()
    assert caught.value.status == 502
    assert (bench.link.state, bench.link.num_open, bench.link.ready) == ("down", 0, None)
    assert bench.observer.lost == [Counters(steps=1)]
    bench.link.core_starting()
    bench.clock.advance(2.5)
    bench.link.received(READY)
    assert bench.observer.phases == [Phase(name="recovery", seconds=2.5)]
    assert bench.link.state == "ready"


def test_a_link_that_was_stopped_stays_stopped(bench: Bench) -> None:
    bench.link.shut_down()
    assert bench.wire.sent == [Shutdown()]
    bench.link.received(READY)
    bench.link.core_lost("it ended")
    assert (bench.link.state, bench.link.failure) == ("stopped", "it was stopped")


def test_watchers_are_woken_by_a_change_of_state_and_not_after_they_left(bench: Bench) -> None:
    with bench.link.watch() as changed:
        bench.link.core_lost("it ended")
        assert changed.is_set()
        changed.clear()
    bench.link.core_starting()
    assert not changed.is_set()


def test_a_core_that_has_run_no_step_has_its_whole_pool_free(bench: Bench) -> None:
    assert (bench.link.load.num_blocks_total, bench.link.load.num_blocks_free) == (9, 9)
    bench.link.received(msgspec.structs.replace(READY, load=LOAD))
    assert bench.link.load == LOAD


class Listener:
    """Keeps what a connection brings."""

    def __init__(self) -> None:
        self.transports: list[asyncio.WriteTransport] = []
        self.messages: list[ToFront] = []

    def attached(self, transport: asyncio.WriteTransport) -> None:
        self.transports.append(transport)

    def received(self, message: ToFront) -> None:
        self.messages.append(message)


def test_a_connection_passes_frames_on_and_takes_only_the_first_core() -> None:
    listener, first, second = Listener(), Wire(), Wire()
    connection = CoreConnection(listener)
    connection.connection_made(first)
    connection.connection_made(second)
    assert (listener.transports, second.is_closed) == ([first], True)
    data = encode_frame(Fatal(message="x"))
    connection.data_received(data[:3])
    connection.data_received(data[3:] + data)
    assert listener.messages == [Fatal(message="x")] * 2
    connection.connection_lost(None)
    assert connection.lost.is_set()


def test_a_connection_with_a_broken_frame_is_closed_with_its_reason() -> None:
    listener, wire = Listener(), Wire()
    connection = CoreConnection(listener)
    connection.connection_made(wire)
    connection.data_received(b"\x00\x00\x00\x01\xc1")
    assert wire.is_closed
    assert "bad frame from the core" in connection.reason
    assert listener.messages == []

"""A client of a core over a socket pair."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from engine.protocol import (
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
from engine.selftest.core_client import CoreClient, CoreFailed
from tests.engine.frontend.fake_core import LOAD

READY = Ready(
    max_model_len=64, block_size=16, num_blocks=9, vocab_size=97, device="cpu", dtype="float32", model_type="fake"
)
PARAMS = SamplingParams(max_tokens=4)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def emit(core: socket.socket, *messages: ToFront) -> None:
    core.sendall(b"".join(map(encode_frame, messages)))


def report(*outputs: SeqOutput, steps: int = 1) -> StepReport:
    return StepReport(outputs=list(outputs), load=LOAD, counters=Counters(steps=steps))


def received(core: socket.socket) -> list[ToCore]:
    return [decode_to_core(body) for body in FrameSplitter().feed(core.recv(65536))]


def test_answers_of_several_prompts_are_put_together_whatever_order_they_come_in(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, core = pair
    emit(core, Phase(name="import", seconds=1.0), READY)
    client = CoreClient(ours)
    assert client.ready == READY
    emit(
        core,
        report(SeqOutput(seq_id=1, token_ids=[7]), SeqOutput(seq_id=0, token_ids=[5])),
        report(SeqOutput(seq_id=1, token_ids=[8], finish_reason="stop")),
        report(SeqOutput(seq_id=0, token_ids=[6], finish_reason="length"), steps=3),
    )
    first, second = client.generate([[1, 2], [3]], [PARAMS, PARAMS])
    assert (first.token_ids, first.finish_reason) == ([5, 6], "length")
    assert (second.token_ids, second.finish_reason) == ([7, 8], "stop")
    assert client.counters.steps == 3
    assert [getattr(message, "prompt_token_ids", None) for message in received(core)] == [[1, 2], [3]]


def test_each_request_has_new_ids(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, core = pair
    emit(core, READY)
    client = CoreClient(ours)
    for seq_id in (0, 1):
        emit(core, report(SeqOutput(seq_id=seq_id, token_ids=[seq_id], finish_reason="stop")))
        assert client.generate([[1]], [PARAMS])[0].token_ids == [seq_id]
    client.end_core()
    assert received(core)[-1] == Shutdown()


@pytest.mark.parametrize(
    ("messages", "reason"), [([Fatal(message="no such folder")], "no such folder"), ([], "the core ended")]
)
def test_a_core_that_cannot_start_fails_with_its_reason(
    messages: list[ToFront], reason: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, core = pair
    emit(core, *messages)
    core.shutdown(socket.SHUT_WR)
    with pytest.raises(CoreFailed, match=reason):
        CoreClient(ours)


def test_a_sequence_that_fails_and_a_core_that_ends_are_failures(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, core = pair
    emit(core, READY)
    client = CoreClient(ours)
    emit(core, report(SeqOutput(seq_id=0, token_ids=[], finish_reason="error", error="logits are not numbers")))
    with pytest.raises(CoreFailed, match="not numbers"):
        client.generate([[1]], [PARAMS])
    threading.Timer(0.0, core.shutdown, [socket.SHUT_WR]).start()
    with pytest.raises(CoreFailed, match="the core ended"):
        client.generate([[1]], [PARAMS])

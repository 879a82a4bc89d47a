"""One seed: it repeats itself, and the checks behind it find what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from gateway.limits.permit import Permit
from gateway.upstreams.http1.connection import Connection
from loadtests.simulation.fault_run import FaultRun, Verdict
from loadtests.simulation.faulty_client import SentRequest
from loadtests.simulation.simulated_faults import verdicts_of

NUM_REQUESTS = 12


def sent(data: bytes, *, is_stream: bool = False) -> SentRequest:
    return SentRequest("ant", "canary-ant-0", "chat", is_stream, "waits", 0.0, data=bytearray(data))


def verdicts(folder: Path, seeds: range) -> list[dict[str, Any]]:
    with closing(FaultRun(folder)) as run:
        return [verdicts_of([run], [seed], NUM_REQUESTS)[0] for seed in seeds]


def test_a_seed_repeats_itself_in_another_process(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    first, again = (verdicts(folder, range(1, 6)) for folder in folders)
    assert first == again
    assert len({verdict["digest"] for verdict in first}) == 5
    assert not any(verdict["problems"] for verdict in first)


def _keeps_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    released = Permit.release

    def release(permit: Permit) -> None:
        if permit.waited_s == 0.0:
            released(permit)

    monkeypatch.setattr(Permit, "release", release)


def _forgets_who_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "abandon", lambda connection: None)


@pytest.mark.parametrize("spoil", [_keeps_permits, _forgets_who_left])
def test_a_fault_of_the_gateway_is_found_within_a_few_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None]
) -> None:
    spoil(monkeypatch)
    assert any(verdict["problems"] for verdict in verdicts(tmp_path, range(1, 31)))


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"canary-bee-7.0 ", "received bytes of"),
        (b"canary-ant-0.1 canary-ant-0.0 ", "not in order"),
        (b"canary-ant-0.0 ", "stated to be whole"),
    ],
)
def test_what_no_client_may_see_is_seen(data: bytes, problem: str) -> None:
    assert any(problem in text for text in sent(HEAD % (len(data), data)).problems())


@pytest.mark.parametrize("data", [b"canary-ant-3", b"canary-ant-3\r\n1\r\n8.0 ", b"canary-ant-38.0 "])
def test_a_mark_that_is_cut_where_the_data_or_a_chunk_ends_is_ones_own(data: bytes) -> None:
    one = sent(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + data)
    one.canary = "canary-ant-38"
    assert not [text for text in one.problems() if "received bytes of" in text]
    one.canary = "canary-ant-4"
    assert [text for text in one.problems() if "received bytes of" in text]


def test_an_internal_error_is_a_problem_and_a_refusal_is_none() -> None:
    assert list(sent(b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n").problems())
    assert not list(sent(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n").problems())


class Dying:
    """A run that takes its process with it at one seed."""

    def run(self, seed: int, num_requests: int) -> Verdict:
        if seed == 2:
            os._exit(1)
        return Verdict(seed, num_requests=num_requests)


def test_a_seed_that_ends_its_process_is_named_and_the_others_run() -> None:
    found = verdicts_of([Dying(), Dying(), Dying()], [1, 2, 3], 5)
    assert [(one["seed"], bool(one["problems"])) for one in found] == [(1, False), (2, True), (3, False)]
    assert [one.get("num_requests") for one in found] == [5, None, 5]


def test_a_seed_has_the_same_verdict_alone_and_among_others(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        runs = [stack.enter_context(closing(FaultRun(folder))) for folder in folders]
        assert verdicts_of(runs, [1, 2, 3], NUM_REQUESTS)[2] == verdicts_of(runs[:1], [3], NUM_REQUESTS)[0]

"""Recorded answers on disk: found by id, private, bounded, and readable after a crash."""

from __future__ import annotations

import resource
import signal
from collections import Counter
from pathlib import Path

import pytest

from gateway.telemetry.records import answer_log
from gateway.telemetry.records.answer_log import AnswerEnd, AnswerLog, find_answer
from gateway.telemetry.records.answer_record import AnswerRecording
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.records.segments import Segments
from tests.gateway.telemetry.records.test_answer_record import Whole, draft, finished


def log_of(folder: Path, ends: Counter[str], now: list[float], max_bytes: int = 1_000_000) -> AnswerLog:
    def count(end: AnswerEnd, num: int) -> None:
        ends[end] += num

    segments = Segments(folder, holder="h", max_bytes=max_bytes, retention_s=100.0, wall=lambda: now[0])
    made = AnswerLog(segments, lambda: now[0], count)
    made.open()
    return made


def numbered(number: int) -> RequestRecord:
    record = finished()
    record.request_id = f"req_{number}"
    return record


def test_an_answer_is_found_by_the_id_of_its_request(tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    log = log_of(tmp_path / "answers", ends, [1e9])
    for number in range(12):
        log.note(draft(b'{"number": %d}' % number), numbered(number))
    log.note(draft(None), numbered(12))
    log.flush()
    found = find_answer(tmp_path / "answers", "req_1")
    assert found is not None
    assert (found.id, found.answer) == ("req_1", '{"number": 1}')
    assert find_answer(tmp_path / "answers", "req_12") is None
    assert find_answer(tmp_path / "none", "req_1") is None
    assert ends == {"recorded": 12, "left_out": 1}
    (path,) = (tmp_path / "answers").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_answer(path, "req_3") is not None, "a file will do"
    with path.open("ab") as stream:
        stream.write(b'{"id":"req_99","at":1')
    assert find_answer(path, "req_99") is None, "cut off"


def test_the_size_is_bounded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    now = [1e9]
    log = log_of(tmp_path / "answers", Counter(), now, max_bytes=16_000)
    for number in range(100):
        now[0] += 0.1
        log.note(draft(b'{"text": "%b"}' % (b"x" * 500)), numbered(number))
        log.flush()
    assert sum(path.stat().st_size for path in (tmp_path / "answers").iterdir()) <= 16_000
    assert find_answer(tmp_path / "answers", "req_0") is None
    assert find_answer(tmp_path / "answers", "req_99") is not None


def test_answers_that_wait_for_the_disk_take_bounded_memory(tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    log = log_of(tmp_path / "answers", ends, [1e9])
    most = answer_log.MAX_WAITING_BYTES // 1_000_000
    for number in range(most + 3):
        made = AnswerRecording(b"{}", {})
        made.capture = Whole(b"x" * 1_000_000)
        log.note(made, numbered(number))
    assert ends == {"dropped": 3}


def test_a_full_disk_costs_the_answers_and_is_counted(tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    log = log_of(tmp_path / "answers", ends, [1e9])
    (tmp_path / "answers").rmdir()  # as any error of the disk
    log.note(draft(), numbered(1))
    log.flush()
    assert ends["dropped"] == 1


@pytest.mark.parametrize(
    "line",
    [b'{"id":"req_1","at":1,"tenant":"\xff"}', b'{"id":"req_1","x":' + b"[" * 200_000, bytes(range(256))],
    ids=["no UTF-8", "deep", "binary"],
)
def test_lines_that_are_no_records_are_skipped(tmp_path: Path, line: bytes) -> None:
    folder = tmp_path / "answers"
    log = log_of(folder, Counter(), [1e9])
    log.note(draft(), numbered(1))
    log.flush()
    (path,) = folder.iterdir()
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert find_answer(folder, "req_1") is not None


def test_a_line_that_a_full_disk_cut_off_spoils_no_later_one(tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    folder = tmp_path / "answers"
    log = log_of(folder, ends, [1e9])
    log.note(draft(), numbered(1))
    log.flush()
    (path,) = folder.iterdir()
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        log.note(draft(), numbered(2))
        log.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert ends == {"recorded": 1, "left_out": 0, "dropped": 1}
    log.note(draft(), numbered(3))
    log.flush()
    assert find_answer(folder, "req_3") is not None
    assert find_answer(folder, "req_1") is not None


def test_nothing_is_stored_beyond_the_retention_time(tmp_path: Path) -> None:
    now = [1e9]
    folder = tmp_path / "answers"
    log = log_of(folder, Counter(), now)
    for number in range(30):  # one every ten seconds, so that each file is always a recent one
        now[0] += 10.0
        log.note(draft(), numbered(number))
        log.flush()
    assert find_answer(folder, "req_29") is not None
    assert find_answer(folder, "req_23") is not None
    assert find_answer(folder, "req_18") is None, "110 s old"
    now[0] += 101.0
    log.flush()
    assert not list(folder.iterdir()), "also without another request"


def test_a_batch_beyond_the_total_size_leaves_its_newest_answers(tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    log = log_of(folder, Counter(), [1e9], max_bytes=16_000)
    for number in range(100):
        log.note(draft(b'{"text": "%b"}' % (b"x" * 500)), numbered(number))
    log.flush()
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 16_000
    assert find_answer(folder, "req_99") is not None
    assert find_answer(folder, "req_0") is None

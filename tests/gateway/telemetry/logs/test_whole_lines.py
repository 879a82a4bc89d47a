"""WholeLines: lines of several writers never mix, on a pipe and in a file."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path

from gateway.telemetry.logs.whole_lines import WholeLines

NUM_LINES = 400


def lines_of(name: str) -> list[bytes]:
    return [f"{name}{number} {'x' * (number % 300)}".encode() for number in range(NUM_LINES)]


def write_all(descriptor: int) -> None:
    """Two writers at once, each in batches of many lines."""

    def write(name: str) -> None:
        lines = lines_of(name)
        for start in range(0, NUM_LINES, 100):
            stream = WholeLines(descriptor)
            assert stream.writable()
            data = b"".join(line + b"\n" for line in lines[start : start + 100])
            assert stream.write(data) == len(data)

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def test_on_a_pipe() -> None:
    reading, writing = os.pipe()
    found: list[bytes] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as stream:
            found.extend(stream.read().splitlines())

    reader = threading.Thread(target=read)
    reader.start()
    write_all(writing)
    os.close(writing)
    reader.join()
    assert sorted(found) == sorted([*lines_of("a"), *lines_of("b")])


def test_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write_all(descriptor)
    os.close(descriptor)
    assert sorted(path.read_bytes().splitlines()) == sorted([*lines_of("a"), *lines_of("b")])


def test_a_line_longer_than_a_pipes_write_is_written_whole(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    line = b"y" * (3 * select.PIPE_BUF) + b"\n"
    WholeLines(writing).write(line)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert stream.read() == line

"""The process that compiles grammars first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

from engine.sampling.grammar_check import read_text, serve_checks, write_text
from tests.engine.frontend.tiny_model import write_model

VOCAB_SIZE = 400


def source(schema: object) -> str:
    return json.dumps({"grammars": [{"json_schema": schema}]})


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny"))


def test_the_checking_process_ends_with_the_core(model_dir: Path) -> None:
    command = [sys.executable, "-m", "engine.sampling.grammar_check"]
    options = ["--model-dir", str(model_dir), "--vocab-size", str(VOCAB_SIZE), "--limit-s", "0.5"]
    with subprocess.Popen(command + options, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert read_text(process.stdout) == ""
        # Ctrl-C is for the front.
        os.kill(process.pid, signal.SIGINT)
        process.stdin.close()
        assert process.wait(10) == 0


def frames(*texts: str) -> BytesIO:
    stream = BytesIO()
    for text in texts:
        write_text(stream, text)
    stream.seek(0)
    return stream


def replies(requests: BytesIO, folder: Path) -> list[str]:
    found = BytesIO()
    serve_checks(requests, found, folder, VOCAB_SIZE, limit_s=60.0)
    found.seek(0)
    return list(iter(lambda: read_text(found), None))


@pytest.mark.parametrize("text", ["", "x", "tö\n", "x" * 70_000])
def test_a_frame_is_read_as_it_was_written(text: str) -> None:
    assert read_text(frames(text)) == text


@pytest.mark.parametrize("num_bytes", [0, 3, 5])
def test_a_stream_that_ends_inside_a_frame_has_no_text(num_bytes: int) -> None:
    assert read_text(BytesIO(frames("text").read(num_bytes))) is None


def test_each_grammar_gets_its_own_reply_after_the_first_one_for_the_tokenizer(model_dir: Path) -> None:
    requests = frames(source({"type": "integer"}), source({"type": "strng"}), source({"type": "null"}))
    loaded, good, bad, also_good = replies(requests, model_dir)
    assert (loaded, good, also_good) == ("", "", "")
    assert "strng" in bad


def test_without_a_tokenizer_the_first_reply_is_the_fault_and_the_last(tmp_path: Path) -> None:
    (fault,) = replies(frames(source({"type": "integer"})), tmp_path)
    assert "tokenizer.json" in fault

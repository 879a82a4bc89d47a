"""Features of a request for the recording: digests in place of texts, unless texts are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.routing.sampling import RecordingSampler
from gateway.telemetry.records.tape import Tape
from routing_policies.quality.predictor import Predictors

HEAD = ChatHead([(b"x-app", b"faq"), (b"authorization", b"Bearer secret")])


def sampler(folder: Path, *, keeps_text: bool = False) -> RecordingSampler:
    tape = Tape(folder, holder="h", max_bytes=1000, retention_s=1e9, keeps_text=keeps_text, wall=lambda: 1000.0)
    tape.open()
    return RecordingSampler(tape, Predictors())


def requested(text: str = "What is 7 plus 5?", **fields: Any) -> ChatRequest:
    document = {"model": "auto", "messages": [{"role": "user", "content": text}], **fields}
    return ChatRequestParser().parse(msgspec.json.encode(document))


def test_equal_questions_have_equal_digests_and_no_words_are_in_the_sample(tmp_path: Path) -> None:
    own = sampler(tmp_path)
    first, again, other = (
        own.sample(requested(text, user="anna"), HEAD, ()) for text in ("What is it?", "What is it?", "Which?")
    )
    assert first is not None
    assert other is not None
    assert first == again
    assert first["question"] != other["question"]
    assert first["user"] == other["user"] != ""
    assert "What" not in str(first)
    assert "anna" not in str(first)


def test_only_the_headers_that_a_route_matches_by_are_recorded(tmp_path: Path) -> None:
    sample = sampler(tmp_path).sample(requested(), HEAD, ("x-app", "x-none"))
    assert sample is not None
    assert sample["headers"] == {"x-app": "faq"}
    without = sampler(tmp_path).sample(requested(), HEAD, ())
    assert without is not None
    assert "headers" not in without


def test_text_is_recorded_where_it_is_wanted(tmp_path: Path) -> None:
    sample = sampler(tmp_path, keeps_text=True).sample(requested("remember me"), HEAD, ())
    assert sample is not None
    assert sample["text"] == "remember me"

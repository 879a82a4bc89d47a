"""Features of a request for the recording: digests in place of texts, unless texts are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.routing.sampling import RecordingSampler
from gateway.telemetry.records.answer_record import AnswerRecording
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
        own.sample(requested(text, user="anna"), HEAD, (), "dev") for text in ("What is it?", "What is it?", "Which?")
    )
    assert first is not None
    assert other is not None
    assert first == again
    assert first["question"] != other["question"]
    assert first["user"] == other["user"] != ""
    assert "What" not in str(first)
    assert "anna" not in str(first)


def test_only_the_headers_that_a_route_matches_by_are_recorded(tmp_path: Path) -> None:
    sample = sampler(tmp_path).sample(requested(), HEAD, ("x-app", "x-none"), "dev")
    assert sample is not None
    assert sample["headers"] == {"x-app": "faq"}
    without = sampler(tmp_path).sample(requested(), HEAD, (), "dev")
    assert without is not None
    assert "headers" not in without


def test_text_is_recorded_where_it_is_wanted(tmp_path: Path) -> None:
    sample = sampler(tmp_path, keeps_text=True).sample(requested("remember me"), HEAD, (), "dev")
    assert sample is not None
    assert sample["text"] == "remember me"


def answering(folder: Path, request: ChatRequest) -> tuple[AnswerRecording, ChatRequest]:
    """Return the draft of an answer, and the request that is sent."""
    seeds = iter([11, 12])
    own = RecordingSampler(sampler(folder)._tape, Predictors(), lambda: next(seeds))
    draft = own.draft(request, HEAD, ("x-app", "authorization", "x-none"))
    assert draft is not None
    return draft, own.seeded(draft, request)


def test_a_sampled_answer_gets_a_seed_and_its_record_has_it(tmp_path: Path) -> None:
    draft, sent = answering(tmp_path, requested())
    assert (draft.seed, sent.document["seed"], sent.fields.seed) == (11, 11, 11)
    assert draft.headers == {"x-app": "faq"}, "credentials are left out, even where a route matches them"


def test_a_greedy_answer_and_a_clients_own_seed_stay_as_they_are(tmp_path: Path) -> None:
    for request, seed in ((requested(temperature=0), None), (requested(seed=5), 5)):
        draft, sent = answering(tmp_path, request)
        assert sent is request
        assert draft.seed == seed
        assert draft.is_greedy is (seed is None)

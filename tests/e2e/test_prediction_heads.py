"""Prediction heads of the large bundled model at work in a real engine: fewer steps, the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.lone_engine import LoneEngine, lone_engine

pytestmark = pytest.mark.e2e

QUESTIONS = (
    "What time do you open on Saturday?",
    "Extract name and city as JSON: Lena Marwick from Oldford ordered two lamps.",
    "Can I pay with a gift card?",
    "What is 17 plus 26?",
)
REPEATS = 40
"""Whether drafts pay is measured: where the machine was busy in a bad moment they are not tried for a while."""
ENOUGH = 150
"""Tokens drafted, to show how many are right: of the first few, tried one at a time, fewer are."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneEngine]:
    with lone_engine(tmp_path_factory.mktemp("heads"), "--speculation", "auto", model="large") as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneEngine]:
    with lone_engine(tmp_path_factory.mktemp("plain"), "--speculation", "off", model="large") as engine:
        yield engine


def answer(client: httpx.Client, question: str, **fields: Any) -> str:
    body = {"model": "large", "messages": [{"role": "user", "content": question}], "max_tokens": 48, **fields}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


def drafts(engine: LoneEngine) -> tuple[float, float]:
    """Tokens drafted and accepted so far."""
    names = ("drafted", "accepted")
    drafted, accepted = (engine.metric(f"engine_speculation_{name}_tokens_total") for name in names)
    return drafted, accepted


def test_questions_never_seen_before_are_answered_in_fewer_steps(engine: LoneEngine, plain: LoneEngine) -> None:
    with engine.client() as client, plain.client() as plain_client:
        for _ in range(REPEATS):
            for fields in ({"temperature": 0}, {"temperature": 0.8, "seed": 3}):
                for question in QUESTIONS:
                    assert answer(client, question, **fields) == answer(plain_client, question, **fields)
            if drafts(engine)[0] >= ENOUGH:
                break
    drafted, accepted = drafts(engine)
    assert accepted > 0.5 * drafted > 0
    assert drafts(plain) == (0, 0)


def test_what_follows_a_schema_is_answered_in_fewer_steps_too(engine: LoneEngine, plain: LoneEngine) -> None:
    text = {"type": "string", "maxLength": 40}
    schema = {
        "type": "object",
        "properties": {"name": text, "city": text},
        "required": ["name", "city"],
        "additionalProperties": False,
    }
    # Two strings of 40 characters: a token each at most, and what stands around them.
    fields = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}},
        "max_tokens": 128,
    }
    before = drafts(engine)
    with engine.client() as client, plain.client() as plain_client:
        for _ in range(REPEATS):
            for name in ("Lena Marwick from Oldford", "Jonas Pell from Harrowgate", "Mira Stone from Eastby"):
                question = f"Extract name and city as JSON: {name} ordered two lamps."
                for chosen in ({"temperature": 0}, {"temperature": 0.8, "seed": 3}):
                    found = answer(client, question, **fields, **chosen)
                    assert found == answer(plain_client, question, **fields, **chosen)
                    assert set(json.loads(found)) == {"name", "city"}
            if drafts(engine)[0] - before[0] >= ENOUGH:
                break
    drafted, accepted = (now - then for now, then in zip(drafts(engine), before, strict=True))
    assert accepted > 0.5 * drafted > 0

"""Long and ill-meant answers of upstreams to a gateway of its own: read beside its event loop, whatever they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.gateway.completion.test_answer_json import plain, token
from tests.gateway.scripted import Wire
from tests.gateway.stack import chat
from tests.gateway.test_long_requests import MAX_LAG_S, call, least_lag_s, served

pytestmark = pytest.mark.e2e


def repeated(item: str, num_bytes: int) -> str:
    return ",".join([item] * (num_bytes // (len(item) + 1)))


ANSWERS: Final[dict[str, Callable[[int], bytes]]] = {
    "least floats": lambda size: plain(f',"own":[{repeated("1e-320", size)}]'),
    "least log-probabilities": lambda size: plain(f',"logprobs":{{"content":[{repeated(token("1e-320"), size)}]}}'),
    "long floats": lambda size: plain(f',"own":[{repeated("0." + "1" * 300, size)}]'),
    "integers": lambda size: plain(f',"own":[{repeated("1", size)}]'),
    "words": lambda size: plain(message=f',"own":[{repeated(chr(34) + "ab" + chr(34), size)}]'),
    "usage": lambda size: plain(usage=f',"own":[{repeated("9e-309", size)}]'),
    "a text": lambda size: plain(f',"own":"{"x" * size}"'),
}
ERRORS: Final[dict[str, Callable[[int], bytes]]] = {
    "an error": lambda size: f'{{"error":{{"message":"x","param":[{repeated("1e-320", size)}]}}}}'.encode(),
    "a list": lambda size: f"[{repeated('1e-320', size)}]".encode(),
    "a reason": lambda size: plain(reason=f'{{"type":"error","own":[{repeated("1e-320", size)}]}}'),
}


def of_model(answer: bytes) -> bytes:
    """What the model made of an answer: a hit has an id and a time of its own."""
    return b"".join(answer.partition(b'"choices"')[1:]) or answer


@pytest.mark.parametrize("kind", ["plain", "exact", "cascade"])
@pytest.mark.parametrize("num_bytes", [256 << 10, 900 << 10, 4 << 20])
async def test_long_answers_hold_nobody_up(kind: str, num_bytes: int, tmp_path: Path) -> None:
    answers = [b""]

    async def script(wire: Wire) -> None:
        await wire.answer(answers[0])

    async with served(tmp_path, "watched", script=script):
        for name, make in ANSWERS.items():
            answers[0] = make(num_bytes)
            body = json.dumps(chat(kind, messages=[{"role": "user", "content": name}])).encode()

            async def send(name: str = name, body: bytes = body) -> None:
                for _ in range(2):  # the second may come from the cache
                    reply = await call(tmp_path / "public.sock", body)
                    assert reply.status == 200, (name, reply.body[:300])
                    assert of_model(reply.body) == of_model(answers[0]), (name, reply.body[:300])

            assert await least_lag_s(tmp_path, send) < MAX_LAG_S, name
        for name, make in ERRORS.items():
            answers[0] = make(num_bytes)
            body = json.dumps(chat(kind, messages=[{"role": "user", "content": name}])).encode()

            async def fail(name: str = name, body: bytes = body) -> None:
                assert (await call(tmp_path / "public.sock", body)).status == 502, name

            assert await least_lag_s(tmp_path, fail) < MAX_LAG_S, name


@pytest.mark.parametrize("kind", ["plain", "exact", "cascade"])
@pytest.mark.parametrize("num_tokens", [1, 1000])
async def test_long_streams_hold_nobody_up(kind: str, num_tokens: int, tmp_path: Path) -> None:
    each = ",".join([token("1e-320")] * num_tokens)
    event = (
        'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
        f'{{"content":"hi"}},"finish_reason":null,"logprobs":{{"content":[{each}]}}}}]}}\n\n'
    )
    end = 'data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    stream = (event * ((4 << 20) // len(event)) + end).encode()

    async def script(wire: Wire) -> None:
        await wire.start_stream()
        await wire.send(b"%x\r\n%b\r\n" % (len(stream), stream))
        await wire.end()

    async with served(tmp_path, "watched", script=script):
        body = json.dumps({**chat(kind, messages=[{"role": "user", "content": "hi"}]), "stream": True}).encode()

        async def send() -> None:
            reply = await call(tmp_path / "public.sock", body)
            assert reply.status == 200
            assert reply.body.rstrip().endswith(b"data: [DONE]")

        assert await least_lag_s(tmp_path, send) < MAX_LAG_S

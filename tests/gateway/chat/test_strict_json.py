"""Where a body is parsed: a short one at once, a long one where it holds nobody up."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.chat.strict_json import LONG_BYTES, JsonGuard
from gateway.errors import InvalidRequest
from tests.gateway.stack import chat, running


@pytest.mark.parametrize(
    "tools",
    [
        b'[{"a":{"b":1,"b":1}}]',
        b'[{"a":{"b" \n:1,"b":1}}]',
        b'[{"a":{"b":1,"\\u0062":1}}]',
        b'[{"a":{"b":"\\u0022:","b":1}}]',
        b'[{"a":{"b":"\\"\\u003a","b":1}}]',
    ],
)
def test_a_key_that_stands_twice_is_found_at_any_depth(tools: bytes) -> None:
    with pytest.raises(InvalidRequest, match="more than once"):
        JsonGuard(("messages",)).decode(b'{"model":"m","messages":[],"tools":' + tools + b"}")


@pytest.mark.parametrize("text", [b'say \\": and \\" : twice', b"\\u0022: \\u003A", b'{\\"a\\":1,\\"a\\":2}'])
def test_text_that_resembles_keys_is_text(text: bytes) -> None:
    found = JsonGuard(("messages",)).decode(b'{"x":["' + text + b'"],"y":{"a":1},"z":{"a":1}, "n" : 1e3}')
    assert found["n"] == 1000


def sending(num_bytes: int) -> dict[str, object]:
    return {**chat(), "messages": [{"role": "user", "content": "x" * num_bytes}]}


@pytest.mark.parametrize(("num_bytes", "is_here"), [(100, True), (LONG_BYTES, False)])
async def test_only_long_bodies_leave_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int, is_here: bool
) -> None:
    threads: list[threading.Thread] = []

    class Watched(ChatRequestParser):
        def parse(self, body: bytes) -> ChatRequest:
            threads.append(threading.current_thread())
            return super().parse(body)

    monkeypatch.setattr("gateway.app.request_path.ChatRequestParser", Watched)
    async with running(tmp_path) as stack:
        assert (await stack.call(sending(num_bytes))).status == 200
    assert [thread is threading.current_thread() for thread in threads] == [is_here]


async def test_a_long_body_that_is_wrong_is_refused_like_a_short_one(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        short, long = await asyncio.gather(
            *(stack.call({**sending(size), "temperature": "hot"}) for size in (100, LONG_BYTES))
        )

    assert (short.status, long.status) == (400, 400)
    assert short.json["error"] == long.json["error"]


@pytest.mark.parametrize("half", [r"\ud83d", r"\uDBFF", r"\udc00", r"\\\ud83d"])
@pytest.mark.parametrize("after", ['"}', '" }', '" , "more": "text that follows"}'])
def test_half_of_a_surrogate_pair_is_named_wherever_it_stands(half: str, after: str) -> None:
    body = f'{{"content": "a{half}{after}'.encode()
    with pytest.raises(InvalidRequest, match=r"surrogate pair \(byte \d+\)"):
        JsonGuard(()).decode(body)


@pytest.mark.parametrize("body", [b'{"a":"x', rb'{"a":"\\ud83d"', rb'{"a":"\ud83d\ude00"', b'{"a":1'])
def test_a_body_that_is_cut_off_is_called_truncated(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="truncated"):
        JsonGuard(()).decode(body)

"""One answer that is not streamed, with the engine's own record of where its time went."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loadtests.clients.http_client import Address, LoadConnection, request_bytes
from loadtests.harness.processes import ProcessFailed

_TIMING = ("x-penstock-timing", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAnswer:
    """One answer and where its time went; instants are of `http_client.clock`, stages are the engine's own."""

    sent_at: float
    ended_at: float
    text: str
    num_tokens: int
    num_cached_tokens: int
    queue_s: float
    prefill_s: float
    """Admission to the choice of the first token."""
    decode_s: float
    """From there to the choice of the last."""
    num_drafted_tokens: int

    @property
    def decode_begin(self) -> float:
        """About when the first token was chosen: what the way to the engine took is left out."""
        return self.sent_at + self.queue_s + self.prefill_s

    @property
    def decode_end(self) -> float:
        """The same of the last token."""
        return self.decode_begin + self.decode_s

    @property
    def engine_s(self) -> float:
        """All stages."""
        return self.queue_s + self.prefill_s + self.decode_s


async def complete_tokens(
    address: Address, prompt: Sequence[int], num_tokens: int, *, headers: tuple[tuple[str, str], ...] = ()
) -> PlainAnswer:
    """Exactly so many tokens behind a prompt of token ids, greedily. Raises ProcessFailed."""
    body = {"model": "bench", "prompt": list(prompt), "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    answer = await _ask(address, "/v1/completions", body, headers)
    if answer.num_tokens != num_tokens:
        raise ProcessFailed(f"the engine made {answer.num_tokens} tokens where {num_tokens} were asked for")
    return answer


async def answer_chat(address: Address, messages: Sequence[object], max_tokens: int) -> PlainAnswer:
    """A greedy answer to a conversation, as long as the model wants up to a limit. Raises ProcessFailed."""
    body = {"model": "bench", "messages": list(messages), "max_tokens": max_tokens, "temperature": 0}
    return await _ask(address, "/v1/chat/completions", body, ())


async def _ask(
    address: Address, path: str, body: dict[str, object], headers: tuple[tuple[str, str], ...]
) -> PlainAnswer:
    request = request_bytes("POST", path, json.dumps(body).encode(), headers=(_TIMING, *headers))
    connection = await LoadConnection.open(address, keep_body=True)
    try:
        exchange = await connection.exchange(request)
        content = connection.scanner.content
    finally:
        connection.close()
    if not exchange.is_ok:
        raise ProcessFailed(f"the engine answered {exchange.status} ({exchange.error}): {content[-300:]!r}")
    return read_answer(json.loads(content), exchange.sent_at, exchange.ended_at)


def read_answer(body: dict[str, Any], sent_at: float, ended_at: float) -> PlainAnswer:
    """From a parsed response. Raises ProcessFailed when the stage record is missing."""
    try:
        choice = body["choices"][0]
        stages = body["penstock"]["timing"]["engine"]["choices"][0]
        return PlainAnswer(
            sent_at=sent_at,
            ended_at=ended_at,
            text=choice["text"] if "text" in choice else choice["message"]["content"] or "",
            num_tokens=int(stages["completion_tokens"]),
            num_cached_tokens=int(stages["cached_tokens"]),
            queue_s=stages["queue_ms"] / 1e3,
            prefill_s=stages["prefill_ms"] / 1e3,
            decode_s=stages["decode_ms"] / 1e3,
            num_drafted_tokens=int(stages["drafted_tokens"]),
        )
    except (KeyError, IndexError, TypeError) as error:
        raise ProcessFailed(f"an answer without the engine's stage record: {error!r} in {str(body)[:300]}") from error

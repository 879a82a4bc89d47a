"""Completions of an engine: streamed with the instant of each token, or plain with the engine's own stage record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtests.clients.http_client import Address, Exchange, LoadConnection, OnPiece, clock, request_bytes
from loadtests.harness.processes import ProcessFailed

Headers = tuple[tuple[str, str], ...]

_COMPLETIONS = "/v1/completions"
_CHAT = "/v1/chat/completions"
_TIMING = ("x-penstock-timing", "full")


@dataclass(slots=True, kw_only=True)
class TokenStream:
    """What a client saw; instants are of `http_client.clock`."""

    sent_at: float
    instants: list[float] = field(default_factory=list)
    """Of every event with text; an event is one token unless the engine speculates."""
    num_tokens: int = 0
    """As the engine counted them; 0 until the end."""
    ended_at: float = 0.0

    @property
    def ttft_s(self) -> float:
        """Sent to first token."""
        return self.instants[0] - self.sent_at

    def gaps_between(self, begin: float, end: float) -> list[float]:
        """Gaps between tokens, of those gaps that overlap this time."""
        pairs = zip(self.instants, self.instants[1:], strict=False)
        return [after - before for before, after in pairs if after > begin and before < end]


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
    num_accepted_tokens: int = 0
    """Draft tokens of any source that the answer has."""
    num_accepted_predicted: int = 0
    """Draft tokens from the request's prediction that the answer has."""
    num_rejected_predicted: int = 0

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


async def stream_tokens(
    address: Address,
    prompt: Sequence[int],
    num_tokens: int,
    *,
    headers: Headers = (),
    seen: TokenStream | None = None,
) -> TokenStream:
    """Request exactly so many tokens and wait for them; `seen` fills while they come. Raises ProcessFailed."""
    stream = seen if seen is not None else TokenStream(sent_at=clock())

    def on_piece(now: float, data: bytes) -> None:
        # The last text event shares its piece with nothing but the finish reason, whose text is empty.
        if b'"text":' in data and (b'"finish_reason":null' in data):
            stream.instants.append(now)

    body = {**_exactly(prompt, num_tokens), "stream": True, "stream_options": {"include_usage": True}}
    exchange, content = await _send(address, _COMPLETIONS, body, headers, on_piece)
    if not exchange.has_done:
        raise ProcessFailed(f"the engine's stream broke off: {content[-300:]!r}")
    stream.num_tokens = _usage(content)
    stream.ended_at = exchange.ended_at
    if not stream.instants:  # every token was part of a character that never became whole
        stream.instants.append(stream.ended_at)
    return stream


async def complete_tokens(
    address: Address, prompt: Sequence[int], num_tokens: int, *, headers: Headers = ()
) -> PlainAnswer:
    """Request exactly so many tokens behind a prompt of token ids, greedily. Raises ProcessFailed."""
    answer = await _answer(address, _COMPLETIONS, _exactly(prompt, num_tokens), headers)
    if answer.num_tokens != num_tokens:
        raise ProcessFailed(f"the engine made {answer.num_tokens} tokens where {num_tokens} were requested")
    return answer


async def answer_chat(
    address: Address,
    messages: Sequence[object],
    max_tokens: int,
    *,
    salt: str | None = None,
    prediction: str | None = None,
    temperature: float = 0.0,
    seed: int | None = None,
) -> PlainAnswer:
    """Request an answer to a conversation, as long as the model wants up to a limit. Raises ProcessFailed."""
    body: dict[str, object] = {
        "model": "bench",
        "messages": list(messages),
        "max_tokens": max_tokens,
        "temperature": temperature,
    }
    if seed is not None:
        body["seed"] = seed
    if prediction is not None:
        body["prediction"] = {"type": "content", "content": prediction}
    return await _answer(address, _CHAT, body, () if salt is None else (("x-penstock-cache-salt", salt),))


async def complete_chat(address: Address, body: Mapping[str, object], *, salt: str) -> dict[str, Any]:
    """Send a chat request and return its whole answer. Raises ProcessFailed."""
    _, content = await _send(address, _CHAT, body, (("x-penstock-cache-salt", salt),))
    answer: dict[str, Any] = json.loads(content)
    return answer


def _exactly(prompt: Sequence[int], num_tokens: int) -> dict[str, object]:
    return {"model": "bench", "prompt": list(prompt), "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}


async def _answer(address: Address, path: str, body: Mapping[str, object], headers: Headers) -> PlainAnswer:
    exchange, content = await _send(address, path, body, (_TIMING, *headers))
    return read_answer(json.loads(content), exchange.sent_at, exchange.ended_at)


async def _send(
    address: Address, path: str, body: Mapping[str, object], headers: Headers, on_piece: OnPiece | None = None
) -> tuple[Exchange, bytes]:
    """One request on a connection of its own, and its content. Raises ProcessFailed."""
    connection = await LoadConnection.open(address, keep_body=True)
    try:
        request = request_bytes("POST", path, json.dumps(body).encode(), headers=headers)
        exchange = await connection.exchange(request, on_piece)
        if not exchange.is_ok:
            body_end = bytes(connection.scanner.body[-300:])
            raise ProcessFailed(f"the engine answered {exchange.status} ({exchange.error}): {body_end!r}")
        return exchange, connection.scanner.content
    finally:
        connection.close()


def _usage(stream: bytes) -> int:
    for event in reversed(stream.split(b"\n\n")):
        if event.startswith(b"data: {"):
            usage = json.loads(event[6:]).get("usage")
            if usage:
                return int(usage["completion_tokens"])
    return 0


def read_answer(body: dict[str, Any], sent_at: float, ended_at: float) -> PlainAnswer:
    """From a parsed response. Raises ProcessFailed when the stage record is missing."""
    try:
        choice = body["choices"][0]
        stages = body["penstock"]["timing"]["engine"]["choices"][0]
        details = (body.get("usage") or {}).get("completion_tokens_details") or {}
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
            num_accepted_tokens=int(stages.get("accepted_tokens", 0)),
            num_accepted_predicted=int(details.get("accepted_prediction_tokens", 0)),
            num_rejected_predicted=int(details.get("rejected_prediction_tokens", 0)),
        )
    except (KeyError, IndexError, TypeError) as error:
        raise ProcessFailed(f"an answer without the engine's stage record: {error!r} in {str(body)[:300]}") from error

"""One streamed completion of token ids, and when each of its tokens came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtests.clients.http_client import Address, LoadConnection, clock, request_bytes
from loadtests.harness.processes import ProcessFailed

_PATH = "/v1/completions"


@dataclass(slots=True, kw_only=True)
class TokenStream:
    """What a client saw; instants are of `loadtests.clients.http_client.clock`."""

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


async def stream_tokens(
    address: Address,
    prompt: Sequence[int],
    num_tokens: int,
    *,
    headers: tuple[tuple[str, str], ...] = (),
    seen: TokenStream | None = None,
) -> TokenStream:
    """Ask for exactly so many tokens and wait for them; `seen` fills while they come. Raises ProcessFailed."""
    body = {
        "model": "bench",
        "prompt": list(prompt),
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = await LoadConnection.open(address, keep_body=True)
    stream = seen if seen is not None else TokenStream(sent_at=clock())

    def on_piece(now: float, data: bytes) -> None:
        # The last text event shares its piece with nothing but the finish reason, whose text is empty.
        if b'"text":' in data and (b'"finish_reason":null' in data):
            stream.instants.append(now)

    try:
        exchange = await connection.exchange(
            request_bytes("POST", _PATH, json.dumps(body).encode(), headers=headers), on_piece
        )
        if not exchange.is_ok or not exchange.has_done:
            raise ProcessFailed(f"the engine answered {exchange.status}: {bytes(connection.scanner.body[-300:])!r}")
        stream.num_tokens = _usage(connection.scanner.content)
        stream.ended_at = exchange.ended_at
    finally:
        connection.close()
    if not stream.instants:  # every token was part of a character that never became whole
        stream.instants.append(stream.ended_at)
    return stream


def _usage(stream: bytes) -> int:
    for event in reversed(stream.split(b"\n\n")):
        if event.startswith(b"data: {"):
            usage = json.loads(event[6:]).get("usage")
            if usage:
                return int(usage["completion_tokens"])
    return 0

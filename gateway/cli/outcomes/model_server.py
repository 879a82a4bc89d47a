"""ModelServer: one model behind a server of OpenAI's API, which answers conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import httpx
import msgspec

from gateway.cli.outcomes.prompt_file import OutcomesError, PromptError
from gateway.forwarding.logprob_filter import odds_of
from gateway.upstreams.retry_after import retry_after_s
from routing_policies.quality.confidence import TokenOdds

FIRST_TOKENS: Final = 24
"""Number of tokens of an answer whose odds are recorded: a cascade reads no more."""
MAX_TRIES: Final = 4
MAX_SLOW_TRIES: Final = 2
MAX_WAIT_S: Final = 120.0
"""Longest time that a busy server is given; one that states a longer time fails at once."""
MAX_REPLY_S: Final = 300.0
MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
MAX_ERROR_CHARS: Final = 300
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504, 529})
_BAD_REQUEST: Final = frozenset({400, 422})
_BAD_PROMPT: Final = _BAD_REQUEST | {413}
"""Status of answers to a prompt that is too long, or that the server does not take."""
_REMEDIES: Final = {
    401: " (--key-env names the variable with its key)",
    403: " (--key-env names the variable with its key)",
    404: " (is it the base URL of OpenAI's API, and does the server have the model?)",
}
_THOUGHTS_END: Final = "</think>"
_ABSENT: Final = (httpx.ConnectError, httpx.UnsupportedProtocol)
"""Errors of requests that reached no server, which are not repeated."""
_FRAMING: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
_NO_CACHE: Final = {"cache-control": "no-store"}
"""Header for a gateway: an answer from its cache is not what a model makes of a prompt."""

Wait = Callable[[float], Awaitable[None]]


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a model to one conversation."""

    text: str
    """Text without thoughts."""
    is_cut: bool = False
    """True if the answer ended at the limit of tokens."""
    odds: tuple[TokenOdds, ...] = ()
    """Odds of the first tokens; empty where the server states none."""
    num_tokens: int = 0


class Prices(msgspec.Struct, frozen=True):
    """Cost of a million tokens."""

    prompt: float
    completion: float


class ModelServer:
    """Client of one model; requests that a busy server refuses are repeated a few times."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        url: str,
        name: str,
        served_as: str = "",
        prices: Prices | None = None,
        wait: Wait = asyncio.sleep,
    ) -> None:
        """Create a client.

        Args:
            client: The connections, with the key in their headers.
            url: Base URL, up to and including `/v1`.
            name: Name of the model in outcomes, as a deployment's `model` has it.
            served_as: Name that the server knows the model by, where it is another.
            prices: Cost of its tokens; None where it is unknown.
            wait: Function that lets seconds pass.
        """
        self._client = client
        self._url = url
        self.name = name
        self.prices = prices
        self._served_as = served_as or name
        self._wait = wait
        self.gives_odds = True
        """False once the server refused a request for log probabilities."""

    async def answer(
        self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, wants_odds: bool = False
    ) -> ModelAnswer:
        """Return the answer to a conversation at temperature 0.

        Raises:
            PromptError: The server refuses the prompt.
            OutcomesError: It does not answer.
        """
        body: dict[str, Any] = {
            "model": self._served_as,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        if wants_odds and self.gives_odds:
            reply = await self._post({**body, "logprobs": True, "top_logprobs": 2})
            if reply.status_code not in _BAD_REQUEST:
                return self._read(reply)
            plain = await self._post(body)
            self.gives_odds = plain.status_code != 200  # what is wrong with the request may be wrong in both
            return self._read(plain)
        return self._read(await self._post(body))

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        for number in range(1, MAX_TRIES + 1):
            wait_s = float(2**number)
            try:
                async with asyncio.timeout(MAX_REPLY_S):
                    reply = await self._send(body)
            except (httpx.HTTPError, TimeoutError) as error:
                is_slow = isinstance(error, httpx.TimeoutException | TimeoutError)
                if number == (MAX_SLOW_TRIES if is_slow else MAX_TRIES) or isinstance(error, _ABSENT):
                    raise OutcomesError(f"{self.name} at {self._url}: {error or type(error).__name__}") from error
            else:
                stated_s = retry_after_s([(key.lower(), value) for key, value in reply.headers.raw])
                wait_s = wait_s if stated_s is None else stated_s
                if reply.status_code not in _LATER or number == MAX_TRIES or wait_s > MAX_WAIT_S:
                    return reply
            await self._wait(wait_s)
        raise AssertionError("the last try returns or raises")

    async def _send(self, body: dict[str, Any]) -> httpx.Response:
        """Return the whole reply. Raises httpx.HTTPError, or OutcomesError for an endless one."""
        url = f"{self._url}/chat/completions"
        async with self._client.stream("POST", url, json=body, headers=_NO_CACHE) as reply:
            content = bytearray()
            async for piece in reply.aiter_bytes():
                content += piece
                if len(content) > MAX_REPLY_BYTES:
                    raise OutcomesError(
                        f"{self.name} at {self._url}: an answer has more than {MAX_REPLY_BYTES >> 20} MiB"
                    )
            headers = [(key, value) for key, value in reply.headers.raw if key.lower() not in _FRAMING]
            return httpx.Response(reply.status_code, headers=headers, content=bytes(content))

    def _read(self, reply: httpx.Response) -> ModelAnswer:
        if reply.status_code != 200:
            shown = " ".join(reply.text[:MAX_ERROR_CHARS].split())
            shown = shown or reply.headers.get("location", "nothing more")
            remedy = _REMEDIES.get(reply.status_code, "")
            kind = PromptError if reply.status_code in _BAD_PROMPT else OutcomesError
            raise kind(f"{self.name} at {self._url} answers {reply.status_code}: {shown}{remedy}")
        try:
            found: dict[str, Any] = reply.json()
            choice = found["choices"][0]
            text, reason = choice["message"].get("content") or "", choice.get("finish_reason")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise OutcomesError(f"{self.name} at {self._url}: the answer is no chat completion") from None
        if not isinstance(text, str):
            raise OutcomesError(f"{self.name} at {self._url}: the answer's content is no text")
        odds, _ = odds_of(reply.content, FIRST_TOKENS)
        usage = found.get("usage")
        stated = usage.get("completion_tokens") if isinstance(usage, dict) else None
        num_tokens = stated if isinstance(stated, int) and stated >= 0 else len(odds)
        return ModelAnswer(text=_spoken(text), is_cut=reason == "length", odds=tuple(odds), num_tokens=num_tokens)


def _spoken(text: str) -> str:
    """Return a text without the thoughts that a server leaves in it; thoughts without an end are no answer."""
    if _THOUGHTS_END in text:
        return text.rpartition(_THOUGHTS_END)[2].strip()
    return "" if text.lstrip().startswith("<think>") else text

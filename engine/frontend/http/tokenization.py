"""`POST /tokenize` and `POST /detokenize`: prompts to tokens and back, in the form of vLLM's server."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.frontend.core_client.service import EngineService
from engine.frontend.request.asgi import Headers, read_json_body
from engine.frontend.request.tokenization import parse_detokenize, parse_tokenize


class Tokenization:
    """Handlers that count and convert tokens without a generation."""

    def __init__(self, service: EngineService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """Return the routes of these handlers."""
        return [
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
        ]

    async def tokenize(self, request: Request) -> Response:
        """Return the tokens of a prompt as a completion would compute them. Raises ApiError."""
        wanted = parse_tokenize(await self._body(request), self._service.config)
        if wanted.conversation is not None:
            tokens = await self._service.tokenize_chat(wanted.conversation)
        else:
            tokens = await self._service.tokenize_text(
                wanted.prompt or "", add_special_tokens=wanted.add_special_tokens
            )
        names = [self._service.tokenizer.entry(token) for token in tokens] if wanted.return_token_strs else None
        return _json(
            {
                "count": len(tokens),
                "max_model_len": self._service.max_model_len,
                "tokens": tokens,
                "token_strs": names,
            }
        )

    async def detokenize(self, request: Request) -> Response:
        """Return the text of tokens, special ones included. Raises ApiError."""
        wanted = parse_detokenize(await self._body(request), self._service.config)
        return _json({"prompt": await self._service.detokenize(wanted.tokens)})

    async def _body(self, request: Request) -> bytes:
        return await read_json_body(Headers(request.scope), request.receive, self._service.config.max_body_bytes)


def _json(value: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")

"""The public listener: chat requests go straight to the pipeline, Starlette routes all others."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final

from starlette.routing import Route

from gateway.api.application import starlette_application
from gateway.api.feedback import FEEDBACK_PATH, FeedbackHandlers
from gateway.api.message_tokens import MessageTokens
from gateway.api.models import MODELS_PATH, Models
from gateway.api.tokenization import DETOKENIZE_PATH, TOKENIZE_PATH, TokenizationHandlers
from gateway.dialects.messages.errors import refusal_at
from gateway.http.asgi import ASGIApp, Receive, Scope, Send
from gateway.pipeline import DialectEndpoint
from gateway.quotes.serving.quote_endpoint import QuoteEndpoint
from gateway.telemetry.logs.log import LogWriter
from gateway.timeline import RequestIds

CHAT_PATH: Final = "/v1/chat/completions"


class PublicApplication:
    """The ASGI application of the public listener."""

    def __init__(
        self,
        chat: ASGIApp,
        models: Models,
        feedback: FeedbackHandlers,
        tokenization: TokenizationHandlers,
        *,
        dialects: Sequence[DialectEndpoint | MessageTokens | QuoteEndpoint] = (),
        others: Sequence[Route] = (),
        ids: RequestIds,
        log: LogWriter,
    ) -> None:
        """Create the application.

        Args:
            chat: Chat completions.
            models: Models that a key may call.
            feedback: Feedback on answers.
            tokenization: Text to tokens, and back.
            dialects: Endpoints of other APIs, which refuse in their own words, and that of quotes.
            others: Further routes, such as those of probes.
            ids: Source of request ids.
            log: Log of errors without a handler.
        """
        self._chat = chat
        self._posts: dict[str, ASGIApp] = {CHAT_PATH: chat, **{endpoint.path: endpoint for endpoint in dialects}}
        routes = [
            *(Route(path, application, methods=["POST"]) for path, application in self._posts.items()),
            Route(MODELS_PATH, models.list),
            Route(MODELS_PATH + "/{model:path}", models.one),
            Route(FEEDBACK_PATH, feedback.submit, methods=["POST"]),
            Route(TOKENIZE_PATH, tokenization.tokenize, methods=["POST"]),
            Route(DETOKENIZE_PATH, tokenization.detokenize, methods=["POST"]),
            *others,
        ]
        self._others = starlette_application(routes, ids=ids, log=log, envelope=refusal_at)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        application = self._posts.get(scope.get("path", ""))
        if application is not None and (scope["method"] == "POST" or application is not self._chat):
            return application(scope, receive, send)
        return self._others(scope, receive, send)

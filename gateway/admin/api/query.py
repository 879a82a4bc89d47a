"""Query: the parameters of an admin request's URL, each checked as it is read."""

from __future__ import annotations

from urllib.parse import parse_qsl

from gateway.errors import InvalidRequest
from gateway.http.asgi import Scope

_MAX_FIELDS = 20
_MAX_CHARS = 256


class Query:
    """What followed the question mark. Every reading raises InvalidRequest that names the parameter."""

    def __init__(self, scope: Scope) -> None:
        raw: bytes = scope.get("query_string", b"")
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
        except (ValueError, UnicodeDecodeError):
            raise InvalidRequest("The URL's query cannot be read; write name=value pairs, percent-encoded.") from None
        self._values = {name: value[:_MAX_CHARS] for name, value in pairs if value}

    def text(self, name: str) -> str | None:
        """The value, None when it is not given or empty."""
        return self._values.get(name)

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        """A whole number between the bounds."""
        text = self._values.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise InvalidRequest(f"{name}: expected a whole number from {least} to {most}.", param=name)
        return int(text)

    def choice(self, name: str, default: int, choices: tuple[int, ...]) -> int:
        """One of a few numbers."""
        found = self.integer(name, default, least=0, most=1_000_000)
        if found not in choices:
            raise InvalidRequest(f"{name}: expected one of {', '.join(map(str, choices))}.", param=name)
        return found

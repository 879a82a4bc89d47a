"""Headers of the Messages API in place of the gateway's own, and the reverse."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.http.asgi import Header

REQUEST_ID: Final = b"x-request-id"
_API_KEY: Final = b"x-api-key"
_AUTHORIZATION: Final = b"authorization"
_BETA: Final = b"anthropic-beta"
_LIMIT: Final = b"x-ratelimit-"
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9.]+)(ms|s|m|h)")
MAX_BETA_BYTES: Final = 4096


def with_authorization(headers: Sequence[Header]) -> Sequence[Header]:
    """Return the request's headers with `x-api-key` as a bearer key, unless there is an Authorization header."""
    keys = []
    for name, value in headers:
        if name == _AUTHORIZATION:
            return headers
        if name == _API_KEY:
            keys.append((_AUTHORIZATION, b"Bearer " + value.strip()))
    return [*headers, *keys] if keys else headers


def betas_of(headers: Sequence[Header]) -> list[str]:
    """Return the values of `anthropic-beta`, in order; of very long headers none."""
    values = [value for name, value in headers if name == _BETA]
    joined = b",".join(values)
    if not joined or len(joined) > MAX_BETA_BYTES:
        return []
    return [beta for part in joined.decode("latin-1").split(",") if (beta := part.strip())]


def in_own_names(headers: Sequence[Header], wall: Callable[[], float]) -> list[Header]:
    """Return an answer's headers with the request id and the rate limits in the names of this API."""
    found: list[Header] = []
    for header in headers:
        name = header[0]
        if name == REQUEST_ID:
            found += (header, (b"request-id", header[1]))
        elif name.startswith(_LIMIT):
            found.append(_own_limit(*header, wall))
        else:
            found.append(header)
    return found


def _own_limit(name: bytes, value: bytes, wall: Callable[[], float]) -> Header:
    """Translate `x-ratelimit-reset-tokens: 6m0s` to `anthropic-ratelimit-tokens-reset` with an instant in UTC."""
    kind, _, unit = name.removeprefix(_LIMIT).partition(b"-")
    if kind == b"reset":
        left_s = sum(float(number) * _UNITS_S[word] for number, word in _PART.findall(value.decode("ascii")))
        at = datetime.fromtimestamp(wall(), UTC) + timedelta(seconds=left_s)
        value = at.strftime("%Y-%m-%dT%H:%M:%SZ").encode("ascii")
    return b"anthropic-ratelimit-%b-%b" % (unit, kind), value

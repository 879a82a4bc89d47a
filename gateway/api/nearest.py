"""Nearest endpoint: the one that a client probably means by a path without a route."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

_BASE: Final = "/v1"
_MAX_COMPARED_CHARS: Final = 48
"""Length above which only whole segments are compared: the comparison of characters takes time by their product."""
_LEAST_LIKENESS: Final = 0.7
_MAX_SHOWN_CHARS: Final = 128


def nearest_endpoint(path: str, endpoints: Iterable[str]) -> str | None:
    """Return the endpoint that a path without a route most resembles, or None.

    Clients leave the base `/v1` out, repeat it, or put another one before it; and they misspell.
    """
    tails = {endpoint.removeprefix(_BASE).lower(): endpoint for endpoint in endpoints if "{" not in endpoint}
    segments = [segment for segment in path.lower().split("/") if segment]
    for start in range(len(segments)):
        found = tails.get("/" + "/".join(segments[start:]))
        if found is not None:
            return found
    wanted = "/" + "/".join(segments[1:] if segments[:1] == [_BASE[1:]] else segments)
    if wanted == "/" or len(wanted) > _MAX_COMPARED_CHARS:
        return None
    longer = [endpoint for tail, endpoint in tails.items() if tail.startswith(wanted + "/")]
    if longer:
        return longer[0]
    close = difflib.get_close_matches(wanted, tails, n=1, cutoff=_LEAST_LIKENESS)
    return tails[close[0]] if close else None


def shown_path(path: str) -> str:
    """Return a client's path as it may stand in a message: printable and short."""
    return "".join(character if character.isprintable() else "?" for character in path[:_MAX_SHOWN_CHARS])

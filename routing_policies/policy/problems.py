"""Problems of a policy document, with their positions."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

Path = tuple[str | int, ...]
"""Keys and list indexes from the document's root."""


MAX_SHOWN = 30
"""Number of problems in an error's text; all are in `problems`."""
_MAX_COMPARED = 1000
_MAX_LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PathProblem:
    """A problem located by its path only."""

    path: Path
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem with its position; line and column count from 1."""

    line: int
    column: int
    path: str
    message: str

    def render(self, source: str) -> str:
        """Return the problem as `file:line:column: path: message`."""
        place = f"{source}:{self.line}:{self.column}: "
        return f"{place}{self.path}: {self.message}" if self.path else f"{place}{self.message}"


class PolicyError(ValueError):
    """Error for an invalid document; `problems` lists every reason in document order."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))
        lines = [problem.render(source) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"{source}: and {len(self.problems) - MAX_SHOWN} more")
        super().__init__("\n".join(lines))


def dotted(path: Path) -> str:
    """Return a path such as `("routes", 0, "select")` as `routes[0].select`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


RENAMED_KEYS: Mapping[str, str] = {"judge": "auditor"}
"""Keys of earlier policies and what they are called today."""


def renamed_or_near(key: str, known: Collection[str]) -> str:
    """Return the end of an unknown key's message: its new name if it was renamed, else the nearest known key."""
    now = RENAMED_KEYS.get(key)
    return f'; it is called "{now}" now' if now in known else did_you_mean(key, known)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return `; did you mean "x"?` for the nearest of the allowed words, else the list of them.

    Of very many words only the first ones are compared and listed.
    """
    near = difflib.get_close_matches(word, islice(known, _MAX_COMPARED), n=1, cutoff=0.6)
    if near:
        return f'; did you mean "{near[0]}"?'
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"; known: {', '.join(islice(known, _MAX_LISTED))}{more}" if known else "; there are none"

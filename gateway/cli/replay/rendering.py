"""A replay as lines for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

_VERDICTS: Final = {
    "same": "as it was",
    "no_effect": "changed, same text",
    "changes": "CHANGES THE TEXT",
    "unknown": "cannot be compared",
}


def render_replay(found: Mapping[str, Any]) -> str:
    """Render the response of `POST /admin/api/replay` as text."""
    return "\n".join(_replay(found))


def _replay(found: Mapping[str, Any]) -> Iterator[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["at"]))
    yield f"{found['id']}  recorded {at}"
    yield f"  model {found['model']}, route {found['route']}, policy {found['policy']}"
    seed = "no seed" if found["seed"] is None else f"seed {found['seed']}"
    yield f"  {found['deployment'] or 'the cache'} answered {found['num_bytes']} bytes, cache {found['cache']}, {seed}"
    for name in ("model", "quantization", "template", "engine", "fingerprint"):
        then, now = (found[state].get(name, "") for state in ("state", "state_now"))
        if then or now:
            yield f"    {name:<14} {then or '-'}" + ("" if now == then else f"  now {now or '-'}")
    yield ""
    yield from _difference(found["difference"], "  ")
    for one in found["factors"]:
        yield f"  {one['factor']:<14} {_VERDICTS[one['verdict']]}"
        if one["verdict"] != "same":
            if one["then"] or one["now"]:
                yield f"    {one['then'] or '-'}  now  {one['now'] or '-'}"
            if one["note"]:
                yield f"    {one['note']}"
            yield from _difference(one["difference"], "    ")
    yield found["summary"]


def _difference(difference: Mapping[str, Any] | None, indent: str) -> Iterator[str]:
    if difference is not None:
        yield f"{indent}from byte {difference['at']}:"
        yield f"{indent}  then {difference['then']!r}"
        yield f"{indent}  now  {difference['now']!r}"

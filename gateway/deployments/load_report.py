"""LoadReport: an engine's own report of its load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

ORCA_HEADER: Final = b"endpoint-load-metrics"
_MAX_HEADER_BYTES: Final = 2048
COMPUTING_S: Final = 0.5
"""Seconds of silence below which the engine's core counts as computing."""
MAX_FIGURE: Final = 1e12
"""Largest figure accepted; anything beyond it, or below 0, is no figure."""
WARMING_STATES: Final = frozenset({"starting", "warming"})


Count = Annotated[int, Meta(ge=0, le=10**12)]
Figure = Annotated[float, Meta(ge=0.0, le=MAX_FIGURE)]
AdapterName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?!\n)$")]


class LaneReport(msgspec.Struct, frozen=True, gc=False):
    """Load of one lane of an engine."""

    forecast_wait_s: Figure = 0.0
    """Seconds until the first chunk of a short request that arrives now."""
    prefill_tokens_per_s: Figure = 0.0
    """Prefill rate; 0 when unknown."""
    num_running: Count = 0
    num_waiting: Count = 0


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of `/engine/load` that forecasts use; others are ignored."""

    state: str = "ready"
    num_running: Count = 0
    num_waiting: Count = 0
    max_num_seqs: Count = 0
    """Largest number of rows in a step; 0 when not reported."""
    max_num_batched_tokens: Count = 0
    """Tokens of a step, prompts and rows together; 0 when not reported."""
    waiting_prompt_tokens: Count = 0
    drain_tokens_per_s: Figure = 0.0
    forecast_wait_s: Figure = 0.0
    step_s: Figure = 0.0
    lanes: Mapping[str, LaneReport] = {}
    silent_s: Figure | None = None
    """Seconds since the engine's core last reported, which it does after each step; None when not reported."""
    num_blocks_total: Count = 0
    """Number of KV blocks; 0 when not reported."""
    num_blocks_free: Count = 0
    num_blocks_cached: Count = 0
    adapters: Annotated[tuple[AdapterName, ...], Meta(max_length=256)] = ()
    """Names of the adapters that requests may use."""

    @property
    def is_warming(self) -> bool:
        """True while the engine starts."""
        return self.state in WARMING_STATES

    @property
    def is_computing(self) -> bool:
        """True if the engine surely made a step just now, for any client."""
        return self.num_running > 0 and self.silent_s is not None and self.silent_s < COMPUTING_S


_decode: Final = msgspec.json.Decoder(LoadReport).decode


def parse_event(data: bytes) -> LoadReport | None:
    """Return the report in one event of `/engine/load`, or None when it is malformed."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def parse_orca(value: bytes) -> dict[str, float] | None:
    """Return the metrics in an `endpoint-load-metrics` header (ORCA), or None when it is malformed.

    The text form is `TEXT name=1, named_metrics.other=0.5`; the other form is JSON. Names lose the prefix
    `named_metrics.`.
    """
    if len(value) > _MAX_HEADER_BYTES:
        return None
    kind, _, rest = value.strip().partition(b" ")
    if kind == b"TEXT":
        return _pairs(rest)
    if kind == b"JSON":
        return _flat(rest)
    return None


def _pairs(text: bytes) -> dict[str, float] | None:
    metrics: dict[str, float] = {}
    for item in text.split(b","):
        name, equals, number = item.strip().partition(b"=")
        found = _number(number) if equals else None
        if found is None:
            return None
        metrics[_short(name.decode("latin-1"))] = found
    return metrics


def _flat(text: bytes) -> dict[str, float] | None:
    try:
        document = msgspec.json.decode(text, type=dict[str, Figure | dict[str, Figure]])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    metrics: dict[str, float] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            metrics.update(value)
        else:
            metrics[name] = value
    return metrics


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= MAX_FIGURE else None


def _short(name: str) -> str:
    return name.strip().removeprefix("named_metrics.")

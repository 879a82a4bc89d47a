"""LoadReport: what an engine says about its own load, at the instant it arrived here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

ORCA_HEADER: Final = b"endpoint-load-metrics"
_MAX_HEADER_BYTES: Final = 2048
COMPUTING_S: Final = 0.5
"""A core that said something within this time computes."""
MAX_FIGURE: Final = 1e12
"""No load is larger; what a server says beyond it, or below 0, is no figure."""
WARMING_STATES: Final = frozenset({"starting", "warming"})


Count = Annotated[int, Meta(ge=0, le=10**12)]
Figure = Annotated[float, Meta(ge=0.0, le=MAX_FIGURE)]


class LaneReport(msgspec.Struct, frozen=True, gc=False):
    """One lane of an engine."""

    forecast_wait_s: Figure = 0.0
    """Wait for the first chunk of a short request that arrives now."""
    prefill_tokens_per_s: Figure = 0.0
    """0: not known."""
    num_running: Count = 0
    num_waiting: Count = 0


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `/engine/load` that forecasts use; other fields are ignored."""

    state: str = "ready"
    num_running: Count = 0
    num_waiting: Count = 0
    max_num_seqs: Count = 0
    """0: not said."""
    max_num_batched_tokens: Count = 0
    """Tokens of a step, prompts and rows together; 0: not said."""
    waiting_prompt_tokens: Count = 0
    drain_tokens_per_s: Figure = 0.0
    forecast_wait_s: Figure = 0.0
    step_s: Figure = 0.0
    lanes: Mapping[str, LaneReport] = {}
    silent_s: Figure | None = None
    """Since the engine's core last said anything, which it does after each step; None: not said."""
    num_blocks_total: Count = 0
    """KV blocks; 0: not said."""
    num_blocks_free: Count = 0
    num_blocks_cached: Count = 0

    @property
    def is_warming(self) -> bool:
        """Capacity to come."""
        return self.state in WARMING_STATES

    @property
    def is_computing(self) -> bool:
        """Whether it surely made a step just now, for anybody."""
        return self.num_running > 0 and self.silent_s is not None and self.silent_s < COMPUTING_S


_decode: Final = msgspec.json.Decoder(LoadReport).decode


def parse_event(data: bytes) -> LoadReport | None:
    """One event of `/engine/load`, None when it is not what it should be."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def parse_orca(value: bytes) -> dict[str, float] | None:
    """The header `endpoint-load-metrics` in its text form (`TEXT name=1, named_metrics.other=0.5`) or its JSON form,
    as names without `named_metrics.`; None when it is neither."""
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

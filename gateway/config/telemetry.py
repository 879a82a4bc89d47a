"""Settings of the log, of traces and of recorded requests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.config.checks import ConfigError, require_range
from gateway.telemetry.records.record import OMITTABLE

_MIB: Final = 1024 * 1024

LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """`[telemetry.log]`: the contents of the log."""

    level: LogLevel = "info"
    sample_ratio: float = 1.0
    """Share of the answered requests that get a line in the log; what was refused or failed always does."""
    omit: str = ""
    """Fields left out of a request's line, comma-separated: of client_request_id, detail, model, tenant."""

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        require_range("sample_ratio", self.sample_ratio, 0.0, 1.0)
        if unknown := self.omitted - OMITTABLE:
            named = ", ".join(sorted(OMITTABLE))
            raise ConfigError(f"omit: {', '.join(sorted(unknown))}: cannot be left out; expected some of {named}")

    @property
    def omitted(self) -> frozenset[str]:
        """`omit` as a set."""
        return frozenset(filter(None, (name.strip() for name in self.omit.split(","))))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """`[telemetry.trace]`: spans of requests."""

    otlp_endpoint: str = ""
    """URL that spans are posted to in OTLP's JSON, such as `http://127.0.0.1:4318/v1/traces`; empty: no tracing."""
    sample_ratio: float = 0.1
    """Share of the traced requests among those whose caller sent no `traceparent`; else the caller decides."""

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        require_range("sample_ratio", self.sample_ratio, 0.0, 1.0)
        if self.otlp_endpoint and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", self.otlp_endpoint):
            raise ConfigError("otlp_endpoint: expected a URL such as http://127.0.0.1:4318/v1/traces")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """`[telemetry.recorder]`: requests recorded for `penstock policy plan` and `replay`, in `runtime_dir`/recorded."""

    mode: Literal["off", "features", "text", "answers"] = "off"
    """`features` records sizes, flags and salted digests, `text` also the beginning of each last message.

    `answers` also records whole requests and their whole answers, and sends a seed where the client sent none.
    """
    max_mb: int = 256
    """Size of one machine's recording; the oldest goes first."""
    retention_h: float = 24.0
    """Hours for which a recorded request is stored."""

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        require_range("max_mb", self.max_mb, 1, 100_000)
        if not 0.0 < self.retention_h <= 8_784.0:
            raise ConfigError(f"retention_h: expected more than 0, to 8784, got {self.retention_h:g}")

    @property
    def max_feature_bytes(self) -> int:
        """Return the size of the recording without answers."""
        return self.max_mb * _MIB - self.max_answer_bytes

    @property
    def max_answer_bytes(self) -> int:
        """Return the part of the size that recorded answers have; 0 where none are recorded."""
        return self.max_mb * _MIB * 3 // 4 if self.mode == "answers" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """`[telemetry]`: logs, traces and recordings of requests."""

    log: LogSettings = field(default_factory=LogSettings)
    trace: TraceSettings = field(default_factory=TraceSettings)
    recorder: RecorderSettings = field(default_factory=RecorderSettings)

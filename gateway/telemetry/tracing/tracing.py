"""Tracing: the choice of traced requests, and the thread that exports their spans to a collector."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

from gateway.chat.headers import ChatHead
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.records.trace_context import TraceContext, parse_traceparent
from gateway.telemetry.tracing.otlp import UPSTREAM, export_request, resource_of, spans_of
from gateway.timeline import Clock

CAPACITY: Final = 4096
"""Number of finished requests that may wait for export."""
BATCH: Final = 256
INTERVAL_S: Final = 0.5
TIMEOUT_S: Final = 5.0
_AT_ONCE: Final = 32
"""Number of requests whose spans are built before the thread yields the interpreter."""

End = Literal["exported", "dropped", "failed"]


class Tracing:
    """Tracing of requests: traces begin on the event loop, and a thread exports them; neither blocks the loop."""

    def __init__(
        self,
        collector: str,
        *,
        sample_ratio: float,
        rng: random.Random,
        clock: Clock,
        wall: Clock,
        version: str,
        instance: str,
        count: Callable[[End, int], None],
    ) -> None:
        """Create a stopped exporter.

        Args:
            collector: URL that OTLP's JSON is posted to, path included.
            sample_ratio: Share of requests traced among those without a parent.
            rng: Source of trace and span ids.
            clock: The monotonic clock that timed the records.
            wall: Wall clock, in seconds since 1970.
            version: Version of the gateway.
            instance: Name of this process.
            count: Called by the thread with the end of each traced request.
        """
        self._collector = SpanExporter(urlsplit(collector))
        self._sample_ratio = sample_ratio
        self._rng = rng
        self._clock = clock
        self._wall = wall
        self._count = count
        self._resource = resource_of("penstock-gateway", version, instance)
        self._queue: deque[RequestRecord] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-traces", daemon=True)

    def begin(self, head: ChatHead) -> TraceContext | None:
        """Return the trace of a request, or None when it is not sampled; sets the upstream's `traceparent`.

        A parent's sampling decision holds. Requests without a parent are sampled by `sample_ratio`.
        """
        parent = parse_traceparent(head.traceparent)
        if parent is not None:
            if not parent.is_sampled:
                return None
            context = TraceContext(parent.trace_id, parent.span_id, self._rng.getrandbits(64))
        elif self._rng.random() < self._sample_ratio:
            context = TraceContext(f"{self._rng.getrandbits(128) or 1:032x}", "", self._rng.getrandbits(64))
        else:
            return None
        head.continue_trace(context.traceparent(UPSTREAM))
        return context

    def note(self, record: RequestRecord) -> None:
        """Queue a finished request for export, if it is traced."""
        if record.trace is None:
            return
        if len(self._queue) < CAPACITY:
            self._queue.append(record)
        else:
            self._count("dropped", 1)

    def start(self) -> None:
        """Start the exporting thread."""
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Export the queued requests and stop; gives up after `timeout_s`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            self._send_all()
        self._send_all()
        self._collector.close()

    def _send_all(self) -> None:
        while self._queue:
            spans: list[str] = []
            offset_s = self._wall() - self._clock()
            while self._queue and len(spans) < BATCH:
                record = self._queue.popleft()
                assert record.trace is not None, "only traced requests are queued"
                spans.append(spans_of(record, record.trace, offset_s))
                if len(spans) % _AT_ONCE == 0:
                    time.sleep(0)
            is_taken = self._collector.post(export_request(spans, self._resource))
            self._count("exported" if is_taken else "failed", len(spans))


class SpanExporter:
    """One keep-alive connection to an OTLP/HTTP collector; blocking, for one thread."""

    def __init__(self, url: SplitResult) -> None:
        self._url = url
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes) -> bool:
        """Post one export; return False when the collector does not accept it. Nothing is retried."""
        try:
            connection = self._connection or self._connect()
            connection.request("POST", self._url.path or "/v1/traces", body, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return False
        return response.status < 300

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(self._url.hostname or "", self._url.port, timeout=TIMEOUT_S)
        return self._connection

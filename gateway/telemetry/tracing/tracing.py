"""Tracing: which requests are traced, and the thread that makes their spans and sends them to a collector."""

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
"""Finished requests that may wait to be sent."""
BATCH: Final = 256
INTERVAL_S: Final = 0.5
TIMEOUT_S: Final = 5.0
_AT_ONCE: Final = 32
"""Requests whose spans are made before the interpreter is given to whoever waits for it."""

End = Literal["exported", "dropped", "failed"]


class Tracing:
    """Begins traces on the event loop and hands finished requests to its thread; neither waits for anything."""

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
        """`collector`: where OTLP's JSON is posted, path included. `count` is called by the thread."""
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
        """The trace of a request, None when it is not sampled; the upstream is told by `traceparent`.

        Whoever called decides for the traces it begun; of the others `sample_ratio` are taken.
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
        """A request is over."""
        if record.trace is None:
            return
        if len(self._queue) < CAPACITY:
            self._queue.append(record)
        else:
            self._count("dropped", 1)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Send what waits and stop; gives up after `timeout_s`."""
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
    """One keep-alive connection to an OTLP/HTTP collector; blocking, of one thread."""

    def __init__(self, url: SplitResult) -> None:
        self._url = url
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes) -> bool:
        """Whether the collector took it. What it did not take is not sent again: traces are not worth a backlog."""
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
        """Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(self._url.hostname or "", self._url.port, timeout=TIMEOUT_S)
        return self._connection

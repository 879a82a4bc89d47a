"""A scripted OTLP/HTTP collector: decodes posts by the protocol's own schema and answers as scripted."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def _as_bytes_of_hex(document: str) -> str:
    """OTLP writes ids in hex where protobuf's JSON form has base64: turned into what the parser takes."""
    decoded = json.loads(document)
    for resource in decoded["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return json.dumps(decoded)


class OtlpCollector:
    """Listens on a free port of 127.0.0.1; use as a context manager."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[dict[str, Any]] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                collector.take(body)
                self.send_response(collector.status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:
                """Be silent."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """A sender that left is none of ours; what was posted and is no OTLP shows as spans that never come."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def take(self, body: str) -> None:
        """One export; fails the request when it is not OTLP."""
        request = Parse(_as_bytes_of_hex(body), ExportTraceServiceRequest())
        for resource in request.resource_spans:
            self.services |= {
                item.value.string_value for item in resource.resource.attributes if item.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += [_plain(span) for span in scope.spans]

    def wait_for(self, num_spans: int, timeout_s: float = 30.0) -> list[dict[str, Any]]:
        """At least so many spans; raises AssertionError when they do not come."""
        deadline = time.monotonic() + timeout_s
        while len(self.spans) < num_spans:
            assert time.monotonic() < deadline, f"{len(self.spans)} of {num_spans} spans came"
            time.sleep(0.02)
        return self.spans

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _plain(span: Any) -> dict[str, Any]:
    def value(item: Any) -> Any:
        return getattr(item.value, item.value.WhichOneof("value"))

    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "status": span.status.code,
        "attributes": {item.key: value(item) for item in span.attributes},
        "events": [event.name for event in span.events],
    }

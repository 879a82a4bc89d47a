"""A closed loop as a process of its own, so that it can have a core of its own: prints one JSON line."""

from __future__ import annotations

import argparse
import json
import sys

import uvloop

from loadtests.clients.closed_loop import run_closed_loop
from loadtests.clients.http_client import Address, request_bytes
from loadtests.harness.measures import Latencies
from loadtests.harness.stack import chat_body

_PROMPT_CHARS = 320


async def run_loop(port: int, num_connections: int, seconds: float) -> dict[str, object]:
    """Return what a number of seconds of the loop took."""
    request = request_bytes("POST", "/v1/chat/completions", chat_body("scripted", "x" * _PROMPT_CHARS))
    result = await run_closed_loop(Address(port=port), request, num_connections=num_connections, seconds=seconds)
    return {
        "requests_per_s": result.requests_per_s,
        "num": len(result.latencies_s),
        "num_failed": result.num_failed,
        "first_failure": result.first_failure,
        "p99_ms": Latencies.of(result.latencies_s).p99_ms,
    }


def main() -> None:
    """Run one loop; a line on standard input starts it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    print(json.dumps({"event": "ready"}), flush=True)
    sys.stdin.readline()
    print(json.dumps(uvloop.run(run_loop(options.port, options.connections, options.seconds))), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

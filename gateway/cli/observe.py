"""`penstock diagnose`, `explain`, `replay`, `top` and `capacity`: what is going on, and what it would take."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

from gateway.cli.admin_client import AdminClient, add_connection, open_client
from gateway.cli.commands import CommandError, UsageError
from gateway.cli.supervisor.console import cells, plain

_HOME: Final = "\x1b[H\x1b[J"
_LATEST: Final = 20
_REPLAY_TIMEOUT_S: Final = 1800.0
"""Timeout of a replay: a search sends up to eight requests, one after another."""


def add_diagnose(commands_of: Any) -> None:
    """Add the command `penstock diagnose`."""
    parser = commands_of.add_parser("diagnose", help="show the slow stage, why, and which line to change")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long to watch, 0.2 to 60 (default %(default)g)"
    )
    add_connection(parser)
    parser.set_defaults(command=show_diagnosis)


def add_explain(commands_of: Any) -> None:
    """Add the command `penstock explain`."""
    parser = commands_of.add_parser("explain", help="one request stage by stage, or what would become of one")
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("request_id", nargs="?", metavar="REQUEST_ID", help="as in x-request-id, or the client's own")
    actions.add_argument("--request", type=Path, metavar="FILE", help="a chat request's body; - is stdin")
    parser.add_argument("--tenant", metavar="ID", help="who would send it (with --request)")
    add_connection(parser)
    parser.set_defaults(command=show_request)


def add_replay(commands_of: Any) -> None:
    """Add the command `penstock replay`."""
    parser = commands_of.add_parser("replay", help="give a recorded answer again; 1 when the text is not the same")
    parser.add_argument("request_id", metavar="REQUEST_ID", help="as in x-request-id")
    parser.add_argument("--bisect", action="store_true", help="name the change since then that changes the text")
    parser.add_argument(
        "--prompt",
        type=Path,
        metavar="FILE",
        help="with --bisect: another prompt, as a system prompt's text or a chat request's body",
    )
    parser.add_argument(
        "--records", type=Path, metavar="PATH", help="a folder or file of recorded answers (default: the gateway's own)"
    )
    add_connection(parser)
    parser.set_defaults(command=replay_answer)


def add_top(commands_of: Any) -> None:
    """Add the command `penstock top`."""
    parser = commands_of.add_parser("top", help="lanes, deployments and latencies, live; once without a terminal")
    parser.add_argument("--interval-s", type=float, default=1.0, metavar="S", help="default %(default)g")
    parser.add_argument("--window-s", type=int, default=300, metavar="S", help="60, 300, 900 or 3600 (default 300)")
    parser.add_argument("--once", action="store_true", help="print one screen and end")
    add_connection(parser)
    parser.set_defaults(command=top)


def add_capacity(commands_of: Any) -> None:
    """Add the command `penstock capacity`."""
    parser = commands_of.add_parser("capacity", help="replicas, memory and hours of GPUs or cores for a peak")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--engine",
        metavar="NAME",
        help="a running engine: small or large of penstock up, http://host:port or unix:/path (default: the only one)",
    )
    source.add_argument("--load", type=Path, metavar="FILE", help="one event of its /engine/load, saved as JSON")
    source.add_argument("--steps", type=Path, metavar="FILE", help="JSON of penstock engine steps; see the next four")
    parser.add_argument("--prefill-token-us", type=float, metavar="US", help="with --steps: for each prompt token")
    for name in ("max-num-seqs", "step-tokens", "kv-tokens"):
        parser.add_argument(f"--{name}", type=int, metavar="N", help="with --steps")
    parser.add_argument("--rps", type=float, required=True, metavar="N", help="requests a second at the peak")
    parser.add_argument("--prompt-tokens", type=int, required=True, metavar="N", help="of a request")
    parser.add_argument("--output-tokens", type=int, required=True, metavar="N", help="of an answer")
    parser.add_argument("--prefix-hits", type=_ratio, default=0.0, metavar="R", help="share of prompt tokens held")
    parser.add_argument("--cache-hits", type=_ratio, default=0.0, metavar="R", help="share of requests not sent on")
    parser.add_argument("--mean-ratio", type=_ratio, default=0.5, metavar="R", help="mean load over peak (%(default)s)")
    parser.add_argument("--ttft-p95-ms", type=float, metavar="MS", help="target; default none")
    parser.add_argument("--tpot-ms", type=float, metavar="MS", help="target; default none")
    parser.add_argument("--headroom", type=_ratio, default=0.3, metavar="R", help="reserved at the peak (%(default)s)")
    counted = parser.add_mutually_exclusive_group()
    counted.add_argument("--gpus-per-replica", type=float, metavar="N", help="default 1 for an engine on a GPU")
    counted.add_argument("--cores-per-replica", type=float, metavar="N", help="default: the threads of a CPU engine")
    parser.add_argument("--kv-bytes-per-token", type=float, metavar="N", help="to give memory in bytes")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings (default: penstock.toml if it exists)")
    parser.add_argument("--runtime-dir", type=Path, metavar="DIR", help="of penstock up (default: ./run)")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.set_defaults(command=_capacity)


def show_diagnosis(options: argparse.Namespace) -> int:
    """Measure for some seconds and print what is slow; return 1 when anything is."""
    if not 0.2 <= options.seconds <= 60.0:
        raise UsageError(f"--seconds: expected 0.2 to 60, got {options.seconds:g}")
    from gateway.diagnosis.render import render_diagnosis

    with open_client(options) as client:
        found = client.get(f"diagnosis?seconds={options.seconds:g}")
    print(json.dumps(found) if options.json else render_diagnosis(found))
    return 1 if found["findings"] else 0


def show_request(options: argparse.Namespace) -> int:
    """Print a finished request by its id, or a preview of one."""
    from gateway.cli.explain import render_preview, render_request

    if options.request is None:
        if options.tenant is not None:
            raise UsageError("--tenant: belongs to --request; a finished request has its own")
        from urllib.parse import quote

        with open_client(options) as client:
            found = client.get(f"requests/{quote(options.request_id, safe='')}")["request"]
        print(json.dumps(found) if options.json else render_request(cells(found)))
        return 0
    with open_client(options) as client:  # before stdin is read: the flags may be wrong
        document = {"request": _read_request(options.request)}
        if options.tenant is not None:
            document["tenant"] = options.tenant
        found = client.call("POST", "explain", document)
    print(json.dumps(found) if options.json else render_preview(cells(found)))
    return 0


def replay_answer(options: argparse.Namespace) -> int:
    """Print the replay of one request; return 0 when the text has the same bytes and no change changes it."""
    from gateway.cli.replay.rendering import render_replay

    order: dict[str, Any] = {"bisect": options.bisect or options.prompt is not None}
    if options.prompt is not None:
        order["prompt"] = _read_prompt(options.prompt)
    if options.records is None:
        order["id"] = options.request_id
    else:
        order |= _records(options.records, options.request_id)
    with open_client(options) as client:
        found = client.call("POST", "replay", order, timeout_s=_REPLAY_TIMEOUT_S)["replay"]
    print(json.dumps(found) if options.json else plain(render_replay(found)))
    return 0 if found["is_equal"] and found["first"] is None else 1


def _records(path: Path, request_id: str) -> dict[str, Any]:
    """Return the record of a request in files, and that of the request that made its cached response."""
    import msgspec

    from gateway.telemetry.records.answer_log import find_answer

    try:
        record = find_answer(path, request_id)
        if record is None:
            raise CommandError(
                f"{path}: there is no record of {request_id}; name a folder or file with recorded answers"
            )
        origin = find_answer(path, record.cache_entry) if record.is_cached and record.cache_entry else None
    except OSError as error:
        raise CommandError(f"{path}: cannot be read ({error.strerror})") from error
    found = {"record": record} if origin is None else {"record": record, "origin": origin}
    return {name: msgspec.to_builtins(one) for name, one in found.items()}


def _read_prompt(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise CommandError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not UTF-8; it should be a system prompt or the body of a chat request") from error


def top(options: argparse.Namespace) -> int:
    """Until interrupted on a terminal; one screen elsewhere."""
    if not 0 < options.interval_s < math.inf:
        raise UsageError(f"--interval-s: expected a positive number, got {options.interval_s:g}")
    from gateway.telemetry.window import WINDOWS_S

    if options.window_s not in WINDOWS_S:
        raise UsageError(f"--window-s: expected one of {', '.join(map(str, WINDOWS_S))}, got {options.window_s}")
    with open_client(options) as client:
        if options.once or options.json or not sys.stdout.isatty():
            found = _look(client, options.window_s)
            print(json.dumps(found) if options.json else _screen(found, is_colored=False, height=10_000))
            return 0
        while True:
            found = _look(client, options.window_s)
            size = shutil.get_terminal_size()
            is_colored = "NO_COLOR" not in os.environ
            sys.stdout.write(_HOME + _screen(found, is_colored=is_colored, height=size.lines - 1, width=size.columns))
            sys.stdout.flush()
            time.sleep(options.interval_s)


def _look(client: AdminClient, window_s: int) -> dict[str, Any]:
    return {
        "overview": client.get(f"overview?window={window_s}"),
        "requests": client.get(f"requests?limit={_LATEST}")["requests"],
    }


def _screen(found: dict[str, Any], *, is_colored: bool, height: int, width: int = 200) -> str:
    from gateway.cli.top import render_top

    return render_top(found["overview"], found["requests"], width=width, height=height, is_colored=is_colored)


def _read_request(path: Path) -> Any:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return json.loads(text)
    except OSError as error:
        raise CommandError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise CommandError(f"{path}: not JSON ({error}); it should be the body of a chat request") from error


def _capacity(options: argparse.Namespace) -> int:
    from gateway.cli.capacity_command import capacity

    return capacity(options)


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"expected 0 to 1, got {text}")
    return value

"""Tiny programs that stand in for engines and gateway; each is a script run by this Python."""

from __future__ import annotations

import sys
from pathlib import Path

from gateway.cli.supervisor.child import ChildSpec

_HEAD = """\
import http.server, json, os, signal, socketserver, sys, threading, time

def note(text):
    with open({log!r}, "a") as log:
        log.write(text + "\\n")
"""

SERVER = """\
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"phases": [{{"name": "weights", "seconds": 0.25}}], "pid": os.getpid()}}).encode()
        self.send_response(200 if time.monotonic() >= ready_at else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self):
        return "local"
    def log_message(self, *args):
        pass

def stop(*args):
    note({name!r} + " stopped")
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
ready_at = time.monotonic() + {delay_s}
server = socketserver.UnixStreamServer({socket!r}, Answer)
note({name!r} + " started")
print({name!r}, "listens", flush=True)
server.serve_forever()
"""


def script(folder: Path, name: str, body: str, *, stop_timeout_s: float = 5.0) -> ChildSpec:
    """A child that runs `body`; its `note(text)` adds a line to `folder/log`."""
    path = folder / f"{name}.py"
    path.write_text(_HEAD.format(log=str(folder / "log")) + body)
    return ChildSpec(name=name, argv=(sys.executable, "-S", "-E", str(path)), stop_timeout_s=stop_timeout_s)


def server(folder: Path, name: str, *, delay_s: float = 0.0) -> tuple[ChildSpec, Path]:
    """A child that answers 503, and 200 after `delay_s`, on a Unix socket; SIGTERM ends it."""
    socket_path = folder / f"{name}.sock"
    body = SERVER.format(name=name, socket=str(socket_path), delay_s=delay_s)
    return script(folder, name, body), socket_path


def notes(folder: Path) -> list[str]:
    """What the children noted so far."""
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []

"""Child: one process, started in a group of its own, its lines named, started again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.util.doubling_pauses import DoublingPauses

EXIT_SETTINGS = 2
"""Exit status of our programs for a wrong setting: a restart cannot help."""
MAX_LINE_BYTES = 16 * 1024
_PR_SET_PDEATHSIG = 1

Report = Callable[[str, str], None]
"""Callback with a name and a line of text."""


class ChildGaveUp(RuntimeError):
    """A child ended in a way that a restart cannot repair; `code` is its exit code."""

    def __init__(self, name: str, code: int) -> None:
        self.name = name
        self.code = code
        super().__init__(f"{name} ended with code {code}; its last lines give the reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """The command and environment of one child.

    `env` is added to the parent's environment; `stop_timeout_s` is the time between SIGTERM and SIGKILL.
    """

    name: str
    argv: tuple[str, ...]
    stop_timeout_s: float
    env: Mapping[str, str] | None = field(default=None, repr=False)
    descriptors: tuple[int, ...] = ()
    """Open files, such as listening sockets, that every life of the child inherits under the same numbers."""
    is_piped: bool = True
    """True if its lines go to the supervisor, which names them; else they go where the supervisor's own go."""


class BackOff:
    """Pauses before restarts: doubling, and from the start again after a long enough life. Times are passed in."""

    def __init__(self, *, first_s: float = 0.5, longest_s: float = 30.0, healthy_s: float = 60.0) -> None:
        self._pauses = DoublingPauses(first_s, longest_s)
        self._healthy_s = healthy_s

    def pause_s(self, lived_s: float) -> float:
        """Compute the pause before the restart of a child that lived `lived_s`."""
        if lived_s >= self._healthy_s:
            self._pauses.reset()
        return self._pauses.failed()


class Child:
    """Runs a spec from `run` until `stop`. SIGTERM goes to the child, which stops its own; SIGKILL to its group."""

    def __init__(
        self,
        spec: ChildSpec,
        *,
        report: Report,
        backoff: BackOff,
        clock: Callable[[], float] = time.monotonic,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a child; `on_end` is called at the end of each of its lives, before the next one."""
        self._on_end = on_end
        self.spec = spec
        self.num_starts = 0
        self.was_healthy = False
        """True if it was healthy once: settings that turn bad later can be repaired, so restarts go on."""
        self._report = report
        self._backoff = backoff
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Keep the child running until `stop`. Raises ChildGaveUp; leaves no process behind, also when cancelled."""
        try:
            while not self._stopping.is_set():
                started_at = self._clock()
                code = await self._live()
                self._on_end()
                if self._stopping.is_set():
                    return
                if code == EXIT_SETTINGS and not self.was_healthy:
                    raise ChildGaveUp(self.spec.name, code)
                pause_s = self._backoff.pause_s(self._clock() - started_at)
                why = ", its settings are wrong now" if code == EXIT_SETTINGS else ""
                self._report(self.spec.name, f"{describe_exit(code)}{why}; starting again in {pause_s:g} s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause_s)
        finally:
            self._signal_group(signal.SIGKILL)
            self._ended.set()

    async def stop(self) -> None:
        """Signal the child to end, wait as long as its spec allows, then end it and whatever it started."""
        self._stopping.set()
        self._send(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._ended.wait(), self.spec.stop_timeout_s)
        except TimeoutError:
            self._report(self.spec.name, f"still running after {self.spec.stop_timeout_s:g} s; killing it")
            self.kill()
            await self._ended.wait()

    def kill(self) -> None:
        """End the child and whatever it started, now."""
        self._stopping.set()
        self._signal_group(signal.SIGKILL)

    def reload(self) -> None:
        """Send SIGHUP to the child, which ignores it until it has a use for it."""
        self._send(signal.SIGHUP)

    async def _live(self) -> int:
        """Run the child once and return its exit code, negative for a signal."""
        process = self._process = await asyncio.create_subprocess_exec(
            *self.spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if self.spec.is_piped else None,
            stderr=asyncio.subprocess.STDOUT if self.spec.is_piped else None,
            env={**os.environ, **(self.spec.env or {})},
            pass_fds=self.spec.descriptors,
            process_group=0,
            preexec_fn=_prepare(),
        )
        self.num_starts += 1
        if self._stopping.is_set():
            self._send(signal.SIGTERM)
        pump = asyncio.create_task(self._pump(process))
        try:
            code = await process.wait()
            # What the child started may hold the pipe open; the group goes first, so that the pump ends.
            self._signal_group(signal.SIGKILL)
            self._process = None  # its number may belong to another process from now on
            await pump
        finally:
            pump.cancel()
        return code

    async def _pump(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:  # it writes where this process does
            return
        rest = b""
        while chunk := await process.stdout.read(MAX_LINE_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._report(self.spec.name, line.decode(errors="replace"))
            if len(rest) >= MAX_LINE_BYTES:
                self._report(self.spec.name, rest.decode(errors="replace"))
                rest = b""
        if rest:
            self._report(self.spec.name, rest.decode(errors="replace"))

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                # Not Popen's send_signal: it reaps a child that just ended, which asyncio's watcher then misses.
                os.kill(self._process.pid, number)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


def describe_exit(code: int) -> str:
    """Describe an exit code in words."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _prepare() -> Callable[[], None] | None:
    """Let the kernel end the child when its supervisor is killed, and let no early SIGHUP end it.

    This runs in the child before its program, on Linux only.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def request_stop() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the request was in place
            os._exit(1)

    return request_stop

"""The processes under test: started, pinned to cores, measured through /proc, stopped."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from loadtests.harness import process_usage

_ROOT = Path(__file__).resolve().parents[2]


class ProcessFailed(RuntimeError):
    """A process under test ended, or never became ready; the message has the end of its output."""


class Process:
    """One child process and its output, stored in a file."""

    def __init__(
        self, name: str, argv: Sequence[str], folder: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.name = name
        self.output = folder / f"{name}.log"
        self._argv = list(argv)
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the started process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self, cores: set[int] | None = None) -> None:
        """Start it, bound to `cores`."""
        with self.output.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                cwd=_ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
                start_new_session=True,
            )
        if cores:
            os.sched_setaffinity(self._process.pid, cores)

    def write_line(self, text: str) -> None:
        """Send one line to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")

    def pause(self) -> None:
        """Take the processor away from it and its children, until `resume`."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it and its children run."""
        os.killpg(self.pid, signal.SIGCONT)

    async def stop(self, timeout_s: float = 10.0) -> None:
        """Call it to end, then insist. Idempotent."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self.resume()
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            # Its own children (an engine's core) are in its session and must not survive it.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def kill(self) -> None:
        """End it without a word, and its children."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def wait_until(self, is_ready: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
        """Returns once `is_ready` reports it. Raises ProcessFailed when the process ends first, or at the limit."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                if await is_ready():
                    return
            except OSError:
                pass  # it does not listen yet
            if not self.is_running:
                raise ProcessFailed(f"{self.name} ended while starting:\n{self.tail()}")
            if asyncio.get_running_loop().time() > deadline:
                raise ProcessFailed(f"{self.name} was not ready within {timeout_s:g} s:\n{self.tail()}")
            await asyncio.sleep(0.02)

    def tail(self, num_bytes: int = 2000) -> str:
        """The end of what it printed."""
        return self.output.read_bytes()[-num_bytes:].decode("utf-8", "replace") if self.output.exists() else ""

    def json_lines(self) -> list[dict[str, object]]:
        """What it printed as JSON objects, line by line."""
        lines = self.output.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def cpu_s(self) -> float:
        """Processor time it has used, user and system, all threads."""
        return process_usage.cpu_s(self.pid)

    def rss_bytes(self) -> int:
        """Memory resident now."""
        return process_usage.rss_bytes(self.pid)

    def num_fds(self) -> int:
        """Open file descriptors."""
        return process_usage.num_fds(self.pid)


class Workbench:
    """A folder for one run and the processes in it; leaving stops them, last started first."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pstk")  # short: Unix socket paths live in it
        self.folder = Path(self._folder.name)
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            await process.stop()
        self._folder.cleanup()

    async def start(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        cores: set[int] | None = None,
        *,
        python: str = sys.executable,
    ) -> Process:
        """Start one more process, under this Python or another one."""
        return await self.start_program(name, [python, "-m", module, *arguments], cores)

    async def start_program(
        self,
        name: str,
        argv: Sequence[str],
        cores: set[int] | None = None,
        *,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Process:
        """Start any program, with further variables in its environment."""
        process = Process(name, argv, self.folder, environment)
        self._processes.append(process)
        await process.start(cores)
        return process


def split_cores() -> tuple[set[int] | None, set[int] | None]:
    """(the gateway's core, everyone else's); (None, None) when there is only one to share."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return None, None
    return {cores[0]}, set(cores[1:])


def raise_fd_limit() -> None:
    """Allow as many open files as the system lets this process (and its children) have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

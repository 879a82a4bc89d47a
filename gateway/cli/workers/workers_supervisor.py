"""WorkersSupervisor: starts the control process and the workers, hands them connections, restarts and stops them.

It reads no request and holds no policy, so that nothing a client sends can end it.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping

from gateway.cli.supervisor.child import Child, ChildGaveUp, Report
from gateway.cli.workers.plan import WorkersPlan
from gateway.machine.acceptor import Acceptor
from gateway.machine.handover import READY
from gateway.machine.process import CONTROL
from gateway.util.time_limit import sleep_running


class WorkersSupervisor:
    """Runs one plan. `run` returns when `stop` was called and everything has ended, or when a process gave up."""

    def __init__(
        self,
        plan: WorkersPlan,
        children: Mapping[int, Child],
        acceptor: Acceptor,
        *,
        report: Report,
        on_started: Callable[[], None],
    ) -> None:
        """Prepare the processes.

        Args:
            plan: The processes, and what they share.
            children: Every process by its column; the control process has column 0.
            acceptor: Acceptor of the public connections.
            report: Gets lines about processes.
            on_started: Called once, when every process is ready.
        """
        self._plan = plan
        self._children = children
        self._acceptor = acceptor
        self._report = report
        self._on_started = on_started
        self._ready: set[int] = set()
        self._stopping = asyncio.Event()
        self._has_started = False

    def stop(self) -> None:
        """Drain all workers together, then stop."""
        self._stopping.set()

    def reload(self) -> None:
        """Let every process read the policy and the certificates again."""
        for child in self._children.values():
            child.reload()

    def note_ready(self, column: int) -> None:
        """Note that a process serves."""
        self._ready.add(column)
        self._children[column].was_healthy = True
        if len(self._ready) == len(self._children) and not self._has_started:
            self._has_started = True
            self._on_started()

    def note_end(self, column: int) -> None:
        """Void what an ended process counted, and let the others use its permits and its connections in the queue."""
        self._ready.discard(column)
        self._plan.counts.clear(column)
        if column != CONTROL:
            self._acceptor.lost(column)
        self._plan.wake_all()

    async def run(self) -> int:
        """Run all processes; return 0 after `stop`, else the exit code of the one that gave up."""
        self._acceptor.start()
        stopping = asyncio.create_task(self._stopping.wait())
        starting = asyncio.create_task(self._allow_workers())
        runs = {column: self._start(column) for column in self._children}
        try:
            await asyncio.wait([stopping, *runs.values()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            starting.cancel()
            await self._stop_in_order()
            results = await asyncio.gather(*runs.values(), return_exceptions=True)
        return self._exit_code(results)

    def _start(self, column: int) -> asyncio.Task[None]:
        child = self._children[column]
        return asyncio.create_task(child.run(), name=child.spec.name)

    async def _allow_workers(self) -> None:
        """Let the workers start once the first control process is ready, with the store and the policy in place."""
        channel = self._plan.channels[CONTROL].own
        while await asyncio.get_running_loop().sock_recv(channel, len(READY)) != READY:
            pass
        self.note_ready(CONTROL)
        self._acceptor.allow()

    async def _stop_in_order(self) -> None:
        """Stop the workers, who finish what is under way, then the control process, which they need until then.

        The control process learns of the end at once, so that its probes report it.
        """
        workers = asyncio.gather(*(child.stop() for column, child in self._children.items() if column != CONTROL))
        control = asyncio.create_task(self._children[CONTROL].stop())
        if self._stopping.is_set():
            await sleep_running(self._plan.notice_s)
        self._acceptor.stop()
        await workers
        self._plan.channels[CONTROL].own.shutdown(socket.SHUT_WR)
        await control

    def _exit_code(self, results: list[BaseException | None]) -> int:
        for result in results:
            if isinstance(result, ChildGaveUp):
                self._report("penstock", str(result))
                return result.code or 1
            if result is not None:
                raise result
        return 0


async def supervise_workers(supervisor: WorkersSupervisor) -> int:
    """Run it until SIGTERM or SIGINT; SIGHUP lets all processes read the policy again."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
    return await supervisor.run()

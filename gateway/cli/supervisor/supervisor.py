"""Supervisor: `penstock up` — starts the engines and the gateway, prints a first request, stops them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from gateway.cli.supervisor.child import Child, ChildGaveUp
from gateway.cli.supervisor.console import Console
from gateway.cli.supervisor.first_request import FirstRun, first_request
from gateway.cli.supervisor.launch import EngineLaunch, LaunchPlan
from gateway.cli.supervisor.login_link import login_line
from gateway.cli.supervisor.probe import ProbeResult, base_url_of

POLL_S = 0.2
STILL_WAITING_S = 15.0
SECOND_SIGNAL_S = 1.0
"""Time in which a second stop counts as the first: `timeout` or `make` may deliver one signal twice at once."""

Probe = Callable[[str, str], Awaitable[ProbeResult | None]]
"""GET of a path at an address; None when no answer comes."""


class Supervisor:
    """Runs one plan. `run` returns when `stop` was called and everything has ended, or when a child gave up."""

    def __init__(
        self,
        plan: LaunchPlan,
        engines: Sequence[Child],
        gateway: Child,
        *,
        console: Console,
        probe: Probe,
        first_run: FirstRun,
        clock: Callable[[], float],
        poll_s: float = POLL_S,
    ) -> None:
        """Prepare the children; `engines` are those of the plan's engines, in its order."""
        self._plan = plan
        self._public, self._admin = plan.public.shown, plan.admin.shown
        self._console = console
        self._probe = probe
        self._first_run = first_run
        self._clock = clock
        self._poll_s = poll_s
        self._engines = engines
        self._gateway = gateway
        self._engine_ready = {engine.child.name: asyncio.Event() for engine in plan.engines}
        self._stop_requested = asyncio.Event()
        self._requested_at: float | None = None

    def stop(self) -> None:
        """Stop in order; a second call some time later stops at once."""
        if self._requested_at is None:
            self._requested_at = self._clock()
            self._stop_requested.set()
        elif self._clock() - self._requested_at >= SECOND_SIGNAL_S:
            self._console.print_line("second signal: stopping at once, requests in flight are cut off")
            for child in (self._gateway, *self._engines):
                child.kill()

    def reload(self) -> None:
        """Let the gateway read its policy again, if it runs."""
        self._gateway.reload()

    async def run(self) -> int:
        """Run all children; return 0 after `stop`, else the exit code of the child that gave up."""
        started_at = self._clock()
        runs = [asyncio.create_task(child.run(), name=child.spec.name) for child in (*self._engines, self._gateway)]
        watches = [
            asyncio.create_task(self._watch_engine(engine, child, started_at))
            for engine, child in zip(self._plan.engines, self._engines, strict=True)
        ]
        watches.append(asyncio.create_task(self._watch_gateway(started_at)))
        stopping = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait([stopping, *runs], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stopping, *watches):
                task.cancel()
            await self._stop_in_order()
            results = await asyncio.gather(*runs, return_exceptions=True)
        return self._exit_code(results)

    async def _stop_in_order(self) -> None:
        # The gateway first: it finishes what is under way, for which it needs the engines. Once it listens no more,
        # nothing does: connections that nothing will answer are refused.
        if self._stop_requested.is_set():
            self._console.print_line("stopping: the gateway finishes what is under way, then the engines end")
        self._plan.stop_listening()
        await self._gateway.stop()
        await asyncio.gather(*(child.stop() for child in self._engines))

    def _exit_code(self, results: list[BaseException | None]) -> int:
        for result in results:
            if isinstance(result, ChildGaveUp):
                self._console.print_line(str(result))
                return result.code or 1
            if result is not None:
                raise result
        self._console.print_line("stopped")
        return 0

    async def _watch_engine(self, engine: EngineLaunch, child: Child, started_at: float) -> None:
        """Report once for each start of the engine that it is ready, with the durations of its phases."""
        address, announced = f"unix:{engine.socket_path}", 0
        note_at = self._clock() + STILL_WAITING_S
        while True:
            answer = await self._probe(address, "/startupz") if child.num_starts > announced else None
            if answer is not None and answer.status == 200:
                announced = child.num_starts
                child.was_healthy = True
                self._engine_ready[engine.child.name].set()
                spent = f"after {self._clock() - started_at:.1f} s" if announced == 1 else "again"
                self._console.line(engine.child.name, f"ready {spent}{_phases(answer)}")
            elif announced == 0 and self._clock() >= note_at:
                note_at = self._clock() + STILL_WAITING_S
                waited = self._clock() - started_at
                self._console.line(engine.child.name, f"still starting after {waited:.0f} s{_phases(answer)}")
            await asyncio.sleep(self._poll_s)

    async def _watch_gateway(self, started_at: float) -> None:
        """Show the first request, once every engine started here is ready and the gateway reaches it."""
        note_at = self._clock() + STILL_WAITING_S
        while missing := self._missing(await self._probe_gateway()):
            if self._clock() >= note_at:
                note_at = self._clock() + STILL_WAITING_S
                self._console.print_line(f"waiting for {missing}")
            await asyncio.sleep(self._poll_s)
        token = self._plan.admin_token
        sign_in = None if token is None else await login_line(self._plan.admin, token)
        self._console.print_line(
            f"ready after {self._clock() - started_at:.1f} s; admin on {self._admin}; Ctrl-C stops"
        )
        if not self._admin.startswith("unix:"):
            page = base_url_of(self._admin, is_tls=self._plan.admin.tls_cert is not None)
            self._console.print_line(f"admin page: {page}/admin/")
        if sign_in is not None:
            self._console.print_line(sign_in)
        is_tls = self._plan.public.tls_cert is not None
        self._console.block(first_request(self._public, self._first_run, is_tls=is_tls))

    async def _probe_gateway(self) -> ProbeResult | None:
        answer = await self._probe(self._public, "/readyz")
        if answer is not None:  # whatever it reports of the engines, its settings were good enough to start
            self._gateway.was_healthy = True
        return answer

    def _missing(self, answer: ProbeResult | None) -> str | None:
        """Describe what is not ready yet, given the gateway's `/readyz`.

        None when requests reach every engine that was started here.
        """
        place = f"the gateway on {self._public}"
        if answer is None:
            return f"{place}: no answer yet"
        starting = [name for name, ready in self._engine_ready.items() if not ready.is_set()]
        if answer.status != 200:
            return f"{place}: no deployment is ready yet" + (f"; starting: {', '.join(starting)}" if starting else "")
        if starting:
            others = "it" if len(starting) == 1 else "them"
            return f"{', '.join(starting)}: still starting; requests to {self._public} are answered without {others}"
        seen = answer.body.get("deployments") if isinstance(answer.body, dict) else None
        unseen = [
            name
            for engine in self._plan.engines
            for name in engine.deployments
            if isinstance(seen, dict) and not seen.get(name, True)
        ]
        return f"{place}: it does not reach {', '.join(unseen)} yet" if unseen else None


async def supervise(supervisor: Supervisor) -> int:
    """Run it until SIGTERM or SIGINT.

    SIGHUP is the end of its terminal and stops it, unless `nohup` started it. A process without a terminal gets SIGHUP
    on purpose and reads its policy again.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, supervisor.stop if has_terminal() else supervisor.reload)
    return await supervisor.run()


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal, whatever its streams are."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _phases(answer: ProbeResult | None) -> str:
    """Render the start phases and a failure of an engine's `/startupz`, as ` (import 2.1 s, weights 0.4 s)`.

    Empty when the response has none.
    """
    if answer is None or not isinstance(answer.body, dict):
        return ""
    failure = answer.body.get("failure")
    phases: list[str] = []
    with suppress(TypeError, KeyError, ValueError):  # an engine of another version
        phases = [f"{phase['name']} {float(phase['seconds']):.1f} s" for phase in answer.body.get("phases", ())]
    return (f" ({', '.join(phases)})" if phases else "") + (f": {failure}" if failure else "")

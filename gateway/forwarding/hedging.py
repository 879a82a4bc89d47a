"""Hedging: a late answer is requested once more elsewhere; the first to begin is taken, the other cancelled.

    first deployment  ├─ sent ────────── late ─────────────────────── overtaken ✕
    second deployment                     └─ sent ─────── first byte ──▶ the client's answer

Routes turn it on, and it applies to streams only: the time of a plain answer depends on its length, which is the
same elsewhere. No hedge runs under load, for a client's own retry, or beyond the allowed share of requests.
The work given to the loser is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum

from gateway.deployments.live import LiveDeployment
from gateway.errors import GatewayError
from gateway.forwarding.attempt import AttemptRunner, ForwardRequest, UpstreamAttempt
from gateway.forwarding.error_mapping import RetryElsewhere
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.record import RequestPhase
from gateway.timeline import Clock
from gateway.upstreams.http1.errors import Overtaken
from routing_policies.policy.selection import Hedge


class HedgeEnd(StrEnum):
    """End of a second attempt that ran beside the first; a metric label."""

    WON = "won"
    LOST = "lost"
    FAILED = "failed"


class Hedger:
    """Opener of answers for routes that hedge."""

    __slots__ = ("_attempts", "_clock", "_metrics")

    def __init__(self, attempts: AttemptRunner, *, clock: Clock, metrics: GatewayMetrics) -> None:
        self._attempts = attempts
        self._clock = clock
        self._metrics = metrics

    async def open(
        self, work: ForwardRequest, live: LiveDeployment, rule: Hedge, can_move: Callable[[], bool] | None
    ) -> UpstreamAttempt:
        """Open an attempt like `Attempts.open`; the answer may be another deployment's.

        Raises:
            GatewayError: The first deployment failed.
        """
        race = _Race(self._attempts, work, live, rule, self._clock, self._metrics)
        try:
            attempt = await self._attempts.open(work, live, can_move=can_move, on_sent=race.begin)
        except (RetryElsewhere, GatewayError):
            second = await race.second()
            if second is None:
                raise
            return second
        except BaseException:  # cancellation: the client left
            race.cancel()
            raise
        race.cancel()
        return attempt


class _Race:
    """One request's two attempts; the second begins when the first is late."""

    def __init__(
        self,
        attempts: AttemptRunner,
        work: ForwardRequest,
        live: LiveDeployment,
        rule: Hedge,
        clock: Clock,
        metrics: GatewayMetrics,
    ) -> None:
        self._attempts = attempts
        self._work = work
        self._live = live
        self._rule = rule
        self._clock = clock
        self._metrics = metrics
        self._first: UpstreamAttempt | None = None
        self._other: LiveDeployment | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[UpstreamAttempt | None] | None = None
        self._began_at = clock()

    def begin(self, first: UpstreamAttempt) -> None:
        """Start the race: the first request is on the wire."""
        if self._first is not None:
            return  # sent once more on a new connection: the time counts from the first
        self._first = first
        now = self._began_at = self._clock()
        late_s = self._live.first_bytes.late_s(now)
        if late_s is not None and not self._work.admitted.admission_request.is_retry:
            self._timer = asyncio.get_running_loop().call_later(late_s, self._send_another)

    async def second(self) -> UpstreamAttempt | None:
        """Return the second answer after the first failed; None when there is none either."""
        self._stop_timer()
        task, self._task = self._task, None
        if task is None:
            return None
        try:
            second = await task
        except BaseException:  # cancellation: the client left
            _abandon(task)
            raise
        if second is not None:
            now = self._clock()
            self._live.first_bytes.add(now, now - self._began_at)  # at least that; leaving it out would hide the tail
            self._count(HedgeEnd.WON, loser=self._live)
            self._work.ctx.record.deployment = second.live.id
            self._work.ctx.place = RequestPhase.PREFILL
        return second

    def cancel(self) -> None:
        """Cancel the second attempt: the first answer is there, or no answer is wanted.

        Returns without waiting, so no other task can run in between.
        """
        self._stop_timer()
        task, self._task = self._task, None
        if task is not None:
            _abandon(task)
            if self._other is not None:
                self._count(HedgeEnd.LOST, loser=self._other)

    def _send_another(self) -> None:
        """Start an attempt at a second deployment, if one is idle enough and the route's share is not used up."""
        self._timer = None
        work, purse = self._work, self._work.planned.hedges
        if purse is None or not purse.can_spend or self._is_loaded(self._live) or not self._has_time():
            return
        try:
            other, decision = work.ctx.snapshot.router.pick(
                work.planned, frozenset({self._live.id}), work.admitted.lane.id
            )
        except GatewayError:
            return  # no other deployment is fit: the first attempt goes on alone
        if decision.deployment is None or self._is_loaded(other):
            return
        purse.spend()
        self._other = other
        self._task = asyncio.get_running_loop().create_task(self._run(other), name="hedge")

    async def _run(self, other: LiveDeployment) -> UpstreamAttempt | None:
        """Run the second attempt; its answer ends the first one.

        Returns:
            None when the second attempt failed, and the first goes on.
        """
        try:
            second = await self._attempts.open(self._work, other, can_move=_always, is_leading=False)
        except (RetryElsewhere, GatewayError):
            self._other = None
            self._count(HedgeEnd.FAILED, loser=other)
            return None
        assert self._first is not None, "a second attempt follows a first"
        self._first.give_up(Overtaken, f"deployment '{other.id}' answered the same request first")
        return second

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_loaded(self, live: LiveDeployment) -> bool:
        limiter = live.limiter
        return limiter.num_waiting > 0 or limiter.in_flight > self._rule.max_load_ratio * limiter.limit

    def _has_time(self) -> bool:
        """Return whether a second answer, at the deployment's median time, could begin before the client's deadline."""
        deadline_at, now = self._work.admitted.deadline_at, self._clock()
        usual_s = self._live.first_bytes.usual_s(now) or 0.0
        return deadline_at is None or now + usual_s < deadline_at

    def _count(self, end: HedgeEnd, *, loser: LiveDeployment) -> None:
        """Count the prompt tokens that `loser` received for nothing."""
        counted = self._other if end is not HedgeEnd.FAILED else loser
        if counted is not None:
            self._metrics.hedges.labels(counted.group, end).inc()
        routing_request = self._work.ctx.routing_request
        if routing_request is not None:
            self._metrics.hedged_tokens.labels(loser.group).inc(routing_request.price.prompt_tokens)


def _abandon(task: asyncio.Task[UpstreamAttempt | None]) -> None:
    """Cancel the second attempt; what it has opened by then is closed."""
    task.cancel()
    task.add_done_callback(_close_answer)


def _close_answer(task: asyncio.Task[UpstreamAttempt | None]) -> None:
    if not task.cancelled() and task.exception() is None and (second := task.result()) is not None:
        second.close()


def _always() -> bool:
    """Return True, because a second attempt that meets trouble ends and never hinders the first."""
    return True

"""ReservedPermit: a deployment's permit, or a place in its queue, that a quote holds for the request to come."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from gateway.deployments.live import LiveDeployment
from gateway.errors import Shed
from gateway.limits.permit import NEVER, AdmissionRequest, Permit
from gateway.timeline import Clock
from routing_policies.decision import Decision


class PermitReservation(Protocol):
    """A reserved permit of this process, or of another one of its machine."""

    live: LiveDeployment
    decision: Decision

    @property
    def is_fit(self) -> bool:
        """Return whether the deployment can still serve the request."""
        ...

    async def take(self, clock: Clock, start_by: float = NEVER) -> Permit | None:
        """Return the permit, after the rest of its wait; None if there is none by the instant `start_by`."""
        ...

    def release(self) -> None:
        """Return the permit, or leave the queue. Idempotent."""
        ...


class ReservedPermit:
    """One reserved permit; it ends with `take` or `release`, whichever comes first."""

    __slots__ = ("_permit", "_waiting", "decision", "live")

    def __init__(self, live: LiveDeployment, decision: Decision, admission_request: AdmissionRequest) -> None:
        """Take a free permit, or else enter the queue. Call it on a running event loop.

        Args:
            live: Deployment that the quote names.
            decision: Routing decision that chose it.
            admission_request: Work to reserve for; a target or deadline of the quote itself must not be in it.
        """
        self.live = live
        self.decision = decision
        self._permit = live.limiter.try_acquire(admission_request)
        self._waiting: asyncio.Task[Permit] | None = None
        if self._permit is None:
            self._waiting = asyncio.get_running_loop().create_task(live.limiter.acquire(admission_request))
            self._waiting.add_done_callback(_note_refusal)

    @property
    def is_fit(self) -> bool:
        """Return whether the deployment can still serve the request."""
        return self.live.is_ready and self.live.health.is_fit

    async def take(self, clock: Clock, start_by: float = NEVER) -> Permit | None:
        """Return the permit, after the rest of its wait.

        None if it was taken before, the queue refused it, or it did not come by the monotonic instant `start_by`.
        """
        permit, self._permit = self._permit, None
        task, self._waiting = self._waiting, None
        if task is not None:
            try:
                async with asyncio.timeout(None if start_by == NEVER else max(start_by - clock(), 0.0)):
                    permit = await task
            except Shed:
                return None
            except TimeoutError:
                _leave(task)
                return None
            except asyncio.CancelledError:
                _leave(task)
                raise
        if permit is not None:
            permit.granted_at = clock()  # its work begins now
        return permit

    def release(self) -> None:
        """Return the permit, or leave the queue. Idempotent."""
        permit, self._permit = self._permit, None
        task, self._waiting = self._waiting, None
        if task is not None:
            _leave(task)
        if permit is not None:
            permit.cancel()


def to_hold(admission_request: AdmissionRequest) -> AdmissionRequest:
    """Return the admission request of a reservation: it waits until it expires, and holds back no other prompts."""
    return msgspec.structs.replace(admission_request, deadline_at=None, ttft_by=None, prompt_tokens=0)


def _leave(task: asyncio.Task[Permit]) -> None:
    """Leave the queue, or return the permit that has just been granted."""
    if task.done() and not task.cancelled() and task.exception() is None:
        task.result().cancel()
    else:
        task.cancel()


def _note_refusal(task: asyncio.Task[Permit]) -> None:
    """Read the refusal of a wait that nobody takes up, which is no fault."""
    if not task.cancelled() and not isinstance(task.exception(), Shed | None):
        raise AssertionError("only a refusal ends a wait") from task.exception()

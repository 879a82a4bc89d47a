"""Front's end of the connection to the core: sends sequences, delivers outputs and tracks the core's state."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from engine.frontend.core_client.adapters import AdapterDirectory
from engine.frontend.core_client.mailbox import Mailbox
from engine.frontend.core_client.queue_guard import QueueGuard, QueueLimits
from engine.frontend.request.errors import ApiError, core_failed, overloaded_error
from engine.protocol import (
    Abort,
    AbortState,
    Add,
    Compiling,
    Counters,
    Fatal,
    FrameError,
    FrameSplitter,
    Lane,
    Load,
    LoadAdapter,
    Phase,
    Ready,
    SamplingParams,
    SeqOutput,
    Shutdown,
    StepReport,
    ToFront,
    UnloadAdapter,
    decode_to_front,
    encode_frame,
)

CoreState = Literal["starting", "ready", "down", "stopped"]

IDLE_LOAD = Load(
    num_running=0,
    num_waiting=0,
    num_blocks_total=0,
    num_blocks_free=0,
    num_blocks_cached=0,
    num_blocks_leaked=0,
    step_s=0.0,
    num_step_tokens=0,
)


def _unused(ready: Ready) -> Load:
    """Return the load of a core that has not run a step."""
    if ready.load is not None:
        return ready.load
    return msgspec.structs.replace(IDLE_LOAD, num_blocks_total=ready.num_blocks, num_blocks_free=ready.num_blocks)


class LinkObserver(Protocol):
    """Observer of the core's events, such as the metrics."""

    def phase_ended(self, phase: Phase) -> None:
        """Record the end of a start-up phase."""

    def stepped(self, report: StepReport) -> None:
        """Record a report of the core."""

    def aborted(self, state: AbortState, seconds: float) -> None:
        """Record that the core freed an aborted sequence.

        Args:
            state: Stage of the sequence at the abort.
            seconds: Time from the abort's receipt to its blocks being free.
        """

    def core_lost(self, last: Counters) -> None:
        """Record the loss of the core, whose counters last stood at `last`."""


class CoreListener(Protocol):
    """Receiver of one core's connection and frames."""

    def attached(self, transport: asyncio.WriteTransport) -> None:
        """Accept the transport of the core that has connected."""

    def received(self, message: ToFront) -> None:
        """Handle a frame from the core."""


class CoreLink:
    """State of the core in the front, and the channel to it. One link serves all cores of the front's life."""

    def __init__(self, observer: LinkObserver, clock: Callable[[], float], queue: QueueLimits) -> None:
        self._observer = observer
        self._clock = clock
        self._guard = QueueGuard(queue)
        self._transport: asyncio.WriteTransport | None = None
        self._sequences: dict[int, Mailbox] = {}
        self._ended_here: set[int] = set()
        """Sequences that a stop string completed, while the core has not ended them yet."""
        self._next_seq_id = 1
        self._watchers: set[asyncio.Event] = set()
        self.state: CoreState = "starting"
        self.ready: Ready | None = None
        self.phases: list[Phase] = []
        self.load = IDLE_LOAD
        self.counters = Counters()
        self.last_heard_at = clock()
        self.failure = ""
        """Reason for the loss of the last core."""
        self.fatal = ""
        """Message of the present core's `Fatal` frame."""
        self.has_wrong_settings = False
        """True if the `Fatal` error would occur in any other core too."""
        self.compiling = ""
        """What the present core compiles, by its last report; empty: nothing."""
        self.num_blocks = 0
        """Number of KV blocks of the last core that was ready."""
        self._lost_at: float | None = None
        self.adapters = AdapterDirectory(self._send_order)

    @property
    def num_open(self) -> int:
        """Sequences that were sent to the core and have not ended."""
        return len(self._sequences)

    def add(
        self,
        mailbox: Mailbox,
        prompt_token_ids: list[int],
        params: list[SamplingParams],
        *,
        lane: Lane,
        cache_salt: bytes,
        deadline_s: float | None,
        grammar: str | None = None,
        is_patient: bool = False,
        adapter: str | None = None,
        begun: Sequence[Sequence[int]] | None = None,
        prediction: list[int] | None = None,
    ) -> list[int]:
        """Start one sequence for each of `params`, behind the output in `begun` where there is any.

        Returns:
            The ids of the sequences.

        Raises:
            ApiError: The core is not ready, or its queue is full (503).
        """
        if self.state != "ready" or self._transport is None:
            raise overloaded_error(f"The engine is not ready (core {self.state}).", reason="overload")
        self._guard.check(
            self.load, num_open=len(self._sequences), num_new=len(params), lane=lane, deadline_s=deadline_s
        )
        if not self._sequences:
            self.last_heard_at = self._clock()
        seq_ids = list(range(self._next_seq_id, self._next_seq_id + len(params)))
        self._next_seq_id += len(params)
        for seq_id, param, output_token_ids in zip(seq_ids, params, begun or [()] * len(params), strict=True):
            self._sequences[seq_id] = mailbox
            frame = Add(
                seq_id=seq_id,
                prompt_token_ids=prompt_token_ids,
                params=param,
                lane=lane,
                cache_salt=cache_salt,
                deadline_s=deadline_s,
                grammar=grammar,
                is_patient=is_patient,
                adapter=adapter,
                output_token_ids=list(output_token_ids),
                prediction_token_ids=prediction or [],
            )
            self._transport.write(encode_frame(frame))
            self._guard.sent(prompt_token_ids, cache_salt, adapter)
        return seq_ids

    def abort(self, seq_ids: Iterable[int]) -> None:
        """Abort sequences in the core and forget them; ids that have ended are skipped."""
        open_ids = [seq_id for seq_id in seq_ids if self._sequences.pop(seq_id, None) is not None]
        self._send_abort([seq_id for seq_id in open_ids if seq_id not in self._ended_here])

    def finish(self, seq_id: int) -> None:
        """Stop a sequence whose text is complete. Its last output, with the stage times, still arrives."""
        if seq_id in self._sequences:
            self._ended_here.add(seq_id)
            self._send_abort([seq_id])

    def fail_all(self, error: ApiError) -> None:
        """End every open request with `error` and free its sequences in the core."""
        mailboxes = set(self._sequences.values())
        self.abort(list(self._sequences))
        for mailbox in mailboxes:
            mailbox.fail(error)

    def shut_down(self) -> None:
        """Stop the core after its step; the supervisor does not restart it."""
        self._set_state("stopped")
        if self._transport is not None:
            self._transport.write(encode_frame(Shutdown()))

    @contextlib.contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set at every change of `state`; the caller clears it."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            yield changed
        finally:
            self._watchers.discard(changed)

    def wake_watchers(self) -> None:
        """Set the events of all watchers, because something that they show has changed."""
        for changed in self._watchers:
            changed.set()

    def _send_order(self, order: LoadAdapter | UnloadAdapter) -> None:
        """Send a change of adapters. Raises ApiError (503) if the core is not ready."""
        if self.ready is None or self._transport is None:
            raise overloaded_error(f"The engine is not ready (core {self.state}).", reason="overload")
        self._transport.write(encode_frame(order))

    def _send_abort(self, seq_ids: list[int]) -> None:
        if seq_ids and self._transport is not None:
            self._transport.write(encode_frame(Abort(seq_ids=seq_ids)))

    # The connection and the supervisor call the methods below.

    def core_starting(self) -> None:
        """Reset the state for a core process that starts now."""
        self.phases = []
        self.compiling = ""
        self.fatal = ""
        self.has_wrong_settings = False
        self.last_heard_at = self._clock()
        if self.state != "stopped":
            self._set_state("starting")

    def attached(self, transport: asyncio.WriteTransport) -> None:
        """Store the transport of the core that has connected."""
        self._transport = transport
        self.last_heard_at = self._clock()

    def core_lost(self, reason: str) -> None:
        """Fail every open request, because the core is gone."""
        self._transport = None
        if self.state == "stopped":
            reason = "it was stopped"
        else:
            self._set_state("down")
        self.failure = reason
        if self._lost_at is None:
            self._lost_at = self._clock()
        mailboxes = set(self._sequences.values())
        self._sequences.clear()
        self._ended_here.clear()
        for mailbox in mailboxes:
            mailbox.fail(core_failed("The model process stopped before it finished this request. Try again."))
        self.adapters.core_lost()
        self._observer.core_lost(self.counters)
        self.counters = Counters()
        self.load = IDLE_LOAD
        self.ready = None

    def received(self, message: ToFront) -> None:
        """Handle a frame from the core."""
        self.last_heard_at = self._clock()
        if isinstance(message, StepReport):
            self._stepped(message)
        elif isinstance(message, Ready):
            self.ready = message
            self.num_blocks = message.num_blocks
            self.load = _unused(message)
            self.adapters.core_ready(message.adapters)
            self._recovered()
            if self.state != "stopped":
                self._set_state("ready")
        elif isinstance(message, Phase):
            self._phase_ended(message)
        elif isinstance(message, Compiling):
            self.compiling = message.what
        elif isinstance(message, Fatal):
            self.fatal = message.message
            self.has_wrong_settings = message.is_settings

    def _phase_ended(self, phase: Phase) -> None:
        self.phases.append(phase)
        self._observer.phase_ended(phase)
        self.wake_watchers()

    def _recovered(self) -> None:
        """Record the outage between two cores as a start-up phase, `recovery`, of the new core."""
        if self._lost_at is not None:
            self._phase_ended(Phase(name="recovery", seconds=self._clock() - self._lost_at))
            self._lost_at = None

    def _stepped(self, report: StepReport) -> None:
        self.load = report.load
        if report.has_load:
            self._guard.reported()
        self.counters = report.counters
        self._observer.stepped(report)
        for seq_id, state, seconds in report.freed:
            if seq_id in self._ended_here:
                self._ended_here.discard(seq_id)
            else:
                self._observer.aborted(state, seconds)
        for output in report.outputs:
            self._deliver(output)
        for change in report.adapters:
            self.adapters.reported(change)
        if report.adapters:
            self.wake_watchers()

    def _deliver(self, output: SeqOutput) -> None:
        if output.finish_reason is None:
            mailbox = self._sequences.get(output.seq_id)
        else:
            mailbox = self._sequences.pop(output.seq_id, None)
        if mailbox is not None:
            mailbox.put(output, self.last_heard_at)

    def _set_state(self, state: CoreState) -> None:
        self.state = state
        self.wake_watchers()


class CoreConnection(asyncio.Protocol):
    """Connection of one core: splits the stream into frames, passes them to the listener and reports its loss."""

    def __init__(self, listener: CoreListener) -> None:
        self.listener = listener
        self._splitter = FrameSplitter()
        self._transport: asyncio.Transport | None = None
        self.connected = asyncio.Event()
        self.lost = asyncio.Event()
        self.reason = "it closed the connection"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Attach the core at the first connection; close any further one."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        if self.connected.is_set():
            transport.close()
            return
        self._transport = transport  # type: ignore[assignment]
        self.connected.set()
        self.listener.attached(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Pass the frames in `data` to the listener; a broken frame closes the connection."""
        try:
            for body in self._splitter.feed(data):
                self.listener.received(decode_to_front(body))
        except FrameError as error:
            self.reason = str(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the connection as lost."""
        self.lost.set()

    def close(self) -> None:
        """Close the connection, at which the core ends."""
        if self._transport is not None:
            self._transport.close()

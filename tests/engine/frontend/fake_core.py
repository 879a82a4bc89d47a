"""A core that does what a test states, over the real socket and the real frames."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from engine.frontend.core_client.link import IDLE_LOAD
from engine.protocol import (
    Abort,
    AbortState,
    AdapterReport,
    Add,
    Counters,
    CpuKernels,
    FinishReason,
    FrameSplitter,
    Load,
    LoadAdapter,
    Phase,
    Ready,
    SeqOutput,
    StageTimes,
    StepReport,
    TakeOver,
    ToCore,
    ToFront,
    TokenLogprobs,
    UnloadAdapter,
    decode_to_core,
    encode_frame,
)

LOAD = Load(
    num_running=1,
    num_waiting=0,
    num_blocks_total=100,
    num_blocks_free=75,
    num_blocks_cached=10,
    num_blocks_leaked=0,
    step_s=0.01,
    num_step_tokens=4,
)
STAGES = StageTimes(queue_s=0.001, prefill_s=0.002, decode_s=0.003, num_prefill_chunks=1, num_cached_tokens=2)


class FakeCore:
    """One core process of a test: connects like the real one, records what it is given, states what it is given to."""

    def __init__(self, max_model_len: int = 512, vocab_size: int = 400) -> None:
        self.adds: asyncio.Queue[Add] = asyncio.Queue()
        self.aborts: asyncio.Queue[Abort] = asyncio.Queue()
        self.takes_over: asyncio.Queue[TakeOver] = asyncio.Queue()
        self.orders: asyncio.Queue[LoadAdapter | UnloadAdapter] = asyncio.Queue()
        self.has_shut_down = False
        self.was_pushed = False
        """Terminated or killed."""
        self.ignores_shutdown = False
        self._ready = Ready(
            cpu_kernels=CpuKernels(steps="compiled", products="3 by int8", kv_dtype="bfloat16", num_threads=2),
            max_model_len=max_model_len,
            block_size=16,
            num_blocks=100,
            vocab_size=vocab_size,
            device="cpu",
            dtype="float32",
            model_type="fake",
            speculates=True,
            model_state="0011223344556677;none/float32/bfloat16;8899aabbccddeeff",
        )
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self, path: Path) -> None:
        """Connect to the front; is silent yet."""
        reader, self._writer = await asyncio.open_unix_connection(path)
        self._reading = asyncio.create_task(self._read(reader))

    def start_up(self, load: Load | None = None) -> None:
        """Go through the phases of start-up."""
        self.announce(Phase(name="import", seconds=0.5))
        self.announce(Phase(name="weights", seconds=0.25))
        self.announce(msgspec.structs.replace(self._ready, load=load))

    def announce(self, message: ToFront) -> None:
        """Send one frame."""
        assert self._writer is not None
        self._writer.write(encode_frame(message))

    def emit(
        self,
        seq_id: int,
        token_ids: list[int],
        finish: FinishReason | None = None,
        *,
        logprobs: list[TokenLogprobs] | None = None,
        error: str | None = None,
        stages: StageTimes = STAGES,
    ) -> None:
        """Report a step that made these tokens."""
        output = SeqOutput(
            seq_id=seq_id,
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason=finish,
            error=error,
            stages=stages if finish else None,
        )
        self.step([output])

    def step(self, outputs: list[SeqOutput], freed: list[tuple[int, AbortState, float]] | None = None) -> None:
        """Report a step."""
        counters = Counters(prompt_tokens=10, generation_tokens=5, steps=1)
        self.announce(StepReport(outputs=outputs, load=LOAD, counters=counters, freed=freed or []))

    async def next_add(self) -> Add:
        """The next sequence the front starts."""
        return await asyncio.wait_for(self.adds.get(), 5)

    async def next_order(self) -> LoadAdapter | UnloadAdapter:
        """The next change of adapters that the front sends."""
        return await asyncio.wait_for(self.orders.get(), 5)

    def change(self, *reports: AdapterReport) -> None:
        """Report changes of adapters."""
        self.announce(StepReport(outputs=[], load=LOAD, counters=Counters(), adapters=list(reports)))

    async def next_abort(self) -> Abort:
        """The next abort the front sends."""
        return await asyncio.wait_for(self.aborts.get(), 5)

    def die(self, status: int = 1) -> None:
        """End at once, without a word."""
        if self._writer is not None:
            self._writer.transport.abort()
        if not self._exited.done():
            self._exited.set_result(status)

    def die_after_its_frames(self, status: int) -> None:
        """End as soon as the frames that were announced are on their way."""
        assert self._writer is not None
        self._writer.close()
        self._exited.set_result(status)

    async def close(self) -> None:
        """Let go of everything; the test is over."""
        self.die(0)
        if self._reading is not None:
            await self._reading
        if self._writer is not None:
            try:
                await self._writer.wait_closed()
            except ConnectionError:
                return

    # What the supervisor needs of a process.

    async def wait(self) -> int:
        return await asyncio.shield(self._exited)

    def terminate(self) -> None:
        self.was_pushed = True
        self.die(-15)

    def kill(self) -> None:
        self.was_pushed = True
        self.die(-9)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        splitter = FrameSplitter()
        try:
            while data := await reader.read(65536):
                for body in splitter.feed(data):
                    self._receive(decode_to_core(body))
        except ConnectionError:
            pass
        self.die(0)  # like the real one: it does not outlive its front

    def _receive(self, message: ToCore) -> None:
        if isinstance(message, Add):
            self.adds.put_nowait(message)
        elif isinstance(message, Abort):
            self.aborts.put_nowait(message)
        elif isinstance(message, TakeOver):
            self.takes_over.put_nowait(message)
        elif isinstance(message, LoadAdapter | UnloadAdapter):
            self.orders.put_nowait(message)
        else:
            self.has_shut_down = True
            if not self.ignores_shutdown:
                self.die(0)


class FakeCores:
    """Starts a new fake core each time the front requests one."""

    def __init__(self, *, starts_up: bool = True, max_model_len: int = 512) -> None:
        self.started: list[FakeCore] = []
        self.starts_up = starts_up
        self.max_model_len = max_model_len
        self._new: asyncio.Queue[FakeCore] = asyncio.Queue()

    async def spawn(self, path: Path) -> FakeCore:
        """What the supervisor calls."""
        core = FakeCore(self.max_model_len)
        await core.connect(path)
        if self.starts_up:
            core.start_up()
        self.started.append(core)
        self._new.put_nowait(core)
        return core

    async def next(self) -> FakeCore:
        """The next core that is started."""
        return await asyncio.wait_for(self._new.get(), 5)

    async def close(self) -> None:
        """Let go of all of them."""
        for core in self.started:
            await core.close()


__all__ = ["IDLE_LOAD", "LOAD", "STAGES", "FakeCore", "FakeCores"]

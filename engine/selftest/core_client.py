"""Client of a complete core in a thread of this process, connected by a socket pair like the front."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.config import CoreConfig, core_config_json
from engine.core.process import run_core
from engine.protocol import (
    Add,
    Counters,
    Fatal,
    FrameSplitter,
    Ready,
    SamplingParams,
    Shutdown,
    StepReport,
    ToFront,
    TokenLogprobs,
    decode_to_front,
    encode_frame,
)

_RECEIVE_BYTES = 1 << 18


class CoreFailed(RuntimeError):
    """The core ended or could not answer; the message gives the reason."""


@dataclass(slots=True)
class SequenceAnswer:
    """Output of one sequence."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None


class CoreClient:
    """Blocking client of one core, for several requests at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._splitter = FrameSplitter()
        self._num_sequences = 0
        self.counters = Counters()
        """Totals of the core after the last answer."""
        self.ready = self._wait_until_ready()

    def generate(self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]) -> list[SequenceAnswer]:
        """Return the answers to all prompts, computed together. Raises CoreFailed."""
        first = self._num_sequences
        self._num_sequences += len(prompts)
        for offset, (prompt, some) in enumerate(zip(prompts, params, strict=True)):
            add = Add(seq_id=first + offset, prompt_token_ids=list(prompt), params=some)
            self._sock.sendall(encode_frame(add))
        answers = [SequenceAnswer() for _ in prompts]
        num_open = len(prompts)
        for message in self._messages():
            if not isinstance(message, StepReport):
                continue
            self.counters = message.counters
            for output in message.outputs:
                if output.error is not None:
                    raise CoreFailed(output.error)
                answer = answers[output.seq_id - first]
                answer.token_ids += output.token_ids
                answer.logprobs += output.logprobs or []
                answer.finish_reason = output.finish_reason
                num_open -= output.finish_reason is not None
            if not num_open:
                break
        return answers

    def end_core(self) -> None:
        """Stop the core after its running step."""
        self._sock.sendall(encode_frame(Shutdown()))

    def _wait_until_ready(self) -> Ready:
        for message in self._messages():
            if isinstance(message, Ready):
                return message
        raise CoreFailed("the core ended")

    def _messages(self) -> Iterator[ToFront]:
        while data := self._sock.recv(_RECEIVE_BYTES):
            for body in self._splitter.feed(data):
                message = decode_to_front(body)
                if isinstance(message, Fatal):
                    raise CoreFailed(message.message)
                yield message
        raise CoreFailed("the core ended")


@contextmanager
def running_core(config: CoreConfig, clock: Callable[[], float]) -> Iterator[CoreClient]:
    """Yield a client of a core that serves until the block ends. Raises CoreFailed if it cannot start."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # torch's number of threads belongs to the thread that sets it, so the whole core runs in this one.
        thread = threading.Thread(target=run_core, args=(theirs, core_config_json(config), clock), daemon=True)
        thread.start()
        client = CoreClient(ours)
        try:
            yield client
        finally:
            client.end_core()
            thread.join()

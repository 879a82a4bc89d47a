"""The two sides of a decode comparison, each measured by one call: an engine over HTTP, and `transformers.generate`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.clients.completions import TokenStream, complete_tokens, stream_tokens
from loadtests.clients.http_client import Address, clock
from loadtests.engine.part import Setting
from loadtests.harness.processes import Process, ProcessFailed, Workbench

_TIMEOUT_S = 300.0

Batch = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One measurement."""

    num_tokens: float
    """Decoded, over the whole batch."""
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Of the whole batch."""
        return self.num_tokens / self.seconds


async def decode_plain(engine: Address, prompts: Batch, num_tokens: int) -> Rate:
    """From the first row's first token to the last row's last, by the engine's stage record of plain answers.

    The prompts should lie in the prefix cache, so that no row waits for another's prefill within that time.
    """
    answers = await asyncio.gather(*(complete_tokens(engine, prompt, num_tokens) for prompt in prompts))
    seconds = max(answer.decode_end for answer in answers) - min(answer.decode_begin for answer in answers)
    return Rate(num_tokens=len(prompts) * (num_tokens - 1), seconds=seconds)


async def decode_streamed(engine: Address, prompts: Batch, num_tokens: int) -> Rate:
    """While every row is streaming, as the client sees it: front, HTTP and client included."""
    streams = [TokenStream(sent_at=clock()) for _ in prompts]
    await asyncio.gather(
        *(stream_tokens(engine, prompt, num_tokens, seen=seen) for prompt, seen in zip(prompts, streams, strict=True))
    )
    begin = max(stream.instants[0] for stream in streams)
    end = min(stream.instants[-1] for stream in streams)
    if end <= begin:  # too few events to overlap: then the whole answers, prefill included
        seconds = max(stream.ended_at for stream in streams) - min(stream.sent_at for stream in streams)
        return Rate(num_tokens=num_tokens * len(streams), seconds=seconds)
    # An event may carry several tokens; within one stream they are spread evenly enough.
    num_decoded = sum(num_tokens * _share_within(stream.instants, begin, end) for stream in streams)
    return Rate(num_tokens=num_decoded, seconds=end - begin)


def _share_within(instants: Sequence[float], begin: float, end: float) -> float:
    return sum(begin < instant <= end for instant in instants) / len(instants)


async def warm_prefixes(engine: Address, prompts: Batch) -> None:
    """Leave the prompts' keys and values in the engine's prefix cache."""
    for prompt in prompts:
        await complete_tokens(engine, prompt, 1)


class MeasuredProcess:
    """Another engine in a process of its own, one question at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._num_replies = 0

    @classmethod
    async def start(
        cls, bench: Workbench, module: str, arguments: Sequence[str], *, python: str = sys.executable
    ) -> MeasuredProcess:
        """Start one and wait until it has loaded the model. Raises ProcessFailed."""
        found = cls(await bench.start(module.rpartition(".")[2], module, arguments, python=python))
        await found._reply()
        return found

    @classmethod
    async def transformers(cls, bench: Workbench, setting: Setting) -> MeasuredProcess:
        """Start one of `transformers`. Raises ProcessFailed."""
        arguments = ["--model", str(setting.model), "--threads", str(setting.threads)]
        return await cls.start(bench, "loadtests.engine.reference_decode", arguments)

    @property
    def pid(self) -> int:
        """Id of the process that decodes."""
        return self._process.pid

    async def decode(self, prompts: Batch, num_tokens: int) -> Rate:
        """Measure from the choice of the first token to that of the last."""
        reply = await self._complete(prompts, num_tokens)
        return Rate(num_tokens=(num_tokens - 1) * len(prompts), seconds=_number(reply["decode_s"]))

    async def prefill(self, prompts: Batch) -> float:
        """Return the seconds of the first prompt, or of one bare call of the model for all."""
        return _number((await self._complete(prompts, 1))["prefill_s"])

    async def _complete(self, prompts: Batch, num_tokens: int) -> dict[str, object]:
        self._process.write_line(json.dumps({"prompts": prompts, "num_tokens": num_tokens}))
        reply = await self._reply()
        if reply["num_tokens"] != num_tokens:
            raise ProcessFailed(
                f"{self._process.name} made {reply['num_tokens']} tokens where {num_tokens} were requested"
            )
        return reply

    async def _reply(self) -> dict[str, object]:
        deadline = clock() + _TIMEOUT_S
        while len(lines := self._process.json_lines()) <= self._num_replies:
            if not self._process.is_running or clock() > deadline:
                raise ProcessFailed(f"{self._process.name} gave no answer:\n{self._process.tail()}")
            await asyncio.sleep(0.02)
        self._num_replies += 1
        return lines[self._num_replies - 1]


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value

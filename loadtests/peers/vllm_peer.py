"""vLLM's server as a peer of the engine: started with the same threads, measured by what its streams show."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loadtests.clients.completions import stream_tokens
from loadtests.clients.http_client import Address
from loadtests.engine.decode_rates import decode_streamed
from loadtests.harness.processes import Process, ProcessFailed, Workbench
from loadtests.peers.gateway_programs import free_port

_READY_TIMEOUT_S = 600.0
_KV_CACHE_GIB = "2"


class StreamedEngine:
    """An engine behind OpenAI's completions API, seen by its client: HTTP and the front are part of every figure.

    Args:
        address: Where it serves.
        paused: Its process, if it is to run only while it is measured.
    """

    def __init__(self, address: Address, paused: Process | None = None) -> None:
        self._address = address
        self._paused = paused

    async def prefill(self, prompt: Sequence[int]) -> float:
        """Return the tokens of the prompt a second, by the time until the only token. Raises ProcessFailed."""
        with self._running():
            return len(prompt) / (await stream_tokens(self._address, prompt, 1)).ttft_s

    async def decode(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> float:
        """Return the tokens a second of all sequences while each of them streams. Raises ProcessFailed."""
        with self._running():
            return (await decode_streamed(self._address, prompts, num_tokens)).tokens_per_s

    @contextmanager
    def _running(self) -> Iterator[None]:
        if self._paused is None:
            yield
            return
        self._paused.resume()
        try:
            yield
        finally:
            self._paused.pause()


async def start_vllm(bench: Workbench, program: str, model: Path, *, num_threads: int, max_seqs: int) -> StreamedEngine:
    """Start `vllm serve` on a CPU, in bfloat16, its threads bound to one core each. Raises ProcessFailed.

    It is paused between measurements: its threads keep a core busy for about a second after their last step, which
    others would pay for.
    """
    port = free_port()
    argv = [program, *_arguments(model, port, max_seqs)]
    cores = sorted(os.sched_getaffinity(0))[:num_threads]
    environment = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": _KV_CACHE_GIB,
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    process = await bench.start_program("vllm", argv, environment=environment)
    address = Address(port=port)

    async def is_ready() -> bool:
        try:
            await stream_tokens(address, [1], 1)
        except ProcessFailed:
            return False
        return True

    await process.wait_until(is_ready, _READY_TIMEOUT_S)
    process.pause()
    return StreamedEngine(address, process)


def _arguments(model: Path, port: int, max_seqs: int) -> list[str]:
    served = ["serve", str(model.resolve()), "--served-model-name", "bench", "--host", "127.0.0.1", "--port", str(port)]
    return [*served, "--max-model-len", "4096", "--max-num-seqs", str(max_seqs), "--dtype", "bfloat16"]

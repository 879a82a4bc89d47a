"""Assembly of the front process; runs it until a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.config import CoreConfig, EngineConfigError, FrontConfig
from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.live_core import CoreStarts
from engine.frontend.core_client.metrics import EngineMetrics
from engine.frontend.core_client.queue_guard import QueueLimits
from engine.frontend.core_client.service import EngineService
from engine.frontend.core_client.standby_pool import StandbyPool
from engine.frontend.core_client.supervisor import CoreSpawner, CoreSupervisor, Patience
from engine.frontend.http.adapters import AdapterAdmin
from engine.frontend.http.app import EngineApp
from engine.frontend.http.completions import WRITE_STALL_S, Completions
from engine.frontend.http.health import EngineProbes
from engine.frontend.http.server import DrainingServer, bind, server_config
from engine.frontend.http.tokenization import Tokenization
from engine.frontend.http.tracing import Tracer
from engine.frontend.resume.resume_request import MIN_KEY_CHARS
from engine.frontend.text.chat_template import load_chat_template
from engine.frontend.text.handling import TextHandling
from engine.frontend.text.tokenizer import load_tokenizer
from engine.frontend.tools.reasoning_format import choose_reasoning_format
from engine.frontend.tools.tool_format import choose_tool_format
from engine.garbage import exclude_loaded

logger = logging.getLogger(__name__)

_DRAIN_POLL_S = 0.02


class Front:
    """Front process of one engine: HTTP server, tokenizer and the supervisor of the core."""

    def __init__(
        self,
        config: FrontConfig,
        model_dir: Path,
        starts: CoreStarts,
        queue: QueueLimits,
        *,
        patience: Patience | None = None,
        write_stall_s: float = WRITE_STALL_S,
        lora_dir: Path | None = None,
    ) -> None:
        """Load the tokenizer and the chat template, and construct every part of the front.

        Args:
            config: Settings of the front.
            model_dir: Model folder in Hugging Face layout.
            starts: Start the core process and standbys.
            queue: Limits of the core's queue.
            patience: Timeouts of the supervisor; None: the defaults.
            write_stall_s: Time after which a client that reads nothing is dropped, in seconds.
            lora_dir: Folder whose adapters may be loaded and unloaded over HTTP; None: none may.

        Raises:
            EngineConfigError: The tokenizer or the template cannot be used.
        """
        clock = time.monotonic
        metrics = EngineMetrics()
        self._config = config
        self._link = CoreLink(metrics, clock, queue)
        metrics.expose_core(self._link)
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="tokenize")
        self._service = EngineService(
            config,
            _text_handling(config, model_dir),
            self._link,
            metrics,
            self._executor,
            clock=clock,
        )
        patience = patience or Patience()
        standbys = _standbys(self._link, starts, config.standby_cores, patience)
        self._supervisor = CoreSupervisor(self._link, starts, clock, patience, standbys)
        self._tracer = Tracer(config, clock, time.time, secrets.randbits) if config.otlp_endpoint else None
        completions = Completions(self._service, time.time, write_stall_s, self._tracer, _resume_key(config))
        app = EngineApp(
            completions,
            EngineProbes(self._service, time.time),
            Tokenization(self._service),
            AdapterAdmin(self._service, lora_dir),
        )
        self._server = DrainingServer(server_config(app), self._signalled)
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, on_listening: Callable[[str], None] | None = None) -> None:
        """Serve until a signal or `stop`, then drain.

        Raises:
            EngineConfigError: The address cannot be bound, or the core rejects a setting or the model.
        """
        self._loop = asyncio.get_running_loop()
        listener = bind(self._config.listen)
        if on_listening is not None:
            on_listening(_address(self._config.listen, listener.getsockname()))
        core = asyncio.create_task(self._supervisor.run(), name="core supervisor")
        core.add_done_callback(lambda _: self._server.stop())
        draining = asyncio.create_task(self._drain_on_stop(), name="drain")
        if self._tracer is not None:
            self._tracer.start()
        try:
            await self._server.serve([listener])
        finally:
            draining.cancel()
            self._supervisor.stop()
            try:
                await core
            finally:
                self._executor.shutdown(wait=False, cancel_futures=True)
                if self._tracer is not None:
                    await asyncio.to_thread(self._tracer.close)
                _remove_socket(self._config.listen)

    def stop(self) -> None:
        """Start the drain that ends `serve`. Call it on the event loop."""
        self._stop.set()

    def _signalled(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _drain_on_stop(self) -> None:
        await self._stop.wait()
        logger.info("draining: %d sequences under way", self._link.num_open)
        self._service.drain()
        deadline = time.monotonic() + self._config.drain_timeout_s
        while self._link.num_open and time.monotonic() < deadline:
            await asyncio.sleep(_DRAIN_POLL_S)
        self._service.close()
        self._server.stop()


async def run_front(front: FrontConfig, core: CoreConfig, on_listening: Callable[[str], None] | None = None) -> None:
    """Serve one model until a signal.

    Raises:
        EngineConfigError: A setting or the model is wrong, or the address cannot be bound.
    """
    queue = QueueLimits(
        max_waiting=core.batch.max_waiting,
        max_wait_s=core.batch.max_queue_wait_s,
        max_batch_wait_s=core.batch.max_batch_wait_s,
    )
    spawner = CoreSpawner(core)
    starts = CoreStarts(spawner.serving, spawner.standby if front.standby_cores else None, spawner.avoid_compiled_code)
    serving = Front(front, core.model_dir, starts, queue, lora_dir=core.adapters.lora_dir)
    exclude_loaded()
    await serving.serve(on_listening)


def _resume_key(config: FrontConfig) -> bytes | None:
    """Return the key that signs orders to resume; None without one. Raises EngineConfigError if it is not set."""
    name = config.resume_key_env
    if not name:
        return None
    key = os.environ.get(name, "").strip()
    if len(key) < MIN_KEY_CHARS:
        raise EngineConfigError(
            f"resume_key_env: the environment variable {name} must hold at least {MIN_KEY_CHARS} characters; "
            "give the engine and the gateway the same, such as the output of `openssl rand -hex 32`"
        )
    return key.encode()


def _text_handling(config: FrontConfig, model_dir: Path) -> TextHandling:
    """Load the tokenizer and the chat template, and choose the syntax of tool calls and reasoning."""
    tokenizer = load_tokenizer(model_dir)
    template = load_chat_template(model_dir, tokenizer.special_texts, lambda: secrets.token_hex(16))
    source, added, special = template.source if template else None, tokenizer.added_tokens, tokenizer.special_texts
    return TextHandling(
        tokenizer=tokenizer,
        template=template,
        tool_format=choose_tool_format(template.tool_source if template else None, added, special),
        reasoning=choose_reasoning_format(config.answers.reasoning, source, added, special),
    )


def _standbys(link: CoreLink, starts: CoreStarts, size: int, patience: Patience) -> StandbyPool | None:
    if starts.standby is None:
        return None
    return StandbyPool(
        link,
        starts.standby,
        size,
        avoid_compiled_code=starts.avoid_compiled_code,
        start_s=patience.start_s,
        stop_s=patience.stop_s,
        pause_s=patience.longest_pause_s,
    )


def _address(listen: str, name: object) -> str:
    """Return the address that clients use, with the port that the system chose."""
    if isinstance(name, tuple):
        host, port = name[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return listen


def _remove_socket(listen: str) -> None:
    if listen.startswith("unix:"):
        Path(listen.removeprefix("unix:")).unlink(missing_ok=True)

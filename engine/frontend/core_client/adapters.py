"""Adapters as the front knows them: which ones requests may name, and changes that the core has not answered yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Literal

from engine.frontend.request.errors import ApiError, core_failed, invalid_value, overloaded_error
from engine.protocol import AdapterReport, LoadAdapter, UnloadAdapter

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 60.0
"""Maximum wait for the core's answer to a change, beyond the drain of an unload, in seconds."""


class AdapterDirectory:
    """Directory of the core's adapters; a core that replaces a lost one gets the same adapters again."""

    def __init__(self, send: Callable[[LoadAdapter | UnloadAdapter], None]) -> None:
        """Create an empty directory; `send` sends a frame to the core, and raises ApiError without one."""
        self._send = send
        self._states: dict[str, Literal["loading", "ready", "draining"]] = {}
        self._digests: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        """Folders of the adapters that were loaded at run time."""
        self._removed: set[str] = set()
        """Adapters of the start that were unloaded since."""
        self._waiting: dict[str, asyncio.Future[AdapterReport]] = {}

    @property
    def names(self) -> list[str]:
        """Names of the adapters that requests may use."""
        return [name for name, state in self._states.items() if state == "ready"]

    def digest_of(self, name: str) -> str:
        """Return the digest of an adapter's files; empty for one that the core does not have."""
        return self._digests.get(name, "")

    def check(self, name: str, model: str) -> None:
        """Raise ApiError unless requests may use the adapter: 503 while it is being loaded, otherwise 404."""
        state = self._states.get(name)
        if state == "ready":
            return
        if state == "loading":
            raise overloaded_error(f"Adapter {name!r} is being loaded.", reason="overload")
        message = f"The model {model[:128]!r} does not exist here; adapter {name[:64]!r} is not loaded."
        raise ApiError(404, message, param="model", code="model_not_found")

    async def load(self, name: str, path: str) -> None:
        """Load an adapter from a folder.

        Raises:
            ApiError: The name is in use, the core refuses the adapter (400), or there is no core (502, 503).
        """
        if name in self._states:
            raise invalid_value("lora_name", f"The LoRA adapter {name!r} has already been loaded.")
        answer = self._begin(LoadAdapter(name=name, path=path), "loading")
        report = await self._answer(answer, 0.0)
        if report.error is not None:
            raise invalid_value("lora_path", f"The LoRA adapter {name!r} cannot be loaded: {report.error}.")
        self._paths[name] = path
        self._removed.discard(name)

    async def unload(self, name: str, drain_s: float) -> None:
        """Unload an adapter once its sequences have ended, which they must within `drain_s` seconds.

        Raises:
            ApiError: The adapter is not loaded (404), or there is no core (502, 503).
        """
        if self._states.get(name) != "ready":
            message = f"The LoRA adapter {name[:64]!r} cannot be found."
            raise ApiError(404, message, param="lora_name", code="model_not_found")
        answer = self._begin(UnloadAdapter(name=name, deadline_s=drain_s), "draining")
        if self._paths.pop(name, None) is None:
            self._removed.add(name)
        report = await self._answer(answer, drain_s)
        if report.error is not None:
            raise core_failed(f"The LoRA adapter {name!r} was not unloaded: {report.error}.")

    def core_ready(self, digests: Mapping[str, str]) -> None:
        """Bring a core that has started with these adapters, with the digests of their files, to the present state."""
        self._states = {name: "ready" for name in digests if name not in self._removed}
        self._digests = dict(digests)
        for name in self._removed.intersection(digests):
            self._send(UnloadAdapter(name=name, deadline_s=0.0))
        for name, path in self._paths.items():
            if name not in self._states:
                self._states[name] = "loading"
                self._send(LoadAdapter(name=name, path=path))

    def core_lost(self) -> None:
        """End the changes under way, because the core is gone."""
        self._states.clear()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(core_failed("The model process stopped before it changed the adapter. Try again."))
                answer.exception()  # nobody may be waiting for it any more

    def reported(self, report: AdapterReport) -> None:
        """Record the core's answer to a change."""
        if report.change == "loaded" and report.name in self._states:
            self._states[report.name] = "ready"
            self._digests[report.name] = report.digest
        else:
            self._states.pop(report.name, None)
            self._digests.pop(report.name, None)
        answer = self._waiting.pop(report.name, None)
        if answer is not None and not answer.done():
            answer.set_result(report)
        elif report.error is not None:
            logger.error("adapter %s is gone with the last core: %s", report.name, report.error)
            self._paths.pop(report.name, None)

    def _begin(
        self, order: LoadAdapter | UnloadAdapter, state: Literal["loading", "draining"]
    ) -> asyncio.Future[AdapterReport]:
        self._send(order)
        self._states[order.name] = state
        answer: asyncio.Future[AdapterReport] = asyncio.get_running_loop().create_future()
        self._waiting[order.name] = answer
        return answer

    async def _answer(self, answer: asyncio.Future[AdapterReport], drain_s: float) -> AdapterReport:
        try:
            async with asyncio.timeout(drain_s + _ANSWER_S):
                return await asyncio.shield(answer)
        except TimeoutError:
            message = "The model process has not changed the adapter in time; the change goes on."
            raise ApiError(504, message, type="api_error", code="upstream_timeout") from None

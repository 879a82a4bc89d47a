"""OwnEncoder: the gateway's encoder for clients, served to the gateway itself on connections within the process."""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.api.encoder import EncoderApplication
from gateway.app.runtime import Runtime
from gateway.config.settings import GatewayConfig
from gateway.embedding.installed import InstalledEncoder
from gateway.embedding.served_encoder import LoadEncoder, ServedEncoder
from gateway.http.server import Listener, Server
from gateway.upstreams.connector import Join
from routing_policies.policy.document import BUILTIN_ENCODER, Policy

NAME: Final = BUILTIN_ENCODER.partition(":")[2]


class OwnEncoder:
    """The encoder and its listener; the encoder loads with the first policy that has a deployment of it."""

    def __init__(self, config: GatewayConfig, runtime: Runtime, load: LoadEncoder | None = None) -> None:
        settings, folder = config.process.embeddings, config.process.runtime_dir / "encoder"
        self._encoder = ServedEncoder(
            load or InstalledEncoder(folder, settings.precision, settings.model).load,
            num_threads=settings.threads,
            on_failure=lambda error: runtime.log.failure("encoder_failed", error),
        )
        listener = Listener(name=NAME, address="", app=EncoderApplication(self._encoder), limits=config.edge)
        self._server = Server([listener], new_request_id=runtime.ids.next)

    @property
    def joins(self) -> dict[str, Join]:
        """Return the opener of connections, by the name behind `builtin:`."""
        return {NAME: partial(self._server.join, NAME)}

    async def start(self) -> None:
        """Serve connections within the process."""
        await self._server.start()

    def note_policy(self, policy: Policy) -> None:
        """Load the encoder once a policy uses it."""
        if any(deployment.url == BUILTIN_ENCODER for deployment in policy.deployments):
            self._encoder.start()

    async def aclose(self) -> None:
        """Close every connection and stop the encoder."""
        await self._server.close()
        await self._encoder.aclose()

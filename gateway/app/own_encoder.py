"""OwnEncoder: the gateway's encoder for clients, served to the gateway itself on connections within the process."""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.api.encoder import EncoderApplication
from gateway.app.runtime import Runtime
from gateway.config.settings import GatewayConfig
from gateway.embedding.embedder import Embedder
from gateway.embedding.installed import InstalledEncoder
from gateway.embedding.served_encoder import LoadEncoder, ServedEncoder
from gateway.http.asgi import ASGIApp
from gateway.http.server import Listener, Server
from gateway.machine.process import CONTROL, MachineProcess
from gateway.machine.vectors import VectorsApplication
from gateway.upstreams.connector import Join, connect_unix
from routing_policies.policy.deployment import BUILTIN_ENCODER
from routing_policies.policy.document import Policy

NAME: Final = BUILTIN_ENCODER.partition(":")[2]


class OwnEncoder:
    """The encoder and its listener; the encoder loads with the first policy that has a deployment of it."""

    def __init__(
        self,
        config: GatewayConfig,
        runtime: Runtime,
        load: LoadEncoder | None = None,
        *,
        member: MachineProcess | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        """Prepare the encoder; a worker connects to that of the control process, where `embedder` serves them too."""
        self._remote = None if member is None or member.is_control else member.socket_of(CONTROL)
        settings, folder = config.process.embeddings, config.process.runtime_dir / "encoder"
        self._encoder = ServedEncoder(
            load or InstalledEncoder(folder, settings.precision, settings.model).load,
            num_threads=settings.threads,
            on_failure=lambda error: runtime.log.failure("encoder_failed", error),
        )
        app: ASGIApp = EncoderApplication(self._encoder)
        address = ""
        if member is not None and member.is_control and embedder is not None:
            address, app = f"unix:{member.own_socket}", VectorsApplication(embedder, app)
        listener = Listener(name=NAME, address=address, app=app, limits=config.edge)
        self._server = Server([listener], new_request_id=runtime.ids.next)

    @property
    def joins(self) -> dict[str, Join]:
        """Return the opener of connections, by the name behind `builtin:`."""
        remote = self._remote
        if remote is not None:
            return {NAME: lambda: connect_unix(str(remote))}
        return {NAME: partial(self._server.join, NAME)}

    async def start(self) -> None:
        """Serve connections within the process, or from the workers."""
        if self._remote is None:
            await self._server.start()

    def note_policy(self, policy: Policy) -> None:
        """Load the encoder once a policy uses it."""
        if self._remote is None and any(deployment.url == BUILTIN_ENCODER for deployment in policy.deployments):
            self._encoder.start()

    async def aclose(self) -> None:
        """Close every connection and stop the encoder."""
        await self._server.close()
        await self._encoder.aclose()
